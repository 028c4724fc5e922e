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
    while !rest.is_empty() {
        let (token, after_token) = read_token(rest, tokens.last())?;
        tokens.push(token);
        rest = skip_blanks(after_token);
    }
    tokens.push(Token::End);
    Ok(tokens)
}

/// Reads the token at the start of a text, and returns the rest of the text. A word is an operator if the token before
/// it is a label.
fn read_token<'t>(text: &'t str, previous: Option<&Token>) -> Result<(Token, &'t str), SelectorError> {
    for (sign, token) in SIGNS {
        if let Some(rest) = text.strip_prefix(sign) {
            return Ok((token, rest));
        }
    }
    for (half, sign) in HALF_SIGNS {
        if text.starts_with(half) {
            return Err(SelectorError::Invalid(format!("expected {sign}")));
        }
    }
    for quote in ['"', '\''] {
        if let Some(quoted) = text.strip_prefix(quote) {
            let Some((value, rest)) = quoted.split_once(quote) else {
                return Err(SelectorError::Invalid("unterminated string".into()));
            };
            return Ok((Token::Text(value.to_owned()), rest));
        }
    }

    let Some(Token::Label(label)) = previous else {
        return read_function_or_label(text);
    };
    read_word_operator(text)
        .ok_or_else(|| SelectorError::Invalid(format!("expected operator after label {label:?}")))
}

fn skip_blanks(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// Reads an operator that is a word. Its parts need no blanks between them (`startswith`, `notin`), but no label
/// character may follow the last one.
fn read_word_operator(text: &str) -> Option<(Token, &str)> {
    for (words, token) in WORDS {
        if let Some(rest) = strip_words(text, words) {
            return Some((token, rest));
        }
    }
    None
}

/// Returns the text after these words, with or without blanks between them; `None` if it begins with others.
fn strip_words<'t>(text: &'t str, words: &[&str]) -> Option<&'t str> {
    let (last_word, first_words) = words.split_last()?;
    let mut rest = text;
    for word in first_words {
        rest = skip_blanks(rest.strip_prefix(word)?);
    }
    rest = rest.strip_prefix(last_word)?;
    if rest.starts_with(is_label_char) {
        return None;
    }
    Some(rest)
}

/// Reads `has(…)`, `all()`, `global()` or a label.
fn read_function_or_label(text: &str) -> Result<(Token, &str), SelectorError> {
    if let Some(argument) = text.strip_prefix("has(") {
        let (label, rest) = read_label(skip_blanks(argument))?;
        return Ok((Token::Has(label), close_function(rest, "has")?));
    }
    for (name, token) in [("all", Token::All), ("global", Token::Global)] {
        if let Some(rest) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix('(')) {
            return Ok((token, close_function(rest, name)?));
        }
    }
    let (label, rest) = read_label(text)?;
    Ok((Token::Label(label), rest))
}

/// Returns the text after the `)` that ends a function.
fn close_function<'a>(text: &'a str, name: &str) -> Result<&'a str, SelectorError> {
    skip_blanks(text)
        .strip_prefix(')')
        .ok_or_else(|| SelectorError::Invalid(format!("no closing ')' after {name}(")))
}

/// Reads a label, and returns the rest of the text.
fn read_label(text: &str) -> Result<(String, &str), SelectorError> {
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
