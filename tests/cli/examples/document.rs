//! The examples in documents and help.

use std::fs;

use crate::cli::help::commands;
use crate::cli::program::{calipam, root};

/// A command in a document or a help text.
#[derive(Clone, Debug)]
pub(super) struct Example {
    /// The file and the line, or the command whose help contains the example.
    pub place: String,
    /// The line as typed, without its remark.
    pub line: String,
    /// The output in the document.
    pub output: Option<String>,
}

/// A block of code in a document.
struct Block {
    /// The file and the number of its first line.
    file: String,
    first: usize,
    lines: Vec<String>,
}

/// Reads the README and the documents.
pub(super) fn documents() -> Vec<(String, String)> {
    let folder = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = folder.map(|name| format!("docs/{}", name.into_string().unwrap())).collect();
    names.retain(|name| name.ends_with(".md"));
    names.push("README.md".into());
    names.sort();
    let text = |name: &String| fs::read_to_string(root().join(name)).unwrap();
    names.iter().map(|name| (name.clone(), text(name))).collect()
}

/// Returns the examples of the documents: the lines of code blocks without a language. In blocks with prompts, lines
/// with a prompt are commands, and the other lines are output. Stories have their own test.
pub(super) fn of_documents() -> Vec<Example> {
    documents().iter().flat_map(|(file, text)| blocks(file, text)).flat_map(examples).collect()
}

fn blocks(file: &str, text: &str) -> Vec<Block> {
    let (mut blocks, mut open, mut before) = (Vec::new(), None::<(bool, Block)>, "");
    for (number, line) in (1..).zip(text.lines()) {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take().filter(|(wanted, _)| *wanted).map(|(_, b)| b)),
            (Some(language), None) => {
                let wanted = language.is_empty() && !before.starts_with("<!-- story ");
                let block = Block { file: file.to_owned(), first: number + 1, lines: Vec::new() };
                open = Some((wanted, block));
            }
            (None, Some((_, block))) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
        before = line;
    }
    assert!(open.is_none(), "{file}: a code block does not end");
    blocks
}

fn examples(block: Block) -> Vec<Example> {
    let has_prompts = block.lines.iter().any(|line| line.starts_with("$ "));
    let mut found: Vec<Example> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (block.first..).zip(&block.lines) {
        let place = format!("{}:{number}", block.file);
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(line), _) => {
                found.push(Example { place, line: without_remark(line), output: Some(String::new()) });
            }
            (None, Some(Example { output: Some(output), .. })) if has_prompts => {
                output.extend([line, "\n"]);
            }
            (None, Some(last)) if goes_on => {
                last.line.truncate(last.line.len() - 1);
                last.line.push_str(&without_remark(line.trim_start()));
            }
            (None, _) if line.is_empty() || line.starts_with('#') => {}
            (None, _) => found.push(Example { place, line: without_remark(line), output: None }),
        }
        goes_on = found.last().is_some_and(|last| last.line.ends_with('\\'));
    }
    found
}

/// Returns the examples in the help of each command.
pub(super) fn of_help() -> Vec<Example> {
    let mut found = Vec::new();
    for command in commands() {
        let help = calipam(&format!("help {command}")).stdout;
        let below = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        for line in below.map_while(|line| line.strip_prefix("  ")) {
            let place = format!("calipam help {command}");
            found.push(Example { place, line: without_remark(line), output: None });
        }
    }
    found
}

/// Removes a remark, which is separated by two spaces.
fn without_remark(line: &str) -> String {
    let line = line.trim_end();
    line.split_once("  ").map_or(line, |(line, _)| line).trim_end().to_owned()
}
