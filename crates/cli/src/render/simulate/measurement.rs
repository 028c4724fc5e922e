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
    /// The median of writes, which are not measured: one takes as many times as long as a read as is assumed for such a datastore.
    write_assumed: Micros,
    /// For the option of `simulate`.
    latency: String,
}

impl Measurement {
    pub(crate) fn new(kind: DatastoreKind, location: String, connected: Duration, times: &ReadTimes) -> Self {
        let single: Vec<Micros> = times.single.iter().copied().map(Micros::from).collect();
        let assumed = Costs::assumed(kind);
        let read = Latency::measured(&single).unwrap_or(assumed.read);
        let write = read.scaled(assumed.write.median().0, assumed.read.median().0);
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
            write_assumed: write.median(),
            latency,
        }
    }
}

impl Document for Measurement {
    fn kind(&self) -> &'static str {
        "DatastoreLatency"
    }

    fn text(&self, _: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let lines = [
            format!("{} at {}", self.datastore, escape(&self.location)),
            format!("connecting: {}", self.connect),
            format!("one read: median {}, worst {}", self.read_median, self.read_worst),
            format!("all {} objects: {}", thousands(self.objects), self.whole),
            format!("one write: {} is assumed, since a write is not harmless", self.write_assumed),
        ];
        lines.iter().try_for_each(|line| writeln!(out, "{}", on_page(line, 0, page)))?;
        writeln!(out, "\n--latency {}", self.latency)
    }

    fn schema(&self) -> impl Serialize {
        self
    }
}
