//! The list of all findings that there are.

use calipam_check::Code;
use serde::Serialize;

use super::document;
use super::table::{Align, Grid};
use crate::exit::Failure;
use crate::output::Console;

/// A kind of finding.
#[derive(Debug, Serialize)]
struct Rule {
    code: Code,
    severity: calipam_check::Severity,
    summary: &'static str,
}

#[derive(Debug, Serialize)]
struct Rules {
    rules: Vec<Rule>,
}

/// Prints all codes.
///
/// # Errors
/// Where stdout cannot be written.
pub fn list(console: &Console) -> Result<(), Failure> {
    let rules =
        Code::ALL.iter().map(|code| Rule { code: *code, severity: code.severity(), summary: code.summary() });
    let rules = Rules { rules: rules.collect() };
    console.data(|out| {
        if !console.format.is_table() {
            return document::write(console.format, "RuleList", &rules, out);
        }
        let columns = [("CODE", Align::Left), ("SEVERITY", Align::Left), ("WHEN", Align::Left)];
        let mut grid = Grid::new(console, &columns);
        for rule in &rules.rules {
            grid.row([rule.code.name(), &rule.severity.to_string(), rule.summary]);
        }
        grid.write(out)
    })
}
