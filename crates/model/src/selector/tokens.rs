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
    /// Compares the value of a label with the one of the selector.
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
    All,
    /// `global()`, which has the same meaning as `all()` here.
    Global,
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
    /// The end of the selector.
    End,
}

impl fmt::Display for Token {
    /// Prints the token as Calico's errors do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, value) = match self {
            Self::Label(label) => ("Label", label.as_str()),
            Self::Text(text) => ("StringLiteral", text.as_str()),
            Self::Has(label) => ("Has", label.as_str()),
            Self::All => ("All", ""),
            Self::Global => ("Global", ""),
            Self::Compare(Comparison::Equal) => ("Eq", ""),
            Self::Compare(Comparison::NotEqual) => ("Ne", ""),
            Self::Compare(Comparison::Contains) => ("Contains", ""),
            Self::Compare(Comparison::StartsWith) => ("StartsWith", ""),
            Self::Compare(Comparison::EndsWith) => ("EndsWith", ""),
            Self::In => ("In", ""),
            Self::NotIn => ("NotIn", ""),
            Self::Not => ("Not", ""),
            Self::And => ("And", ""),
            Self::Or => ("Or", ""),
            Self::Open => ("LParen", ""),
            Self::Close => ("RParen", ""),
            Self::OpenSet => ("LBrace", ""),
            Self::CloseSet => ("RBrace", ""),
            Self::Comma => ("Comma", ""),
            Self::End => ("EOF", ""),
        };
        write!(f, "Tok{kind}({value})")
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

/// Signs that Calico accepts only twice in a row, or before `=`.
const HALF_SIGNS: [(char, &str); 3] = [('=', "=="), ('&', "&&"), ('|', "||")];

/// Splits a selector into tokens, the last of which is [`Token::End`].
///
/// # Errors
/// Those of Calico's tokenizer, in the same words.
pub(super) fn tokenize(text: &str) -> Result<Vec<Token>, SelectorError> {
    let mut tokens = Vec::new();
    let mut rest = skip_blanks(text);
    while let Some(first) = rest.chars().next() {
        let (token, behind) = if let Some((sign, token)) = SIGNS.iter().find(|(s, _)| rest.starts_with(s)) {
            (token.clone(), &rest[sign.len()..])
        } else if let Some((_, whole)) = HALF_SIGNS.iter().find(|(half, _)| *half == first) {
            return Err(SelectorError::Invalid(format!("expected {whole}")));
        } else if first == '"' || first == '\'' {
            let (value, behind) = rest[1..]
                .split_once(first)
                .ok_or_else(|| SelectorError::Invalid("unterminated string".into()))?;
            (Token::Text(value.to_owned()), behind)
        } else if let Some(Token::Label(label)) = tokens.last() {
            word_operator(rest)
                .ok_or_else(|| SelectorError::Invalid(format!("expected operator after label {label:?}")))?
        } else {
            function_or_label(rest)?
        };
        tokens.push(token);
        rest = skip_blanks(behind);
    }
    tokens.push(Token::End);
    Ok(tokens)
}

fn skip_blanks(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// Reads an operator that is a word. Its parts need no blanks between them (`startswith`, `notin`), but no label
/// character may follow the last one.
fn word_operator(text: &str) -> Option<(Token, &str)> {
    for (parts, token) in WORDS.iter() {
        if let Some(rest) = after_words(text, parts) {
            return Some((token.clone(), rest));
        }
    }
    None
}

/// Returns the text after these words, with or without blanks between them; `None` if it begins with others.
fn after_words<'t>(text: &'t str, words: &[&str]) -> Option<&'t str> {
    let (last, before) = words.split_last()?;
    let mut rest = text;
    for word in before {
        rest = skip_blanks(rest.strip_prefix(word)?);
    }
    let rest = rest.strip_prefix(last)?;
    (!rest.starts_with(is_label_char)).then_some(rest)
}

/// Reads `has(…)`, `all()`, `global()` or a label.
fn function_or_label(text: &str) -> Result<(Token, &str), SelectorError> {
    if let Some(rest) = text.strip_prefix("has(") {
        let (label, rest) = cut_label(skip_blanks(rest))?;
        return Ok((Token::Has(label), close(rest, "has")?));
    }
    for (name, token) in [("all", Token::All), ("global", Token::Global)] {
        if let Some(rest) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix('(')) {
            return Ok((token, close(rest, name)?));
        }
    }
    let (label, rest) = cut_label(text)?;
    Ok((Token::Label(label), rest))
}

/// The text after the `)` that ends a function.
fn close<'a>(text: &'a str, name: &str) -> Result<&'a str, SelectorError> {
    skip_blanks(text)
        .strip_prefix(')')
        .ok_or_else(|| SelectorError::Invalid(format!("no closing ')' after {name}(")))
}

/// Reads a label, and returns the rest of the text.
fn cut_label(text: &str) -> Result<(String, &str), SelectorError> {
    let end = text.find(|c| !is_label_char(c)).unwrap_or(text.len());
    let (label, rest) = text.split_at(end);
    if label.is_empty() {
        return Err(SelectorError::Invalid("expected identifier".into()));
    }
    if label.len() > MAX_LABEL {
        return Err(SelectorError::Invalid(format!("label too long: {label}")));
    }
    Ok((label.to_owned(), rest))
}

fn is_label_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}
