//! Checks that the commands and options in the running text of documents exist.

use std::collections::BTreeMap;

use super::document::documents;
use crate::cli::help::commands;
use crate::cli::program::calipam;

/// The beginnings of commands in running text.
const NAMES: [&str; 4] = ["kubectl calico ipam ", "kubectl ipam ", "calipam ", "ipam "];

/// Returns the code spans on one line, outside of code blocks.
pub(super) fn spans(text: &str) -> Vec<&str> {
    let mut in_block = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            found.extend(line.split('`').skip(1).step_by(2));
        }
    }
    found
}

#[test]
fn commands_in_texts_and_their_options_exist() {
    let help = |name: String| (name.clone(), calipam(&format!("help {name}")).stdout);
    let help: BTreeMap<String, String> = commands().into_iter().map(help).collect();
    let mut seen = 0;
    for (file, text) in documents() {
        for span in spans(&text) {
            let Some(rest) = NAMES.iter().find_map(|name| span.strip_prefix(name)) else {
                continue;
            };
            let words = rest
                .split([' ', '=', '[', ']', '|', ','])
                .filter(|word| !word.is_empty());
            let words: Vec<&str> = words.collect();
            let is_name = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            let Some(command) = words.first().filter(is_name) else {
                continue;
            };
            if command.starts_with('-') || *command == "help" || *command == "ipam" {
                continue;
            }
            let own = help
                .get(*command)
                .unwrap_or_else(|| panic!("{file}: `{span}` names no command"));
            for option in words.iter().filter(|word| word.starts_with("--")) {
                // The options that calipam shares with kubectl are only in the help of the program, not in that of each
                // command.
                let mut all = [own, &help[""]]
                    .into_iter()
                    .flat_map(|help| help.split([' ', '\n', ',']));
                let is_there = all.any(|word| word == *option);
                assert!(is_there, "{file}: `{span}`: {command} has no option {option}");
            }
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} were found");
}
