//! What `assign --explain` prints: the decisions of the allocator.

use std::io::{self, Write};
use std::net::IpAddr;

use calipam_check::ClusterIdentity;
use calipam_model::key::Key;
use calipam_workflow::Explained;
use serde::Serialize;

use super::decisions::{self, Decision};
use super::document::{Detail, Document};
use super::header;
use super::plan::ShownSkipped;
use super::table::{Grid, Page};
use super::text::escape;
use super::wrap::on_page;
use crate::hints::{self, Reader};

/// How the allocator decides.
pub(crate) struct Explanation<'a> {
    pub explained: &'a Explained,
    pub node: &'a str,
}

impl Explanation<'_> {
    fn decisions(&self) -> Vec<Decision> {
        let Explained { snapshot, node, events, .. } = self.explained;
        events.iter().map(|event| decisions::of(snapshot, node, event)).collect()
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    cluster: ClusterIdentity,
    node: &'a str,
    decisions: Vec<Decision>,
    addresses: &'a [IpAddr],
    skipped: Vec<ShownSkipped<'a>>,
}

impl Document for Explanation<'_> {
    fn kind(&self) -> &'static str {
        "AssignExplanation"
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let explained = self.explained;
        writeln!(out, "{}\n", on_page(&header::cluster(&ClusterIdentity::of(&explained.snapshot)), 0, page))?;
        if !explained.events.is_empty() {
            decisions_table(&self.decisions(), detail, page).write(out)?;
            writeln!(out)?;
        }
        for skipped in &explained.skipped {
            let line = format!("{}: {}", skipped.reason, hints::plan::skipped(skipped, Reader::Operator));
            writeln!(out, "{}", on_page(&escape(&line), 2, page))?;
        }
        let result = match explained.addresses.as_slice() {
            [] => format!("{} would get no address", self.node),
            addresses => {
                let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                format!("{} would get {}", self.node, texts.join(", "))
            }
        };
        writeln!(out, "{}", on_page(&escape(&result), 0, page))
    }

    fn schema(&self) -> impl Serialize {
        let Explained { snapshot, addresses, skipped, .. } = self.explained;
        let cluster = ClusterIdentity::of(snapshot);
        let skipped = skipped.iter().map(ShownSkipped::new).collect();
        Shown { cluster, node: self.node, decisions: self.decisions(), addresses, skipped }
    }
}

fn decisions_table(decisions: &[Decision], detail: Detail, page: Page) -> Grid {
    let mut grid = Grid::new(page, detail, "STEP  SUBJECT  DECISION  KEY");
    grid.can_do_without(&["KEY"]);
    for decision in decisions {
        let keys: Vec<String> = decision.keys.iter().map(Key::to_string).collect();
        grid.row([
            decision.step.to_string(),
            decision.subject.to_string(),
            decision.detail.clone(),
            keys.join(" "),
        ]);
    }
    grid
}
