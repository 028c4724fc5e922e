//! From reports and views to what is printed.

pub(crate) mod assign;
mod bar;
pub(crate) mod check;
pub(crate) mod codes;
mod decisions;
pub(crate) mod diff;
pub(crate) mod document;
pub(crate) mod failure;
mod findings;
pub(crate) mod header;
pub(crate) mod history;
pub(crate) mod markdown;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod show;
pub(crate) mod simulate;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod undo;
pub(crate) mod wrap;
mod yaml;

use std::io;

use calipam_workflow::Proposal;

use self::document::{Detail, Document};
use self::plan::PlanDocument;
use self::table::Page;
use self::undo::UndoDocument;
use crate::output::Console;

/// Shows a plan before the operator is asked. YAML and JSON are printed once, at the end: where the operator is
/// `asked`, the plan is a table on stderr meanwhile.
pub(crate) fn preview(proposal: Proposal<'_>, asked: bool, console: &Console) -> io::Result<()> {
    match proposal {
        Proposal::Plan(plan) => {
            if asked || console.format.detail().is_some() {
                plan.warnings.iter().for_each(|warning| console.warn(&crate::hints::plan::warning(warning)));
            }
            preview_document(&PlanDocument { plan, run: None }, asked, console)
        }
        Proposal::Undo(header, plan) => {
            preview_document(&UndoDocument { header, plan, run: None }, asked, console)
        }
    }
}

/// The whole of a plan, where [`preview`] shows only a part of it.
pub(crate) fn whole(proposal: Proposal<'_>, console: &Console) -> io::Result<Option<String>> {
    let Proposal::Plan(plan) = proposal else { return Ok(None) };
    if console.format.detail() == Some(Detail::Full) || plan::fits(plan) {
        return Ok(None);
    }
    let mut text = Vec::new();
    PlanDocument { plan, run: None }.text(Detail::Full, console.page, &mut text)?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

fn preview_document(document: &impl Document, asked: bool, console: &Console) -> io::Result<()> {
    if let Some(detail) = console.format.detail() {
        return console.write_data(|out| document.text(detail, console.page, out));
    }
    if asked {
        let page = Page { color: false, ..console.page };
        document.text(Detail::Short, page, &mut io::stderr().lock())?;
    }
    Ok(())
}
