//! The part of Calico's selector language that pools use (facts 1.7, 3.4).
//!
//! `all()`, `global()`, `has(k)`, `k == "v"`, `k != "v"`, `k in {"a", "b"}`, `k not in {…}`,
//! `k contains "v"`, `k starts with "v"`, `k ends with "v"`, combined with `!`, `&&`, `||` and parentheses;
//! `&&` binds more tightly than `||`. Strings are in single or double quotes and have no escapes.

use std::collections::BTreeMap;
use std::fmt::Display;

mod tokens;

use self::tokens::{Comparison, Token, tokenize};

/// Maximum depth of parentheses. Calico has no such limit; no real selector comes near it.
const MAX_DEPTH: usize = 100;

/// A parsed selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Node);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    All,
    Has(String),
    Compare(String, Comparison, String),
    In(String, Vec<String>),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
}

impl Selector {
    /// Reads a selector; an empty one selects everything. Rejects what Calico rejects, and nesting that is too deep.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { tokens: tokenize(text)?.into_iter().peekable() };
        if parser.tokens.peek().is_none() {
            return Ok(Self(Node::All));
        }
        let node = parser.alternatives(0)?;
        match parser.tokens.next() {
            None => Ok(Self(node)),
            Some(token) => Err(SelectorError::unexpected(token, "`&&`, `||` or the end")),
        }
    }

    /// True for selectors such as `all()` and "", which ignore the labels.
    pub fn selects_all(&self) -> bool {
        self.0 == Node::All
    }

    /// True if the selector selects an object with these labels. A missing label satisfies `!=` and `not in`, but no
    /// other comparison.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.matches(labels)
    }
}

impl Node {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::All => true,
            Self::Has(label) => labels.contains_key(label),
            Self::Compare(label, Comparison::NotEqual, value) => labels.get(label) != Some(value),
            Self::Compare(label, how, value) => {
                labels.get(label).is_some_and(|found| how.holds(found, value))
            }
            Self::In(label, values) => labels.get(label).is_some_and(|found| values.contains(found)),
            Self::Not(node) => !node.matches(labels),
            Self::And(nodes) => nodes.iter().all(|node| node.matches(labels)),
            Self::Or(nodes) => nodes.iter().any(|node| node.matches(labels)),
        }
    }
}

/// The reason why a selector cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("{0}")]
    Invalid(String),
    /// The selector is nested too deeply for this program. Calico has no such limit.
    #[error("parentheses nest deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl SelectorError {
    fn unexpected(found: impl Display, wanted: &str) -> Self {
        Self::Invalid(format!("expected {wanted}, found {found}"))
    }

    fn ends(wanted: &str) -> Self {
        Self::Invalid(format!("expected {wanted}, but the selector ends"))
    }
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
}

impl Parser {
    /// One or more terms joined by `||`.
    fn alternatives(&mut self, depth: usize) -> Result<Node, SelectorError> {
        let mut nodes = vec![self.conjunction(depth)?];
        while self.tokens.next_if_eq(&Token::Or).is_some() {
            nodes.push(self.conjunction(depth)?);
        }
        Ok(only_or(nodes, Node::Or))
    }

    /// One or more terms joined by `&&`.
    fn conjunction(&mut self, depth: usize) -> Result<Node, SelectorError> {
        let mut nodes = vec![self.term(depth)?];
        while self.tokens.next_if_eq(&Token::And).is_some() {
            nodes.push(self.term(depth)?);
        }
        Ok(only_or(nodes, Node::And))
    }

    /// A comparison, a function or a group, with any number of `!` before it.
    fn term(&mut self, depth: usize) -> Result<Node, SelectorError> {
        let mut negated = false;
        while self.tokens.next_if_eq(&Token::Not).is_some() {
            negated = !negated;
        }
        let wanted = "a label, a function or `(`";
        let node = match self.next(wanted)? {
            Token::All => Node::All,
            Token::Has(label) => Node::Has(label),
            Token::Label(label) => self.comparison(label)?,
            Token::Open => self.group(depth)?,
            token => return Err(SelectorError::unexpected(token, wanted)),
        };
        Ok(if negated { Node::Not(Box::new(node)) } else { node })
    }

    fn group(&mut self, depth: usize) -> Result<Node, SelectorError> {
        if depth == MAX_DEPTH {
            return Err(SelectorError::TooDeep);
        }
        let node = self.alternatives(depth + 1)?;
        self.expect(Token::Close, "`)`")?;
        Ok(node)
    }

    /// The comparison that follows a label.
    fn comparison(&mut self, label: String) -> Result<Node, SelectorError> {
        match self.next("an operator")? {
            Token::Compare(how) => {
                let wanted = "a quoted string";
                match self.next(wanted)? {
                    Token::Text(value) => Ok(Node::Compare(label, how, value)),
                    token => Err(SelectorError::unexpected(token, wanted)),
                }
            }
            Token::In => Ok(Node::In(label, self.set()?)),
            Token::NotIn => Ok(Node::Not(Box::new(Node::In(label, self.set()?)))),
            token => {
                let wanted = format!("an operator after the label {label:?}");
                Err(SelectorError::unexpected(token, &wanted))
            }
        }
    }

