//! From reports and views to what is printed.

pub mod check;
pub mod codes;
pub mod document;
pub mod header;
pub mod plan;
pub mod show;
pub mod table;
pub mod text;
pub mod undo;

use std::io;

use calipam_workflow::Proposal;

use crate::args::Format;
use crate::output::Console;

/// Shows a plan before the operator is asked. YAML and JSON are printed once, at the end: where the operator is
/// `asked`, the plan is a table on stderr meanwhile.
///
/// # Errors
/// Where the output cannot be written.
pub fn preview(proposal: Proposal<'_>, asked: bool, console: &Console) -> io::Result<()> {
    if !console.format.is_table() && !asked {
        return Ok(());
    }
    if let Proposal::Plan(plan) = proposal {
        plan.warnings.iter().for_each(|warning| console.warn(warning));
    }
    let write = |console: &Console, out: &mut dyn io::Write| match proposal {
        Proposal::Plan(summary) => plan::write(summary, console, out),
        Proposal::Undo(header, plan) => undo::write(header, plan, console, out),
    };
    if console.format.is_table() {
        return console.write_data(|out| write(console, out));
    }
    let table = Console { format: Format::Table, color: false, ..console.clone() };
    write(&table, &mut io::stderr().lock())
}
