//! The tokens of the selector language.

use std::fmt;

use super::SelectorError;

/// Maximum length of labels in bytes.
const MAX_LABEL: usize = 512;

/// A comparison of a label's value with a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Contains,
    StartsWith,
    EndsWith,
}

impl Comparison {
    pub(super) fn holds(self, found: &str, wanted: &str) -> bool {
        match self {
            Self::Equal => found == wanted,
            Self::NotEqual => found != wanted,
            Self::Contains => found.contains(wanted),
            Self::StartsWith => found.starts_with(wanted),
            Self::EndsWith => found.ends_with(wanted),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Label(String),
    Text(String),
    Has(String),
    /// `all()` or `global()`, which has the same meaning here.
    All,
    Compare(Comparison),
    In,
    NotIn,
    Not,
    And,
    Or,
    Open,
    Close,
    OpenSet,
    CloseSet,
    Comma,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(label) => return write!(f, "the label {label:?}"),
            Self::Text(text) => return write!(f, "the string {text:?}"),
            Self::Has(label) => return write!(f, "`has({label})`"),
            Self::All => return f.write_str("`all()`"),
            _ => {}
        }
        let (signs, words) = (SIGNS, WORDS);
        let signs = signs.iter().map(|(sign, token)| (std::slice::from_ref(sign), token));
        let words = words.iter().map(|(parts, token)| (*parts, token));
        let parts = signs.chain(words).find(|(_, token)| *token == self).map(|(parts, _)| parts);
        write!(f, "`{}`", parts.unwrap_or_default().join(" "))
    }
}

/// Operators and signs. A sign that is the beginning of longer signs comes after them.
const SIGNS: [(&str, Token); 10] = [
    ("==", Token::Compare(Comparison::Equal)),
    ("!=", Token::Compare(Comparison::NotEqual)),
    ("&&", Token::And),
    ("||", Token::Or),
    ("!", Token::Not),
    ("(", Token::Open),
    (")", Token::Close),
    ("{", Token::OpenSet),
    ("}", Token::CloseSet),
    (",", Token::Comma),
];

/// Operators that are words. They are operators only after a label; elsewhere they are labels.
const WORDS: [(&[&str], Token); 5] = [
    (&["contains"], Token::Compare(Comparison::Contains)),
    (&["starts", "with"], Token::Compare(Comparison::StartsWith)),
    (&["ends", "with"], Token::Compare(Comparison::EndsWith)),
    (&["not", "in"], Token::NotIn),
    (&["in"], Token::In),
];

pub(super) fn tokenize(text: &str) -> Result<Vec<Token>, SelectorError> {
    let mut tokens = Vec::new();
    let mut rest = skip_blanks(text);
    while let Some(first) = rest.chars().next() {
        let (token, behind) = if let Some((sign, token)) = SIGNS.iter().find(|(s, _)| rest.starts_with(s)) {
            (token.clone(), &rest[sign.len()..])
        } else if first == '"' || first == '\'' {
            let (value, behind) = rest[1..]
                .split_once(first)
                .ok_or_else(|| SelectorError::Invalid("a string has no closing quote".into()))?;
            (Token::Text(value.to_owned()), behind)
        } else if let Some(Token::Label(label)) = tokens.last() {
            word_operator(rest)
                .ok_or_else(|| SelectorError::Invalid(format!("no operator follows the label {label:?}")))?
        } else {
            function_or_label(rest)?
        };
        tokens.push(token);
        rest = skip_blanks(behind);
    }
    Ok(tokens)
}

fn skip_blanks(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// Reads an operator that is a word. Its parts need no blanks between them (`startswith`, `notin`), but no label
/// character may follow the last one.
fn word_operator(text: &str) -> Option<(Token, &str)> {
    WORDS.iter().find_map(|(parts, token)| {
        let (last, before) = parts.split_last()?;
        let rest = before.iter().try_fold(text, |rest, part| rest.strip_prefix(part).map(skip_blanks))?;
        let rest = rest.strip_prefix(last)?;
        (!rest.starts_with(is_label_char)).then(|| (token.clone(), rest))
    })
}

fn function_or_label(text: &str) -> Result<(Token, &str), SelectorError> {
    for name in ["all", "global"] {
        if let Some(rest) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix('(')) {
            return Ok((Token::All, close(rest, name)?));
        }
    }
    if let Some(rest) = text.strip_prefix("has(") {
        let (label, rest) = cut_label(skip_blanks(rest))?;
        return Ok((Token::Has(label), close(rest, "has")?));
    }
    let (label, rest) = cut_label(text)?;
    Ok((Token::Label(label), rest))
}

/// The text after the `)` that ends a function.
fn close<'a>(text: &'a str, name: &str) -> Result<&'a str, SelectorError> {
    skip_blanks(text)
        .strip_prefix(')')
        .ok_or_else(|| SelectorError::Invalid(format!("`{name}(` has no closing `)`")))
}

fn cut_label(text: &str) -> Result<(String, &str), SelectorError> {
    let end = text.find(|c| !is_label_char(c)).unwrap_or(text.len());
    match end {
        0 => Err(match text.chars().next() {
            Some(c) => SelectorError::unexpected(format_args!("{c:?}"), "a label"),
            None => SelectorError::ends("a label"),
        }),
        end if end > MAX_LABEL => {
            Err(SelectorError::Invalid(format!("a label is longer than {MAX_LABEL} bytes")))
        }
        end => Ok((text[..end].to_owned(), &text[end..])),
    }
}

fn is_label_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}
