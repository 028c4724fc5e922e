//! Plans that are shown before anything is written.

use std::io;

use calipam_workflow::Proposal;

use crate::console::Console;
use crate::format::Format;
use crate::hints;
use crate::render::document::{self, Document};
use crate::render::migrate::SurveyDocument;
use crate::render::page::Page;
use crate::render::plan::{self, PlanDocument};
use crate::render::undo::{self, UndoDocument};

/// Shows a plan. YAML and JSON are printed only at the end: if the operator is `asked`, a table goes to stderr first.
pub(crate) fn preview(proposal: Proposal<'_>, asked: bool, console: &Console) -> io::Result<()> {
    match proposal {
        Proposal::Plan(plan) => {
            if asked || console.format.is_for_people() {
                plan.warnings.iter().for_each(|warning| console.warn(&hints::text(warning)));
            }
            preview_document(&PlanDocument { plan, run: None }, asked, console)
        }
        Proposal::Migration(surveyed) => preview_document(&SurveyDocument(surveyed), asked, console),
        Proposal::Undo(header, plan) => {
            preview_document(&UndoDocument { header, plan, run: None }, asked, console)
        }
    }
}

/// Formats the complete plan, if [`preview`] shows only a part of it.
pub(crate) fn whole(proposal: Proposal<'_>, console: &Console) -> io::Result<Option<String>> {
    match proposal {
        Proposal::Plan(plan) => whole_document(&PlanDocument { plan, run: None }, plan::fits(plan), console),
        // A migration's plan is a separate proposal.
        Proposal::Migration(_) => Ok(None),
        Proposal::Undo(header, plan) => {
            whole_document(&UndoDocument { header, plan, run: None }, undo::fits(plan), console)
        }
    }
}

fn whole_document(document: &impl Document, fits: bool, console: &Console) -> io::Result<Option<String>> {
    if console.format == Format::Wide || fits {
        return Ok(None);
    }
    document::text(document, Page { wide: true, ..console.page }).map(Some)
}

fn preview_document(document: &impl Document, asked: bool, console: &Console) -> io::Result<()> {
    if console.format.is_for_people() {
        return console.write_data(|out| document::write(document, console.format, console.page, out));
    }
    if asked {
        let page = Page { color: false, ..console.page };
        document::write(document, Format::Table, page, &mut io::stderr().lock())?;
    }
    Ok(())
}
