//! When two pods get one address.

use std::io::{self, Write};

use calipam_simulate::answer::{Cause, CauseRow, Clashes, Sighting};

use super::heading;
use crate::render::document::Detail;
use crate::render::table::{Grid, Page};
use crate::render::text::thousands;
use crate::render::wrap::on_page;

pub(super) fn write(clashes: &Clashes, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
    heading("Causes of duplicate addresses", page, out)?;
    let mut grid = Grid::new(page, detail, "CAUSE  >RUNS  >WITH CLASH  >CLASHES  >FIRST AFTER");
    for row in &clashes.causes {
        grid.row([
            words(row.cause).to_owned(),
            thousands(row.runs),
            thousands(row.runs_with_clash),
            thousands(row.clashes),
            row.first_clash_after.map_or_else(|| "-".to_owned(), |after| after.to_string()),
        ]);
    }
    grid.write(out)?;
    for row in clashes.causes.iter().filter(|row| row.cause != Cause::None) {
        findings(row, detail, page, out)?;
    }
    let note = format!("A check ran every {}; what it found twice in a row counts.", clashes.check_interval);
    writeln!(out, "\n{}", on_page(&note, 0, page))
}

/// A cause as people read it.
pub(super) fn words(cause: Cause) -> &'static str {
    match cause {
        Cause::None => "none, for comparison",
        Cause::OldBackup => "etcd restored from an old backup",
        Cause::SharedHandle => "a handle shared by name",
        Cause::FreedByHand => "addresses released by hand",
        Cause::Partition => "a node cut off and removed",
    }
}

/// What checks found, from the first on.
fn findings(row: &CauseRow, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nChecks after: {}", words(row.cause))?;
    if row.findings.is_empty() {
        return writeln!(out, "  no finding");
    }
    let mut grid = Grid::new(page, detail, "CODE  >SEEN AFTER  >IN RUNS  >BEFORE A CLASH");
    for Sighting { code, runs, runs_before_clash, after } in &row.findings {
        let cells = [code.clone(), after.to_string(), thousands(runs), thousands(runs_before_clash)];
        grid.row(cells);
    }
    grid.write(out)
}
