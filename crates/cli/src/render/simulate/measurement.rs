//! What reads of a datastore cost.

use std::io::{self, Write};
use std::time::Duration;

use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::{Costs, Latency, Micros};
use calipam_workflow::ReadTimes;
use serde::Serialize;

use crate::render::document::{Detail, Document};
use crate::render::table::Page;
use crate::render::text::{escape, thousands};
use crate::render::wrap::on_page;

/// What was measured, and what follows for simulations.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Measurement {
    location: String,
    datastore: DatastoreKind,
    /// Opening the datastore, which asks it what it is.
    connect: Micros,
    read_median: Micros,
    read_worst: Micros,
    /// Reading everything that a check reads.
    whole: Micros,
    objects: u64,
    /// The median of writes where they were not measured: one takes as many times as long as a read as is assumed for such a
    /// datastore.
    #[serde(skip_serializing_if = "Option::is_none")]
    write_assumed: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_median: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_worst: Option<Micros>,
    /// For the option of `simulate`.
    latency: String,
}

impl Measurement {
    /// Both lists of times are ascending; `writes` is empty if none were made.
    pub(crate) fn new(
        kind: DatastoreKind,
        location: String,
        connected: Duration,
        times: &ReadTimes,
        writes: &[Duration],
    ) -> Self {
        let micros =
            |times: &[Duration]| -> Vec<Micros> { times.iter().copied().map(Micros::from).collect() };
        let (single, writes) = (micros(&times.single), micros(writes));
        let assumed = Costs::assumed(kind);
        let read = Latency::measured(&single).unwrap_or(assumed.read);
        let measured = Latency::measured(&writes);
        let write =
            measured.unwrap_or_else(|| read.scaled(assumed.write.median().0, assumed.read.median().0));
        let (connect, whole, median) = (Micros::from(connected), Micros::from(times.whole), read.median());
        let object_nanos = (whole - median).0.saturating_mul(1_000).checked_div(times.objects).unwrap_or(0);
        // Few objects say nothing about each.
        let objects =
            if times.objects >= 1_000 { format!(",object={object_nanos}ns,kib=0ns") } else { String::new() };
        let latency = format!("connect={}us,read={},write={}{objects}", connect.0, read.text(), write.text());
        Self {
            location,
            datastore: kind,
            connect,
            read_median: median,
            read_worst: single.last().copied().unwrap_or_default(),
            whole,
            objects: times.objects,
            write_assumed: measured.is_none().then(|| write.median()),
            write_median: measured.map(Latency::median),
            write_worst: writes.last().copied(),
            latency,
        }
    }
}

impl Document for Measurement {
    fn kind(&self) -> &'static str {
        "DatastoreLatency"
    }

    fn text(&self, _: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let write = match (self.write_median, self.write_worst, self.write_assumed) {
            (Some(median), Some(worst), _) => format!("one write: median {median}, worst {worst}"),
            (.., assumed) => format!(
                "one write: {} is assumed; `--writes` measures it, with a handle of its own",
                assumed.unwrap_or_default()
            ),
        };
        let lines = [
            format!("{} at {}", self.datastore, escape(&self.location)),
            format!("connecting: {}", self.connect),
            format!("one read: median {}, worst {}", self.read_median, self.read_worst),
            format!("all {} objects: {}", thousands(self.objects), self.whole),
            write,
        ];
        lines.iter().try_for_each(|line| writeln!(out, "{}", on_page(line, 0, page)))?;
        writeln!(out, "\n--latency {}", self.latency)
    }

    fn schema(&self) -> impl Serialize {
        self
    }
}
