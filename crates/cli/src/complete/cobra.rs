//! What kubectl asks of a plugin, by the protocol of Cobra: one suggestion a line, what it means after a tab, and a
//! directive at the end.

use std::io::{self, Write};

use clap::{Arg, Command, ValueHint};
use clap_complete::engine;

use super::request::{Place, Request};
use crate::applet::Applet;

/// No space after the only suggestion.
const NO_SPACE: u8 = 2;
/// No files if there is no suggestion.
const NO_FILES: u8 = 4;
/// Directories, which the shell finds itself.
const DIRECTORIES: u8 = 16;
/// The order of the suggestions is kept.
const KEEP_ORDER: u8 = 32;
/// Files, which the shell finds itself, if there is no suggestion.
const FILES: u8 = 0;

/// Prints the suggestions for a line of kubectl.
pub(super) fn print(mut command: Command, request: &Request) -> io::Result<()> {
    command.build();
    let folder = std::env::current_dir().ok();
    let found = engine::complete(&mut command, request.words.clone(), request.index, folder.as_deref());
    let (option, begun) = split_option(request.current());
    let mut out = String::new();
    let mut open = true;
    let mut directive = NO_FILES | KEEP_ORDER;
    match place(&command, request) {
        // The shell knows better how names of files are written.
        Some(ValueHint::FilePath | ValueHint::AnyPath) => directive = FILES,
        Some(ValueHint::DirPath) => directive = DIRECTORIES,
        _ => {
            for candidate in found.unwrap_or_default() {
                let value = candidate.get_value().to_string_lossy();
                // kubectl's scripts hold the option back: they want the value alone.
                let value = value.strip_prefix(option).unwrap_or(&value);
                if value.contains(['\n', '\t']) || !value.starts_with(begun) {
                    continue;
                }
                let about = candidate.get_help().map(ToString::to_string).unwrap_or_default();
                out.push_str(value);
                if let Some(about) = about.lines().next() {
                    out.push('\t');
                    out.push_str(about);
                }
                out.push('\n');
                open &= value.ends_with(['/', '=', ',', '.']);
            }
            if open && !out.is_empty() {
                directive |= NO_SPACE;
            }
        }
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(format!("{out}:{directive}\n").as_bytes())?;
    stdout.flush()
}

/// `--name=` and what follows; nothing and the word where it is no such option.
fn split_option(word: &str) -> (&str, &str) {
    match word.split_once('=') {
        Some((name, value)) if name.starts_with("--") => (&word[..=name.len()], value),
        _ => ("", word),
    }
}

/// What kind of file is at the cursor, where its value has no suggestions of its own.
fn place(command: &Command, request: &Request) -> Option<ValueHint> {
    let arg = argument(command, request)?;
    let has_values = arg.get::<clap_complete::ArgValueCompleter>().is_some();
    (!has_values).then(|| arg.get_value_hint())
}

/// The argument whose value is at the cursor.
fn argument<'c>(command: &'c Command, request: &Request) -> Option<&'c Arg> {
    let Place { command, option: open, positionals } = request.walk(command, |_, _| {});
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

/// The files that make kubectl ask: name, and content of a script for `PATH`.
pub(crate) fn plugin_scripts() -> impl Iterator<Item = (&'static str, String)> {
    [Applet::KubectlIpam, Applet::KubectlCalico].into_iter().filter_map(|applet| {
        let text = format!(
            "#!/bin/sh\n# kubectl runs this to complete `{}`.\nexec {} __complete \"$@\"\n",
            applet.called_as(),
            applet.executable()
        );
        Some((applet.completer()?, text))
    })
}
