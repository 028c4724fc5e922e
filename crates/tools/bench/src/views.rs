//! `show` compared with reading the kinds of a view.

use std::fmt::Display;

use crate::Failed;
use crate::child::{self, Measured};

/// One line of the table.
pub(crate) struct View {
    pub command: String,
    /// The bytes and the time of the floor.
    pub floor_bytes: u64,
    pub floor_seconds: f64,
    pub measured: Measured,
}

impl View {
    /// The best of some runs of `command`, with its floor.
    pub(crate) fn new(
        command: &[&str],
        floor_bytes: u64,
        floor_seconds: f64,
        runs: Vec<Measured>,
    ) -> Result<Self, Failed> {
        Ok(Self { command: command.join(" "), floor_bytes, floor_seconds, measured: child::best(runs)? })
    }
}

/// Prints the views of each size of a cluster. `size` is the heading of the first column.
pub(crate) fn print<'r>(size: &str, rows: impl Iterator<Item = (impl Display, &'r [View])>) {
    println!("| {size} | command | bytes pulled | floor | time | ratio | peak memory |");
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for (size, views) in rows {
        for View { command, floor_bytes, floor_seconds, measured } in views {
            println!(
                "| {size} | `{command}` | {:.0} MB | {floor_seconds:.2} s | {:.2} s | {:.2} | {:.0} MiB |",
                *floor_bytes as f64 / 1e6,
                measured.seconds,
                measured.seconds / floor_seconds,
                measured.peak_mib,
            );
        }
    }
}