    /// Strings in braces. Like Calico's parser, allows an empty set and a comma before the closing brace.
    fn set(&mut self) -> Result<Vec<String>, SelectorError> {
        self.expect(Token::OpenSet, "`{`")?;
        let mut values = Vec::new();
        while let Some(Token::Text(value)) = self.tokens.next_if(|t| matches!(t, Token::Text(_))) {
            values.push(value);
            if self.tokens.next_if_eq(&Token::Comma).is_none() {
                break;
            }
        }
        self.expect(Token::CloseSet, "`}`")?;
        Ok(values)
    }

    fn expect(&mut self, token: Token, wanted: &str) -> Result<(), SelectorError> {
        match self.next(wanted)? {
            found if found == token => Ok(()),
            found => Err(SelectorError::unexpected(found, wanted)),
        }
    }

    fn next(&mut self, wanted: &str) -> Result<Token, SelectorError> {
        self.tokens.next().ok_or_else(|| SelectorError::ends(wanted))
    }
}

/// The only node, or a combination of several.
fn only_or(mut nodes: Vec<Node>, join: fn(Vec<Node>) -> Node) -> Node {
    match nodes.pop() {
        Some(node) if nodes.is_empty() => node,
        last => {
            nodes.extend(last);
            join(nodes)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Selector::parse(selector).unwrap_or_else(|e| panic!("{selector}: {e}")).matches(&labels)
    }

    #[test]
    fn selectors_that_match() {
        let labels = [("zone", "east-1"), ("kubernetes.io/os", "linux"), ("quote", "it's")];
        for selector in [
            "",
            " \t",
            "all()",
            "global( )",
            "has( zone )",
            "!has(rack)",
            "!!has(zone)",
            "zone == 'east-1'",
            "zone=='east-1'",
            "kubernetes.io/os == \"linux\"",
            "quote == \"it's\"",
            "zone != 'west'",
            "rack != 'r1'",
            "zone in {'west', 'east-1'}",
            "zone in {'east-1',}",
            "zone notin {}",
            "rack not in {'r1'}",
            "!zone in {'west'}",
            "zone contains 'st-'",
            "zone starts with 'east'",
            "zone startswith 'east'",
            "zone ends   with '-1'",
            "zone == 'west' || zone == 'east-1' && has(quote)",
            "(zone == 'west' || has(zone)) && !(has(rack) || has(tray))",
        ] {
            assert!(matches(selector, &labels), "{selector}");
        }
    }

    #[test]
    fn selectors_that_do_not_match() {
        let labels = [("zone", "east-1"), ("os", "linux")];
        for selector in [
            "!all()",
            "has(rack)",
            "zone == 'EAST-1'",
            "rack == ''",
            "zone != 'east-1'",
            "zone in {}",
            "rack in {'r1'}",
            "zone not in {'east-1'}",
            "rack contains ''",
            "rack starts with ''",
            "zone ends with 'east'",
            "has(zone) && has(rack) || has(rack)",
            "!(has(zone) && os == 'linux')",
        ] {
            assert!(!matches(selector, &labels), "{selector}");
        }
    }

    #[test]
    fn and_binds_stronger_than_or() {
        assert!(matches("has(a) || has(b) && has(c)", &[("a", "")]));
        assert!(!matches("(has(a) || has(b)) && has(c)", &[("a", "")]));
    }

    #[test]
    fn selectors_that_calico_refuses_are_refused() {
        for selector in [
            "b == b",
            "'b1' == b",
            "b",
            "a b",
            "a inside {'b'}",
            "a containsx 'b'",
            "!",
            "a = 'b'",
            "a == 'b' & has(c)",
            "a == 'b' |",
            "has(a) &&",
            "has(a) has(b)",
            "a in ''",
            "a in {'x'",
            "a in {'x' 'y'}",
            "\"open",
            "'open\"",
            "(",
            "()",
            "(all()",
            "all())",
            "all(x)",
            "has()",
            "has(a b)",
            "%",
            "a ==",
            "all()\n",
        ] {
            assert!(Selector::parse(selector).is_err(), "{selector}");
        }
        assert!(Selector::parse(&format!("has({})", "l".repeat(513))).is_err());
    }

    #[test]
    fn hostile_nesting_is_an_error_and_no_overflow() {
        let nested = |depth: usize| format!("{}all(){}", "(".repeat(depth), ")".repeat(depth));
        assert!(Selector::parse(&nested(100)).is_ok());
        assert!(Selector::parse(&nested(101)).unwrap_err().to_string().contains("deeper than 100"));
        assert!(Selector::parse(&"(".repeat(1_000_000)).is_err());
        assert!(!matches(&format!("{}all()", "!".repeat(100_001)), &[]));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([a-c(){}!&|='\" ,]|has\\(|all\\(\\)|in|not|contains|\\PC){0,30}") {
            let parsed = Selector::parse(&text);
            prop_assert!(parsed.is_ok() || parsed.is_err_and(|error| !error.to_string().is_empty()));
        }
    }
}
