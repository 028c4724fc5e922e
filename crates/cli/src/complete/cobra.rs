//! Completion for kubectl in Cobra's protocol: each line has a suggestion, a tab and a description; the last line has a
//! directive.

use std::io::{self, Write};

use clap::{Arg, Command, ValueHint};
use clap_complete::engine::{self, CompletionCandidate};

use super::request::{Place, Request};
use crate::applet::Applet;

/// The shell adds no space after the only suggestion.
const NO_SPACE: u8 = 2;
/// If there are no suggestions, the shell does not suggest files.
const NO_FILES: u8 = 4;
/// The shell suggests directories.
const DIRECTORIES: u8 = 16;
/// The shell does not sort the suggestions.
const KEEP_ORDER: u8 = 32;
/// If there are no suggestions, the shell suggests files.
const FILES: u8 = 0;

/// Prints the suggestions for a kubectl line: a suggestion with its description on each line, and a last line with the
/// number that tells kubectl's script what to do with them.
pub(super) fn print(mut command: Command, request: &Request) -> io::Result<()> {
    command.build();
    let folder = std::env::current_dir().ok();
    let found = engine::complete(
        &mut command,
        request.words.clone(),
        request.index,
        folder.as_deref(),
    );
    let (lines, directive) = match value_hint(&command, request) {
        // The shell suggests files itself, since it quotes their names better.
        Some(ValueHint::FilePath | ValueHint::AnyPath) => (String::new(), FILES),
        Some(ValueHint::DirPath) => (String::new(), DIRECTORIES),
        _ => list_suggestions(&found.unwrap_or_default(), request.current()),
    };
    let mut stdout = io::stdout().lock();
    stdout.write_all(format!("{lines}:{directive}\n").as_bytes())?;
    stdout.flush()
}

/// Formats the suggestions for a word, one on each line, and returns them with their directive.
fn list_suggestions(candidates: &[CompletionCandidate], word: &str) -> (String, u8) {
    let (option, typed) = split_option(word);
    let mut lines = String::new();
    let mut are_incomplete = true;
    for candidate in candidates {
        let value = candidate.get_value().to_string_lossy();
        // kubectl's scripts add the option again, so they expect only the value.
        let value = value.strip_prefix(option).unwrap_or(&value);
        // A line break or a tab would begin another suggestion or its description.
        if value.contains(['\n', '\t']) || !value.starts_with(typed) {
            continue;
        }
        lines.push_str(value);
        let about = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        if let Some(about) = about.lines().next() {
            lines.push('\t');
            lines.push_str(about);
        }
        lines.push('\n');
        // After these characters, the user goes on typing the same word.
        are_incomplete &= value.ends_with(['/', '=', ',', '.']);
    }

    let mut directive = NO_FILES | KEEP_ORDER;
    if are_incomplete && !lines.is_empty() {
        directive |= NO_SPACE;
    }
    (lines, directive)
}

/// Splits `--name=value` after the `=`. For any other word, the first part is empty.
fn split_option(word: &str) -> (&str, &str) {
    match word.split_once('=') {
        Some((name, value)) if name.starts_with("--") => (&word[..=name.len()], value),
        _ => ("", word),
    }
}

/// Returns the value hint, such as a kind of file, of the argument at the cursor, unless that argument has its own
/// suggestions.
fn value_hint(command: &Command, request: &Request) -> Option<ValueHint> {
    let arg = argument(command, request)?;
    if arg.get::<clap_complete::ArgValueCompleter>().is_some() {
        return None;
    }
    Some(arg.get_value_hint())
}

/// Returns the argument whose value is at the cursor: an option, in this word or the one before, or a positional
/// argument. `None` if there is none.
fn argument<'c>(command: &'c Command, request: &Request) -> Option<&'c Arg> {
    let Place {
        command,
        option: open,
        positionals,
    } = request.walk(command, |_, _| {});
    let current = request.current();
    let (option, _) = split_option(current);
    if let Some(name) = option.strip_prefix("--").and_then(|name| name.strip_suffix('=')) {
        return command.get_arguments().find(|arg| arg.get_long() == Some(name));
    }
    if open.is_some() || current.starts_with('-') {
        return open;
    }
    command.get_positionals().nth(positionals)
}

/// Returns the name and content of each script that kubectl looks for in `PATH` and runs for completion.
pub(crate) fn plugin_scripts() -> impl Iterator<Item = (&'static str, String)> {
    [Applet::KubectlIpam, Applet::KubectlCalico]
        .into_iter()
        .filter_map(|applet| {
            let text = format!(
                "#!/bin/sh\n# kubectl runs this to complete `{}`.\nexec {} __complete \"$@\"\n",
                applet.called_as(),
                applet.executable()
            );
            Some((applet.completer()?, text))
        })
}
