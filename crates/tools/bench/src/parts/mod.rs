//! The parts of the benchmark.

mod check;
mod cni;
mod growth;
mod history;
mod live;
mod record;
mod release;
mod reports;
mod simulate;

use anyhow::Result;

use crate::bench::{Bench, COMPARED};

/// A part: its name, the titles of its tables, and the measurement of one size, which adds rows to the tables.
pub(crate) struct Part {
    pub name: &'static str,
    pub titles: &'static [&'static str],
    pub measure: fn(&mut Bench<'_>) -> Result<()>,
}

pub(crate) const PARTS: [Part; 11] = [
    Part {
        name: "etcd",
        titles: &[COMPARED, check::PHASES],
        measure: check::measure,
    },
    Part {
        name: "kubernetes",
        titles: &[COMPARED],
        measure: check::measure,
    },
    Part {
        name: "release",
        titles: &[release::TITLES],
        measure: release::measure,
    },
    Part {
        name: "growth",
        titles: &[growth::TITLES],
        measure: growth::measure,
    },
    Part {
        name: "reports",
        titles: &reports::TITLES,
        measure: reports::measure,
    },
    Part {
        name: "live",
        titles: &[live::TITLES],
        measure: live::measure,
    },
    Part {
        name: "record",
        titles: &[record::TITLES],
        measure: record::measure,
    },
    Part {
        name: "history",
        titles: &[COMPARED, history::QUESTIONS],
        measure: history::measure,
    },
    Part {
        name: "cni",
        titles: &[cni::TITLES],
        measure: cni::measure,
    },
    Part {
        name: "cni-large",
        titles: &cni::large::TITLES,
        measure: cni::large::measure,
    },
    Part {
        name: "simulate",
        titles: &[simulate::TITLES],
        measure: simulate::measure,
    },
];
