//! The words of a source file that paths are made of, without comments, texts and tests.

use std::iter::Peekable;
use std::str::Chars;

/// A part of a path or of a list of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Name(String),
    /// `::`
    Inside,
    /// Any other character, such as `{` and `;`.
    Sign(char),
}

impl Word {
    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self, Self::Name(own) if own == name)
    }
}

/// Splits a source file, and leaves out the items that only tests have.
pub(crate) fn words(text: &str) -> Vec<Word> {
    without_tests(split(text))
}

fn split(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(first) = rest.next() {
        match first {
            '/' if rest.peek() == Some(&'/') => skip_line(&mut rest),
            '/' if rest.peek() == Some(&'*') => skip_comment(&mut rest),
            '"' => skip_text(&mut rest),
            'r' if matches!(rest.peek(), Some('"' | '#')) => skip_raw_text(&mut rest),
            '\'' => skip_character(&mut rest),
            ':' if rest.peek() == Some(&':') => {
                rest.next();
                words.push(Word::Inside);
            }
            _ if is_of_name(first) => {
                let mut name = String::from(first);
                while let Some(next) = rest.next_if(|next| is_of_name(*next)) {
                    name.push(next);
                }
                words.push(Word::Name(name));
            }
            _ if first.is_whitespace() => {}
            sign => words.push(Word::Sign(sign)),
        }
    }
    words
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn skip_line(rest: &mut Peekable<Chars<'_>>) {
    while rest.next().is_some_and(|next| next != '\n') {}
}

fn skip_comment(rest: &mut Peekable<Chars<'_>>) {
    let mut before = ' ';
    for next in rest.skip(1) {
        if before == '*' && next == '/' {
            return;
        }
        before = next;
    }
}

fn skip_text(rest: &mut Peekable<Chars<'_>>) {
    while let Some(next) = rest.next() {
        match next {
            '\\' => drop(rest.next()),
            '"' => return,
            _ => {}
        }
    }
}

/// Skips `#"…"#` with any number of signs.
fn skip_raw_text(rest: &mut Peekable<Chars<'_>>) {
    let mut signs = 0;
    while rest.next_if_eq(&'#').is_some() {
        signs += 1;
    }
    if rest.next_if_eq(&'"').is_none() {
        // A raw name, such as `r#type`.
        return;
    }
    let mut ended = None;
    for next in rest.by_ref() {
        ended = match (next, ended) {
            ('"', _) => Some(0),
            ('#', Some(found)) => Some(found + 1),
            _ => None,
        };
        if ended == Some(signs) {
            return;
        }
    }
}

/// Skips a character such as `'"'`, but not the name of a lifetime.
fn skip_character(rest: &mut Peekable<Chars<'_>>) {
    let mut ahead = rest.clone();
    let is_escaped = ahead.next_if_eq(&'\\').is_some();
    ahead.next();
    if is_escaped {
        while rest.next() != Some('\\') {}
        rest.next();
        while rest.next().is_some_and(|next| next != '\'') {}
    } else if ahead.next() == Some('\'') {
        rest.nth(1);
    }
}

/// Leaves out each item after `#[cfg(test)]`.
fn without_tests(words: Vec<Word>) -> Vec<Word> {
    let of_tests = split("#[cfg(test)]");
    let mut kept = Vec::with_capacity(words.len());
    let mut rest = words.as_slice();
    while let Some((first, others)) = rest.split_first() {
        if rest.starts_with(&of_tests) {
            rest = after_item(&rest[of_tests.len()..]);
        } else {
            kept.push(first.clone());
            rest = others;
        }
    }
    kept
}

/// The words after the first item, which ends with a `;` or the last `}`.
fn after_item(words: &[Word]) -> &[Word] {
    let mut depth = 0_usize;
    for (place, word) in words.iter().enumerate() {
        match word {
            Word::Sign('{') => depth += 1,
            Word::Sign('}') => depth -= 1,
            _ => {}
        }
        let is_end = matches!(word, Word::Sign(';' | '}')) && depth == 0;
        if is_end {
            return &words[place + 1..];
        }
    }
    &[]
}
