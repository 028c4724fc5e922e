//! A request for suggestions: the words of a line, and the word to complete.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

use super::line::{self, Line};

/// An unfinished line.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    /// The words, beginning with the program.
    pub words: Vec<OsString>,
    /// The position of the word to complete.
    pub index: usize,
    /// True if the words are as typed, with `~` and variables not yet expanded.
    pub typed: bool,
}

impl Request {
    /// Reads a shell's request from the words after `--` and the variables of its script.
    pub(super) fn from_shell(shell: &str, words: &[OsString]) -> Self {
        if shell == "bash" {
            return Self::from_line(&line::parse_arguments(words));
        }

        let mut words = words.to_vec();
        let last_word = words.len().saturating_sub(1);
        let index = index_from_script().unwrap_or(last_word);
        // The word at the cursor is left out if it is empty.
        if words.len() <= index {
            words.push(OsString::new());
        }
        Self {
            words,
            index,
            typed: true,
        }
    }

    /// Reads bash's request from the line up to the cursor, so the last word is the one to complete.
    pub(super) fn from_line(line: &Line) -> Self {
        let words: Vec<OsString> = line.words.iter().map(OsString::from).collect();
        Self {
            index: words.len().saturating_sub(1),
            words,
            typed: true,
        }
    }

    /// Reads kubectl's request: the expanded words after the plugin. The last word is the one to complete.
    pub(super) fn from_words(words: &[OsString]) -> Self {
        let mut all = vec![OsString::from("kubectl")];
        all.extend_from_slice(words);
        if words.is_empty() {
            all.push(OsString::new());
        }
        Self {
            index: all.len() - 1,
            words: all,
            typed: false,
        }
    }

    /// Returns the word to complete, up to the cursor.
    pub(super) fn current(&self) -> &str {
        self.words
            .get(self.index)
            .and_then(|word| word.to_str())
            .unwrap_or_default()
    }

    /// Returns the words between the program and the one to complete.
    pub(super) fn words_before(&self) -> &[OsString] {
        self.words.get(1..self.index).unwrap_or_default()
    }

    /// Expands `~/` or a variable at the beginning of a value, unless the shell has done so.
    pub(super) fn expanded(&self, value: &OsStr) -> OsString {
        // kubectl passes on words that its shell has expanded.
        if !self.typed {
            return value.to_owned();
        }
        let Some(text) = value.to_str() else {
            return value.to_owned();
        };
        if let Some(path) = text.strip_prefix("~/")
            && let Some(home) = std::env::home_dir()
        {
            return home.join(path).into_os_string();
        }
        let Some(reference) = text.strip_prefix('$') else {
            return value.to_owned();
        };

        let (name, rest) = split_variable(reference);
        let mut expanded = std::env::var_os(name).unwrap_or_default();
        expanded.push(rest);
        expanded
    }

    /// Parses the words before the cursor, and calls `on_option` with each option and its value. Ignores unknown
    /// options, since the line is not finished.
    pub(super) fn walk<'c>(
        &self,
        command: &'c Command,
        mut on_option: impl FnMut(&'c Arg, &OsStr),
    ) -> Place<'c> {
        let mut place = Place::after(command);
        let mut is_after_dashes = false;
        for word in self.words_before() {
            // The word before was an option, and this one is its value.
            if let Some(option) = place.option.take() {
                on_option(option, word);
                continue;
            }
            let text = word.to_string_lossy();
            if is_after_dashes {
                // A second `--` is an argument like any other.
                place.positionals += 1;
            } else if text == "--" {
                is_after_dashes = true;
            } else if !text.starts_with('-') || text == "-" {
                match place.command.find_subcommand(word) {
                    Some(subcommand) => place = Place::after(subcommand),
                    None => place.positionals += 1,
                }
            } else if let Some((option, value)) = find_option(place.command, &text) {
                let next_word_is_value = value.is_none() && option.get_action().takes_values();
                if next_word_is_value {
                    place.option = Some(option);
                } else {
                    on_option(option, OsStr::new(value.unwrap_or_default()));
                }
            }
        }
        place
    }
}

/// Returns the position of the word at the cursor, from the variable that the shell's script sets.
fn index_from_script() -> Option<usize> {
    let index = std::env::var("_CLAP_COMPLETE_INDEX").ok()?;
    index.parse().ok()
}

/// Splits `NAME…` or `{NAME}…`, which followed a `$`, into the name of the variable and the rest.
fn split_variable(reference: &str) -> (&str, &str) {
    if let Some(braced) = reference.strip_prefix('{')
        && let Some((name, rest)) = braced.split_once('}')
    {
        return (name, rest);
    }
    let is_part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = reference.find(|c| !is_part_of_name(c)).unwrap_or(reference.len());
    reference.split_at(end)
}

/// The position of the cursor in the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'c> {
    /// The command before the cursor.
    pub command: &'c Command,
    /// The option whose value is at the cursor.
    pub option: Option<&'c Arg>,
    /// The number of positional arguments before the cursor.
    pub positionals: usize,
}

impl<'c> Place<'c> {
    /// Returns the position after a command, before its arguments.
    fn after(command: &'c Command) -> Self {
        Self {
            command,
            option: None,
            positionals: 0,
        }
    }
}

/// Returns the option in a word, and its value if that is in the same word: `--name`, `--name=value`, `-n`, `-nvalue`,
/// `-qn`. `None` if the command has no such option.
fn find_option<'c, 'w>(command: &'c Command, word: &'w str) -> Option<(&'c Arg, Option<&'w str>)> {
    match word.strip_prefix("--") {
        Some(long) => find_long_option(command, long),
        None => last_short_option(command, word.strip_prefix('-')?),
    }
}

/// Returns the option in `name` or `name=value`, which followed two dashes, and its value.
fn find_long_option<'c, 'w>(command: &'c Command, word: &'w str) -> Option<(&'c Arg, Option<&'w str>)> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let is_named = |arg: &&Arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(name) || aliases.contains(&name)
    };
    let arg = command.get_arguments().find(is_named)?;
    Some((arg, value))
}

/// Returns the last short option in `n`, `qn` or `nvalue`, which followed a dash, and its value.
fn last_short_option<'c, 'w>(command: &'c Command, word: &'w str) -> Option<(&'c Arg, Option<&'w str>)> {
    let mut last = None;
    let mut rest = word.chars();
    while let Some(c) = rest.next() {
        let arg = command.get_arguments().find(|arg| arg.get_short() == Some(c))?;
        // The characters after an option that takes a value are its value.
        if arg.get_action().takes_values() {
            let value = match rest.as_str() {
                "" => None,
                text => Some(text.strip_prefix('=').unwrap_or(text)),
            };
            return Some((arg, value));
        }
        last = Some((arg, None));
    }
    last
}
