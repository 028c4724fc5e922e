//! The part of Calico's selector language that pools use (facts 1.7, 3.4).
//!
//! `all()`, `global()`, `has(k)`, `k == "v"`, `k != "v"`, `k in {"a", "b"}`, `k not in {…}`,
//! `k contains "v"`, `k starts with "v"`, `k ends with "v"`, combined with `!`, `&&`, `||` and parentheses;
//! `&&` binds more tightly than `||`. Strings are in single or double quotes and have no escapes.

use std::collections::BTreeMap;

mod tokens;

use self::tokens::{Comparison, Token, tokenize};
use crate::words::joined;

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
    ///
    /// # Errors
    /// Those of Calico's parser, in the same words.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser {
            tokens: tokenize(text)?,
            position: 0,
        };
        if *parser.peek() == Token::End {
            return Ok(Self(Node::All));
        }
        let outermost = 0;
        let node = parser.parse_alternatives(outermost)?;

        let rest = &parser.tokens[parser.position..];
        if rest != [Token::End] {
            let content = joined(rest, " ");
            return Err(SelectorError::Invalid(format!(
                "unexpected content at end of selector [{content}]"
            )));
        }
        Ok(Self(node))
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
    /// True if the labels meet the condition.
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::All => true,
            Self::Has(label) => labels.contains_key(label),
            Self::Compare(label, Comparison::NotEqual, value) => labels.get(label) != Some(value),
            Self::Compare(label, comparison, value) => labels
                .get(label)
                .is_some_and(|found| comparison.holds(found, value)),
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
    /// The message of Calico's parser.
    #[error("{0}")]
    Invalid(String),
    /// The selector is nested too deeply for this program. Calico has no such limit.
    #[error("parentheses nest deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

fn invalid(message: &str) -> SelectorError {
    SelectorError::Invalid(message.to_owned())
}

/// Reads tokens in order. The last one is [`Token::End`], which is never passed.
struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    /// Parses one or more conjunctions joined by `||`, inside of `depth` pairs of parentheses.
    fn parse_alternatives(&mut self, depth: usize) -> Result<Node, SelectorError> {
        let first = self.parse_conjunction(depth)?;
        if *self.peek() != Token::Or {
            return Ok(first);
        }
        let mut nodes = vec![first];
        while self.next_if(&Token::Or) {
            nodes.push(self.parse_conjunction(depth)?);
        }
        Ok(Node::Or(nodes))
    }

    /// Parses one or more terms joined by `&&`.
    fn parse_conjunction(&mut self, depth: usize) -> Result<Node, SelectorError> {
        let first = self.parse_term(depth)?;
        if *self.peek() != Token::And {
            return Ok(first);
        }
        let mut nodes = vec![first];
        while self.next_if(&Token::And) {
            nodes.push(self.parse_term(depth)?);
        }
        Ok(Node::And(nodes))
    }

    /// Parses a comparison, a function or a group, with any number of `!` before it.
    fn parse_term(&mut self, depth: usize) -> Result<Node, SelectorError> {
        let mut negated = false;
        while self.next_if(&Token::Not) {
            negated = !negated;
        }
        let node = match self.next() {
            Token::All | Token::Global => Node::All,
            Token::Has(label) => Node::Has(label),
            Token::Label(label) => self.parse_comparison(label)?,
            Token::Open => self.parse_group(depth)?,
            token => return Err(SelectorError::Invalid(format!("unexpected token: {token}"))),
        };
        Ok(if negated { Node::Not(Box::new(node)) } else { node })
    }

    /// Parses the rest of an expression in parentheses.
    fn parse_group(&mut self, depth: usize) -> Result<Node, SelectorError> {
        if depth == MAX_DEPTH {
            return Err(SelectorError::TooDeep);
        }
        let node = self.parse_alternatives(depth + 1)?;
        if !self.next_if(&Token::Close) {
            return Err(invalid("expected )"));
        }
        Ok(node)
    }

    /// Parses the comparison that follows a label.
    fn parse_comparison(&mut self, label: String) -> Result<Node, SelectorError> {
        if *self.peek() == Token::End {
            return Err(invalid("unexpected end of string looking for op"));
        }
        match self.next() {
            Token::Compare(comparison) => match self.next() {
                Token::Text(value) => Ok(Node::Compare(label, comparison, value)),
                _ => Err(invalid("expected string")),
            },
            Token::In => Ok(Node::In(label, self.parse_set()?)),
            Token::NotIn => Ok(Node::Not(Box::new(Node::In(label, self.parse_set()?)))),
            token => Err(SelectorError::Invalid(format!("expected == or != not: {token}"))),
        }
    }

    /// Parses strings in braces. Like Calico's parser, allows an empty set and a comma before the closing brace.
    fn parse_set(&mut self) -> Result<Vec<String>, SelectorError> {
        if !self.next_if(&Token::OpenSet) {
            return Err(invalid("expected set literal"));
        }
        let mut values = Vec::new();
        while let Token::Text(value) = self.peek() {
            values.push(value.clone());
            self.next();
            if !self.next_if(&Token::Comma) {
                break;
            }
        }
        if !self.next_if(&Token::CloseSet) {
            return Err(invalid("expected }"));
        }
        Ok(values)
    }

    fn peek(&self) -> &Token {
        self.tokens.get(self.position).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        if token != Token::End {
            self.position += 1;
        }
        token
    }

    /// Passes the next token if it is this one.
    fn next_if(&mut self, token: &Token) -> bool {
        if self.peek() != token {
            return false;
        }
        self.position += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Selector::parse(selector)
            .unwrap_or_else(|e| panic!("{selector}: {e}"))
            .matches(&labels)
    }

    #[test]
    fn selectors_that_match() {
        let labels = [
            ("zone", "east-1"),
            ("kubernetes.io/os", "linux"),
            ("quote", "it's"),
        ];
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
    fn errors_have_the_words_of_calico() {
        for (selector, error) in [
            ("zone ==", "expected string"),
            ("zone", "unexpected end of string looking for op"),
            ("zone = 'a'", "expected =="),
            ("has(a) & has(b)", "expected &&"),
            ("a inside {'b'}", "expected operator after label \"a\""),
            ("a in 'x'", "expected set literal"),
            ("a in {'x'", "expected }"),
            ("(all()", "expected )"),
            (
                "has(a) has(b)",
                "unexpected content at end of selector [TokHas(b) TokEOF()]",
            ),
            ("!", "unexpected token: TokEOF()"),
            ("'b1' == b", "unexpected token: TokStringLiteral(b1)"),
            ("has(a", "no closing ')' after has("),
            ("'open", "unterminated string"),
            ("a ! 'b'", "expected == or != not: TokNot()"),
            ("%", "expected identifier"),
        ] {
            assert_eq!(
                Selector::parse(selector).unwrap_err().to_string(),
                error,
                "{selector}"
            );
        }
    }

    #[test]
    fn hostile_nesting_is_an_error_and_no_overflow() {
        let nested = |depth: usize| format!("{}all(){}", "(".repeat(depth), ")".repeat(depth));
        assert!(Selector::parse(&nested(100)).is_ok());
        assert!(
            Selector::parse(&nested(101))
                .unwrap_err()
                .to_string()
                .contains("deeper than 100")
        );
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
