//! `__complete`: suggestions for the word that is being written, as kubectl wants them from a plugin.

use clap::{Arg, Command};

use crate::args::{self, CompleteArgs};
use crate::exit::{Failure, Outcome};
use crate::output::Console;

/// kubectl's directive for "nothing but these".
const NO_FILES: u8 = 4;
/// kubectl's directive for "or a file".
const FILES: u8 = 0;

/// Prints suggestions, one a line, and a directive.
pub fn run(args: &CompleteArgs, console: &Console) -> Result<Outcome, Failure> {
    let mut command = args::command();
    command.build();
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let (suggestions, directive) = suggest(&command, &words);
    console.data(|out| {
        for (word, about) in suggestions {
            writeln!(out, "{word}\t{about}")?;
        }
        writeln!(out, ":{directive}")
    })?;
    Ok(Outcome::Clean)
}

/// Suggestions with what they mean, and kubectl's directive.
fn suggest(command: &Command, words: &[&str]) -> (Vec<(String, String)>, u8) {
    let Some((current, before)) = words.split_last() else {
        return (subcommands(command), NO_FILES);
    };
    let mut command = command;
    let mut open = None;
    for word in before {
        if open.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            open = option(command, word).filter(|arg| takes_value(arg) && !word.contains('='));
        } else if let Some(sub) = command.find_subcommand(word) {
            command = sub;
        }
    }
    let (prefix, value_of) = match current.split_once('=') {
        Some((name, _)) if name.starts_with("--") => (format!("{name}="), option(command, name)),
        _ => (String::new(), open),
    };
    let mut all = match value_of {
        Some(arg) => values(arg, &prefix),
        None if current.starts_with('-') => options(command),
        None if command.has_subcommands() => subcommands(command),
        None => command.get_positionals().flat_map(|arg| values(arg, "")).collect(),
    };
    let directive = if all.is_empty() { FILES } else { NO_FILES };
    all.retain(|(word, _)| word.starts_with(current));
    (all, directive)
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

fn option<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    command.get_arguments().find(|arg| match name.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => name.strip_prefix('-').is_some_and(|s| arg.get_short() == s.chars().next()),
    })
}

fn options(command: &Command) -> Vec<(String, String)> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let pair = |arg: &Arg| Some((format!("--{}", arg.get_long()?), about(arg.get_help())));
    shown.filter_map(pair).collect()
}

fn subcommands(command: &Command) -> Vec<(String, String)> {
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    shown.map(|sub| (sub.get_name().to_owned(), about(sub.get_about()))).collect()
}

fn values(arg: &Arg, prefix: &str) -> Vec<(String, String)> {
    let values = arg.get_possible_values();
    values.iter().map(|value| (format!("{prefix}{}", value.get_name()), about(value.get_help()))).collect()
}

fn about(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suggested(words: &[&str]) -> (Vec<String>, u8) {
        let mut command = args::command();
        command.build();
        let (all, directive) = suggest(&command, words);
        (all.into_iter().map(|(word, _)| word).collect(), directive)
    }

    #[test]
    fn commands_options_and_values() {
        assert_eq!(suggested(&["sh"]), (vec!["show".to_owned()], NO_FILES));
        assert_eq!(suggested(&["check", "--fail"]), (vec!["--fail-on".to_owned()], NO_FILES));
        assert_eq!(suggested(&["check", "--fail-on", "w"]), (vec!["warning".to_owned()], NO_FILES));
        assert_eq!(suggested(&["check", "--fail-on=w"]), (vec!["--fail-on=warning".to_owned()], NO_FILES));
        assert_eq!(suggested(&["check", "--rule", "leak"]), (vec!["leaked-address".to_owned()], NO_FILES));
        assert_eq!(suggested(&["explain", "orphan"]), (vec!["orphan-handle".to_owned()], NO_FILES));
        assert_eq!(suggested(&["-o", "y"]), (vec!["yaml".to_owned()], NO_FILES));
        assert_eq!(suggested(&["check", "--datastore", "x"]), (vec![], FILES));
    }

    #[test]
    fn hidden_things_are_not_suggested() {
        let (all, _) = suggested(&[""]);
        assert!(
            all.contains(&"check".to_owned()) && !all.iter().any(|word| word.starts_with('_')),
            "{all:?}"
        );
        assert!(!all.contains(&"ipam".to_owned()));
    }
}
