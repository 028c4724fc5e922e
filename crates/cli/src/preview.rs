//! Previews of plans, before anything is written.

use std::io;

use calipam_workflow::Proposal;

use crate::console::Console;
use crate::format::Format;
use crate::hints;
use crate::render::document::{self, Document};
use crate::render::migrate::SurveyDocument;
use crate::render::page::Page;
use crate::render::plan::{self, PlanDocument};
use crate::render::undo::UndoDocument;

/// Shows a plan. YAML and JSON are printed only at the end, so if the operator is `asked` to confirm, a table is
/// printed on stderr first. Returns the complete plan if the operator is asked, but only a part of it was shown.
pub(crate) fn preview(proposal: Proposal<'_>, asked: bool, console: &Console) -> io::Result<Option<String>> {
    match proposal {
        Proposal::Plan(plan) => {
            if asked || console.format.is_for_people() {
                for warning in &plan.warnings {
                    console.warn(&hints::text(warning));
                }
            }
            show(&PlanDocument::new(plan, None), plan::fits(plan), asked, console)
        }
        // A migration's plan is a separate proposal.
        Proposal::Migration(surveyed) => {
            let fits = true;
            show(&SurveyDocument::new(surveyed), fits, asked, console)
        }
        Proposal::Undo(header, plan) => {
            let document = UndoDocument::new(header, plan, None);
            show(&document, document.fits(), asked, console)
        }
    }
}

/// Shows a document. `fits` is true if its short form shows everything. If it does not, and the operator is asked to
/// confirm, returns the long form.
fn show(document: &impl Document, fits: bool, asked: bool, console: &Console) -> io::Result<Option<String>> {
    if console.format.is_for_people() {
        console.write_data(|out| document::write(document, console.format, console.page, out))?;
    } else if asked {
        let page = Page {
            color: false,
            ..console.page
        };
        document::write(document, Format::Table, page, &mut io::stderr().lock())?;
    }
    // Only someone who is asked can want to see the rest, if there is any.
    if !asked || fits || console.format == Format::Wide {
        return Ok(None);
    }

    let page = Page {
        wide: true,
        ..console.page
    };
    document::text(document, page).map(Some)
}
