//! What `explain` prints: the documentation of rules.

use std::io::{self, Write};

use calipam_check::{Code, Severity};
use clap::builder::styling::Style;
use serde::Serialize;

use super::document::{Detail, Document};
use super::markdown;
use super::table::Page;

/// The documentation of all rules: a section for each, headed by its code.
const FINDINGS: &str = include_str!("../../../../docs/findings.md");

/// What the documentation says about a code, as Markdown.
pub(crate) fn text(code: Code) -> &'static str {
    section(code).unwrap_or(code.summary())
}

/// What is known about a rule.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    pub code: Code,
    severity: Severity,
    summary: &'static str,
    /// Markdown.
    text: &'static str,
}

impl Explanation {
    pub(crate) fn of(code: Code) -> Self {
        Self { code, severity: code.severity(), summary: code.summary(), text: text(code) }
    }
}

impl Document for Explanation {
    fn kind(&self) -> &'static str {
        "Explanation"
    }

    fn text(&self, _: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let heading = format!("{} ({})", self.code, self.severity);
        writeln!(out, "{}\n", page.styled(Style::new().bold().underline(), &heading))?;
        markdown::write(self.text, page, out)
    }

    fn schema(&self) -> impl Serialize {
        self
    }
}

/// What is known about several rules.
#[derive(Debug, Serialize)]
pub(crate) struct Explanations {
    pub explanations: Vec<Explanation>,
}

impl Document for Explanations {
    fn kind(&self) -> &'static str {
        "ExplanationList"
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        for (number, explanation) in self.explanations.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            explanation.text(detail, page, out)?;
        }
        Ok(())
    }

    fn schema(&self) -> impl Serialize {
        self
    }
}

/// The text below the heading of a code.
fn section(code: Code) -> Option<&'static str> {
    let heading = format!("\n## {}\n", code.name());
    let start = FINDINGS.find(&heading)? + heading.len();
    let rest = &FINDINGS[start..];
    let end = rest.find("\n## ").unwrap_or(rest.len());
    Some(rest[..end].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained() {
        for code in Code::ALL {
            let text = section(*code).unwrap_or_else(|| panic!("docs/findings.md has no section {code}"));
            for part in ["**Risk.** ", "**How it arises.** ", "**What to do.** "] {
                assert!(text.contains(part), "the section {code} lacks {part:?}");
            }
        }
    }

    #[test]
    fn every_section_is_about_a_code() {
        let headings: Vec<&str> = FINDINGS.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let codes: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(headings, codes, "sections stand in the order of the codes");
    }
}
