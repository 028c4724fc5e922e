//! A bash command line. bash also splits words at `=` and `:`, and passes them with their quotes. Therefore the script
//! passes the whole line, and this module splits it into words. Suggestions leave out the part of a word that bash does
//! not replace.

use std::ffi::OsString;

/// Characters that are special in bash.
const SPECIAL: &str = " \t\"'\\$&;|<>()*?[]{}#!`";

/// A line up to the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// The words without quotes. The last one is at the cursor, and can be empty.
    pub words: Vec<String>,
    /// The end of the last word, as typed. bash replaces it with a suggestion.
    replaced: String,
    /// The last word, as typed.
    typed: String,
    /// The quote that is open at the cursor.
    quote: Option<char>,
}

/// Reads the script's two arguments: the line up to the cursor, and the part that bash replaces.
pub(super) fn parse_arguments(arguments: &[OsString]) -> Line {
    let mut line = split(text_at(arguments, 0));
    line.replaced = text_at(arguments, 1).to_owned();
    line
}

/// Returns an argument as text; empty if it is missing or not valid Unicode.
fn text_at(arguments: &[OsString], position: usize) -> &str {
    let Some(argument) = arguments.get(position) else {
        return "";
    };
    argument.to_str().unwrap_or_default()
}

/// Splits a line into words as a shell does, without quotes and backslashes. The last word, at the cursor, can be
/// empty, or have an open quote.
fn split(text: &str) -> Line {
    let mut line = Line {
        words: vec![String::new()],
        ..Line::default()
    };
    let mut is_escaped = false;
    let mut has_word_begun = false;
    for c in text.chars() {
        let is_in_word = is_escaped || line.quote.is_some() || !c.is_ascii_whitespace();
        if is_in_word {
            has_word_begun = true;
            line.typed.push(c);
            is_escaped = line.read_char(c, is_escaped);
        } else if has_word_begun {
            // Further blanks between two words begin no other word.
            has_word_begun = false;
            line.words.push(String::new());
            line.typed.clear();
        }
    }
    line
}

impl Line {
    /// Reads a character of the last word. Returns true if it is a backslash that escapes the next character.
    fn read_char(&mut self, c: char, is_escaped: bool) -> bool {
        let word = self.words.last_mut().expect("there is always a last word");
        if is_escaped {
            // In double quotes, a backslash escapes only some characters, and otherwise stays.
            if self.quote.is_some() && !"\"\\$`".contains(c) {
                word.push('\\');
            }
            word.push(c);
            return false;
        }
        // In single quotes, a backslash is a plain character.
        if c == '\\' && self.quote != Some('\'') {
            return true;
        }
        if self.quote == Some(c) {
            self.quote = None;
        } else if self.quote.is_none() && ['"', '\''].contains(&c) {
            self.quote = Some(c);
        } else {
            word.push(c);
        }
        false
    }

    /// Formats a suggestion for bash to insert: quoted, and without the part that bash keeps.
    pub(super) fn inserted(&self, suggestion: &str) -> String {
        let kept_text = self
            .typed
            .strip_suffix(self.replaced.as_str())
            .unwrap_or_default();
        let kept_word = split(kept_text).words.pop().unwrap_or_default();
        let rest = suggestion.strip_prefix(&*kept_word).unwrap_or(suggestion);
        match self.quote {
            Some('\'') => rest.to_owned(),
            Some(_) => escape(rest, "\"\\$`"),
            // A tilde is not escaped, so that bash expands it at the beginning of a word.
            None => escape(rest, SPECIAL),
        }
    }
}

/// Puts a backslash before special characters.
fn escape(text: &str, special: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if special.contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        split(text).words
    }

    #[test]
    fn a_line_is_split_as_bash_would_run_it() {
        assert_eq!(words("calipam check "), ["calipam", "check", ""]);
        let expected = ["calipam", "--context", "a b", "--node", "n"];
        assert_eq!(words("calipam  --context 'a b' --node n"), expected);
        assert_eq!(words("calipam --rule=leaked,or"), ["calipam", "--rule=leaked,or"]);
        assert_eq!(
            words(r#"calipam a\ b "c\"d\e" '' x"#),
            ["calipam", "a b", "c\"d\\e", "", "x"]
        );
        assert_eq!(
            words("calipam https://10.0.0.5:2379 \"no"),
            ["calipam", "https://10.0.0.5:2379", "no"]
        );
        assert_eq!(words(""), [""]);
        assert_eq!(words("calipam \\"), ["calipam", ""]);
    }

    #[test]
    fn text_that_bash_keeps_is_not_inserted_again() {
        let inserted = |line: &str, replaced: &str, suggestion: &str| {
            parse_arguments(&[line.into(), replaced.into()]).inserted(suggestion)
        };
        assert_eq!(
            inserted("calipam --rule=lea", "lea", "--rule=leaked-address"),
            "leaked-address"
        );
        assert_eq!(
            inserted("calipam --rule=", "", "--rule=leaked-address"),
            "leaked-address"
        );
        assert_eq!(inserted("calipam sh", "sh", "show"), "show");
        assert_eq!(inserted("calipam ", "", "show"), "show");
        assert_eq!(inserted("calipam --ip fd00::", "", "fd00::7"), "7");
        assert_eq!(
            inserted("calipam --context my\\ c", "my\\ c", "my ctx"),
            "my\\ ctx"
        );
        assert_eq!(inserted("calipam --context 'my c", "my c", "my ctx"), "my ctx");
        assert_eq!(inserted("calipam --context \"a$", "a$", "a$b"), "a\\$b");
        assert_eq!(inserted("calipam -c ~/x", "~/x", "~/x y"), "~/x\\ y");
    }
}
