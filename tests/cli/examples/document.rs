//! The examples in documents and help.

use std::fs;

use super::spoken::spans;
use crate::cli::help::commands;
use crate::cli::program::{calipam, root};

/// The surroundings in which a command is run, according to its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Surroundings {
    /// The shell of a person.
    Person,
    /// A crontab with these settings.
    Cron(Vec<(String, String)>),
    /// A container of the image, with these mounts: from a path outside to a path inside.
    Container(Vec<(String, String)>),
}

/// A command in a document or a help text.
#[derive(Clone, Debug)]
pub(super) struct Example {
    /// The file and the line, or the command whose help contains the example.
    pub place: String,
    pub surroundings: Surroundings,
    /// The line as typed, without its remark. Without the schedule, if it is a line of a crontab, and without the call of
    /// the container's program.
    pub line: String,
    /// The output in the document.
    pub output: Option<String>,
}

/// A block of code in a document.
struct Block {
    /// The file and the number of its first line.
    file: String,
    first: usize,
    /// True for a part of a crontab.
    is_cron: bool,
    lines: Vec<String>,
}

/// The comment above a block that is a part of a crontab.
const CRON: &str = "<!-- cron -->";

/// Reads the README and the documents.
pub(super) fn documents() -> Vec<(String, String)> {
    let folder = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = folder
        .map(|name| format!("docs/{}", name.into_string().unwrap()))
        .collect();
    names.retain(|name| name.ends_with(".md"));
    names.push("README.md".into());
    names.sort();
    let text = |name: &String| fs::read_to_string(root().join(name)).unwrap();
    names.iter().map(|name| (name.clone(), text(name))).collect()
}

/// Returns the examples of the documents: the lines of code blocks without a language, and calls of containers in
/// running text. In blocks with prompts, lines with a prompt are commands, and the other lines are output. Stories have
/// their own test.
pub(super) fn of_documents() -> Vec<Example> {
    let mut found = Vec::new();
    for (file, text) in documents() {
        for block in blocks(&file, &text) {
            found.extend(if block.is_cron {
                jobs(&block)
            } else {
                examples(block)
            });
        }
        found.extend(
            spans(&text)
                .into_iter()
                .filter_map(|span| in_container(&file, span)),
        );
    }
    found
}

/// Returns the commands of a part of a crontab.
fn jobs(block: &Block) -> Vec<Example> {
    let mut settings = Vec::new();
    let mut found = Vec::new();
    for (number, line) in (block.first..).zip(&block.lines) {
        assert!(
            !line.contains('%'),
            "cron takes it for the end of the line: {line}"
        );
        let setting = line
            .split_once('=')
            .filter(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase()));
        if let Some((name, value)) = setting {
            settings.push((name.to_owned(), value.to_owned()));
            continue;
        }
        found.push(Example {
            place: format!("{}:{number}", block.file),
            surroundings: Surroundings::Cron(settings.clone()),
            line: without_schedule(line).to_owned(),
            output: None,
        });
    }
    found
}

/// Removes the five fields of a schedule.
fn without_schedule(line: &str) -> &str {
    let fields: Vec<&str> = line.splitn(6, ' ').collect();
    let is_time = |field: &&str| field.chars().all(|c| c.is_ascii_digit() || "*/,-".contains(c));
    match &fields[..] {
        [times @ .., command] if times.len() == 5 && times.iter().all(is_time) => command,
        _ => line,
    }
}

/// Parses a call of a container; `None` for another command, and for one that is not complete.
fn in_container(file: &str, span: &str) -> Option<Example> {
    let mut words = span.strip_prefix("podman run ")?.split(' ').peekable();
    let mut mounts = Vec::new();
    while let Some(option) = words.next_if(|word| word.starts_with('-')) {
        if option == "-v" {
            let (outside, inside) = words.next()?.split_once(':')?;
            let inside = inside.split(':').next().unwrap_or(inside);
            mounts.push((outside.to_owned(), inside.to_owned()));
        }
    }
    let _image = words.next().filter(|image| *image != "…")?;
    Some(Example {
        place: file.to_owned(),
        surroundings: Surroundings::Container(mounts),
        line: ["calipam"].into_iter().chain(words).collect::<Vec<_>>().join(" "),
        output: None,
    })
}

fn blocks(file: &str, text: &str) -> Vec<Block> {
    let (mut blocks, mut open, mut before) = (Vec::new(), None::<(bool, Block)>, "");
    for (number, line) in (1..).zip(text.lines()) {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take().filter(|(wanted, _)| *wanted).map(|(_, b)| b)),
            (Some(language), None) => {
                let wanted = language.is_empty() && !before.starts_with("<!-- story ");
                let block = Block {
                    file: file.to_owned(),
                    first: number + 1,
                    is_cron: before == CRON,
                    lines: Vec::new(),
                };
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
                found.push(of_person(place, line, Some(String::new())));
            }
            (
                None,
                Some(Example {
                    output: Some(output), ..
                }),
            ) if has_prompts => {
                output.extend([line, "\n"]);
            }
            (None, Some(last)) if goes_on => {
                last.line.truncate(last.line.len() - 1);
                last.line.push_str(&without_remark(line.trim_start()));
            }
            (None, _) if line.is_empty() || line.starts_with('#') => {}
            (None, _) => found.push(of_person(place, line, None)),
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
            found.push(of_person(place, line, None));
        }
    }
    found
}

fn of_person(place: String, line: &str, output: Option<String>) -> Example {
    Example {
        place,
        surroundings: Surroundings::Person,
        line: without_remark(line),
        output,
    }
}

/// Removes a remark, which is separated by two spaces.
fn without_remark(line: &str) -> String {
    let line = line.trim_end();
    line.split_once("  ")
        .map_or(line, |(line, _)| line)
        .trim_end()
        .to_owned()
}
