//! The summary of a cluster, for a check of a fleet: the report, how full the pools are, and the ranges in use.

use std::io::{self, Write};

use calipam_check::Report;
use calipam_check::fleet::{Ranges, SUMMARY};
use calipam_check::views::{self, PoolList};
use serde::Serialize;

use super::Checked;
use crate::render::document::versioned;
use crate::render::findings::WithFindings;

#[derive(Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    report: WithFindings<'a, Report>,
    #[serde(flatten)]
    pools: PoolList,
    ranges: Ranges,
}

pub(super) fn write(checked: &Checked<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Checked { report, snapshot, .. } = checked;
    let report = WithFindings::of_report(report, None);
    let summary = Summary { report, pools: views::pools(snapshot), ranges: Ranges::of(snapshot) };
    serde_json::to_writer(&mut *out, &versioned(SUMMARY, summary))?;
    writeln!(out)
}
