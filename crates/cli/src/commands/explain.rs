//! `explain`.

use std::io::{self, Write};

use calipam_check::{Code, Severity};
use serde::Serialize;

use crate::args::ExplainArgs;
use crate::exit::{Failure, Outcome};
use crate::output::Console;
use crate::render;
use crate::render::document::{Detail, Document};
use crate::render::table::Page;

/// The documentation of all findings: a section for each, headed by its code.
const FINDINGS: &str = include_str!("../../../../docs/findings.md");

/// Prints the section of a code, or all codes.
pub fn run(args: &ExplainArgs, console: &Console) -> Result<Outcome, Failure> {
    let Some(code) = args.code else {
        render::codes::list(console)?;
        return Ok(Outcome::Clean);
    };
    let text = section(code).unwrap_or(code.summary());
    console.print(&Explanation { code, severity: code.severity(), summary: code.summary(), text })?;
    Ok(Outcome::Clean)
}

/// What is known about a kind of finding.
#[derive(Debug, Serialize)]
struct Explanation {
    code: Code,
    severity: Severity,
    summary: &'static str,
    /// Markdown.
    text: &'static str,
}

impl Document for Explanation {
    fn kind(&self) -> &'static str {
        "Explanation"
    }

    fn text(&self, _: Detail, _: Page, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{} ({})\n\n{}", self.code, self.severity, self.text)
    }

    fn schema(&self) -> impl Serialize {
        self
    }
}

/// The text below the heading of a code.
pub fn section(code: Code) -> Option<&'static str> {
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
