//! The parts of the benchmark.

mod cni;
mod etcd;
mod fleet;
mod history;
mod kubernetes;
mod live;
mod record;
mod release;
mod reports;
mod simulate;

use crate::Failed;
use crate::bench::{Bench, COMPARED, Table};

/// A part: its name, the titles of its tables, and the measurement of one size, which adds rows to the tables.
struct Part {
    name: &'static str,
    titles: &'static [&'static str],
    measure: fn(&mut Bench<'_>) -> Result<(), Failed>,
}

const PARTS: [Part; 11] = [
    Part { name: "etcd", titles: &[COMPARED, etcd::PHASES], measure: etcd::measure },
    Part { name: "kubernetes", titles: &[COMPARED], measure: kubernetes::measure },
    Part { name: "release", titles: &[release::TITLES], measure: release::measure },
    Part { name: "reports", titles: &reports::TITLES, measure: reports::measure },
    Part { name: "fleet", titles: &[COMPARED], measure: fleet::measure },
    Part { name: "live", titles: &[live::TITLES], measure: live::measure },
    Part { name: "record", titles: &[record::TITLES], measure: record::measure },
    Part { name: "history", titles: &[COMPARED, history::QUESTIONS], measure: history::measure },
    Part { name: "cni", titles: &[cni::TITLES], measure: cni::measure },
    Part { name: "cni-large", titles: &cni::large::TITLES, measure: cni::large::measure },
    Part { name: "simulate", titles: &[simulate::TITLES], measure: simulate::measure },
];

/// Measures a part for each size on the command line, and prints its tables. `name` is the name of a part in `cargo
/// xtask bench`, some with a datastore as the suffix.
pub(crate) fn run(name: &str, program: &str, sizes: &[String]) -> Result<(), Failed> {
    let (wanted, datastore) = match name.rsplit_once('-') {
        Some((part, datastore @ ("etcd" | "kubernetes"))) => (part, datastore),
        _ => (name, "etcd"),
    };
    let part = PARTS.iter().find(|part| part.name == wanted);
    let part = part.ok_or_else(|| format!("{name} is not a part of the benchmark"))?;
    let mut tables: Vec<Table> = part.titles.iter().map(|titles| Table::new(titles)).collect();
    for size in sizes {
        (part.measure)(&mut Bench { program, datastore, size, tables: &mut tables })?;
    }
    println!("{name}:");
    tables.iter().for_each(Table::print);
    Ok(())
}
