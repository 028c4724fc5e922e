//! The list of all rules.

use std::io::{self, Write};

use calipam_check::Code;
use serde::Serialize;

use super::document::{Detail, Document};
use super::table::{Grid, Page};

/// A rule, by the code of its findings.
#[derive(Debug, Serialize)]
struct Rule {
    code: Code,
    severity: calipam_check::Severity,
    summary: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    pub(crate) fn all() -> Self {
        let rule = |code: &Code| Rule { code: *code, severity: code.severity(), summary: code.summary() };
        Self { rules: Code::ALL.iter().map(rule).collect() }
    }
}

impl Document for Rules {
    fn kind(&self) -> &'static str {
        "RuleList"
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(page, detail, "CODE  SEVERITY  WHEN");
        for rule in &self.rules {
            grid.row([rule.code.name(), &rule.severity.to_string(), rule.summary]);
        }
        grid.write(out)
    }

    fn schema(&self) -> impl Serialize {
        self
    }
}
