//! The causes of duplicate addresses, that is, of two pods with the same address.

use calipam_simulate::answer::{Cause, CauseRow, Clashes, Sighting};

use super::write_heading;
use crate::render::column::{Column, left, right};
use crate::render::output::Text;
use crate::render::text::{dash, thousands};

/// Writes a table of causes, and the findings after each of them.
pub(super) fn write(clashes: &Clashes, text: &mut Text) {
    write_heading(text, "Causes of duplicate addresses");
    text.table(&clashes.causes, columns());
    for row in clashes.causes.iter().filter(|row| row.cause != Cause::None) {
        text.blank();
        text.line(format!("Checks after: {}", words_of_cause(row.cause)));
        if row.findings.is_empty() {
            text.drawn("  no finding");
        } else {
            text.table(&row.findings, finding_columns());
        }
    }
    text.blank();
    text.line(format!(
        "A check ran every {}; a finding counts only if two checks in a row had it.",
        clashes.check_interval
    ));
}

/// Returns the columns of the table of causes.
pub(super) fn columns<'a>() -> Vec<Column<'a, &'a CauseRow>> {
    vec![
        left("CAUSE", |row: &CauseRow| words_of_cause(row.cause)),
        right("RUNS", |row: &CauseRow| thousands(row.runs)),
        right("WITH CLASH", |row: &CauseRow| thousands(row.runs_with_clash)),
        right("CLASHES", |row: &CauseRow| thousands(row.clashes)),
        right("FIRST AFTER", |row: &CauseRow| dash(row.first_clash_after)),
    ]
}

/// Returns the columns for the findings of checks.
pub(super) fn finding_columns<'a>() -> Vec<Column<'a, &'a Sighting>> {
    vec![
        left("CODE", |found: &Sighting| &found.code),
        right("SEEN AFTER", |found: &Sighting| found.after),
        right("IN RUNS", |found: &Sighting| thousands(found.runs)),
        right("BEFORE A CLASH", |found: &Sighting| {
            thousands(found.runs_before_clash)
        }),
    ]
}

/// Describes a cause of duplicate addresses.
pub(super) fn words_of_cause(cause: Cause) -> &'static str {
    match cause {
        Cause::None => "none, for comparison",
        Cause::OldBackup => "etcd restored from an old backup",
        Cause::SharedHandle => "a handle shared by name",
        Cause::FreedByHand => "addresses released by hand",
        Cause::Partition => "a node cut off and removed",
    }
}
