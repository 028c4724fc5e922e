//! What reads of a datastore cost.

use std::io::{self, Write};
use std::time::Duration;

use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::{Costs, Micros};
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
    /// A write, which is not measured: it takes as many times as long as a read as is assumed for such a datastore.
    write_assumed: Micros,
    /// For the option of `simulate`.
    latency: String,
}

impl Measurement {
    pub(crate) fn new(kind: DatastoreKind, location: String, connected: Duration, times: &ReadTimes) -> Self {
        let micros = |time: Duration| Micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        let at = |place: usize| times.single.get(place).copied().map(micros).unwrap_or_default();
        let (median, worst) = (at(times.single.len() / 2), at(times.single.len().saturating_sub(1)));
        let assumed = Costs::assumed(kind);
        let write = Micros(median.0.saturating_mul(assumed.write.0) / assumed.read.0.max(1));
        let whole = micros(times.whole);
        let object_nanos = (whole - median).0.saturating_mul(1_000).checked_div(times.objects).unwrap_or(0);
        // Few objects say nothing about each.
        let objects =
            if times.objects >= 1_000 { format!(",object={object_nanos}ns,kib=0ns") } else { String::new() };
        let latency =
            format!("connect={}us,read={}us,write={}us{objects}", micros(connected).0, median.0, write.0);
        Self {
            location,
            datastore: kind,
            connect: micros(connected),
            read_median: median,
            read_worst: worst,
            whole,
            objects: times.objects,
            write_assumed: write,
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
