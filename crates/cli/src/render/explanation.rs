//! The output of `explain` for rules, which is their documentation.

use calipam_check::{Code, Severity};
use clap::builder::styling::Style;
use serde::Serialize;

use super::column::left;
use super::document::Document;
use super::markdown;
use super::output::Text;

/// The documentation of all rules, with a section for each code.
const FINDINGS: &str = include_str!("../../../../docs/findings.md");

/// Returns the documentation of a code, as Markdown.
pub(crate) fn text(code: Code) -> &'static str {
    section(code).unwrap_or(code.summary())
}

/// Returns the meaning of a severity, such as `traffic is or will be broken`.
pub(crate) fn meaning(severity: Severity) -> &'static str {
    // The meanings are the second column of a table.
    let row = format!("\n| `{severity}` | ");
    let Some((_, rest)) = FINDINGS.split_once(&row) else {
        return "";
    };
    match rest.split_once(" |") {
        Some((meaning, _)) => meaning,
        None => "",
    }
}

/// The output of `explain`: the rules that were named, or all of them.
#[derive(Debug, Serialize)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    /// True if no rule was named. The text is then a table with one row for each rule.
    #[serde(skip)]
    is_list: bool,
}

/// A rule, identified by the code of its findings.
#[derive(Debug, Serialize)]
struct Rule {
    code: Code,
    severity: Severity,
    summary: &'static str,
    /// The documentation, as Markdown.
    text: &'static str,
}

impl Rules {
    /// Returns the named rules, each once, in the order of the names. Without names, returns all rules, as a list.
    pub(crate) fn of(named: &[Code]) -> Self {
        let mut codes: Vec<Code> = Vec::new();
        let wanted = if named.is_empty() { Code::ALL } else { named };
        for code in wanted {
            if !codes.contains(code) {
                codes.push(*code);
            }
        }
        let rule = |code: Code| Rule {
            code,
            severity: code.severity(),
            summary: code.summary(),
            text: text(code),
        };
        Self {
            rules: codes.into_iter().map(rule).collect(),
            is_list: named.is_empty(),
        }
    }
}

impl Document for Rules {
    const KIND: &'static str = "RuleList";

    /// Writes a table of rules, or the documentation of each rule.
    fn text(&self, out: &mut Text) {
        if self.is_list {
            let columns = vec![
                left("CODE", |rule: &Rule| rule.code),
                left("SEVERITY", |rule: &Rule| rule.severity),
                left("WHEN", |rule: &Rule| rule.summary),
            ];
            return out.table(&self.rules, columns);
        }
        for (number, rule) in self.rules.iter().enumerate() {
            if number > 0 {
                out.blank();
            }
            out.styled(
                Style::new().bold().underline(),
                &format!("{} ({})", rule.code, rule.severity),
            );
            out.blank();
            markdown::write(rule.text, out);
        }
    }
}

/// Returns the text below the heading of a code.
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
    fn every_severity_has_a_meaning() {
        assert_eq!(meaning(Severity::Critical), "traffic is or will be broken");
        assert!(
            Severity::ALL
                .iter()
                .all(|severity| !meaning(*severity).is_empty())
        );
    }

    #[test]
    fn every_section_is_about_a_code() {
        let headings: Vec<&str> = FINDINGS
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        let codes: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(headings, codes, "sections stand in the order of the codes");
    }
}
