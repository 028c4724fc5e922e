//! Measures histories of addresses and comparisons of states on etcd.

mod changes;
mod reading;

use std::path::Path;
use std::process::Command;

use calipam_testkit::servers::Etcd;
use tokio::runtime::Runtime;

use crate::cluster::seeded_etcd;
use crate::measured::{Compared, Measured, middle_and_slowest};
use crate::table::{self, Table};
use crate::{Failed, child, form, leak};

/// Runs of each query. The table shows the median and the slowest run.
const RUNS: usize = 21;
/// Runs of each comparison and of its floor. The fastest run counts.
const COMPARISONS: usize = 3;

const TITLES: [&str; 2] = [
    "allocations | kept revisions | <command | median | slowest",
    "allocations | <compared | reading both | diff | ratio | peak memory",
];

/// Measures each size and prints the tables.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    table::of_sizes(sizes, TITLES, |size, tables| measure(program, size, tables))
}

fn measure(program: &str, allocations: u64, [questions, comparisons]: &mut [Table; 2]) -> Result<(), Failed> {
    let etcd = seeded_etcd(allocations)?;
    let runtime = Runtime::new()?;
    // The folder is not in a memory-backed file system, whose files would count as used memory.
    let folder = tempfile::tempdir_in(".")?;
    let before = export(program, &etcd, folder.path(), "before")?;
    let past = runtime.block_on(changes::revision(&etcd))?;

    let changed = runtime.block_on(changes::make(&etcd))?;
    eprintln!("released {} addresses", changed.released);
    leak::every_tenth(&etcd, form::ETCD.pods)?;
    let after = export(program, &etcd, folder.path(), "after")?;

    let live = format!("etcd@{past}");
    let states = [
        ("two exports", [before.as_str(), after.as_str()]),
        ("a past revision and what is live", [live.as_str(), "etcd"]),
    ];
    for (name, states) in states {
        let compared = compare(program, &etcd, &runtime, states)?;
        comparisons.row(format!("{allocations} | {name} | {}", compared.cells()));
    }

    let mut ask_both = |revisions| {
        for (name, command) in [("history --ip", "history"), ("show --ip", "show")] {
            let [median, slowest] = ask(program, &etcd, command, &changed.address)?;
            questions
                .row(format!("{allocations} | {revisions} | `{name}` | {median:.0} ms | {slowest:.0} ms"));
        }
        Ok::<(), Failed>(())
    };
    ask_both(runtime.block_on(changes::churn(&etcd, &changed))?)?;
    ask_both(runtime.block_on(changes::compact(&etcd, changes::CHURN))?)
}

/// Writes an export and returns its path.
fn export(program: &str, etcd: &Etcd, folder: &Path, name: &str) -> Result<String, Failed> {
    let path = folder.join(format!("{name}.jsonl.zst")).display().to_string();
    let mut export = Command::new(program);
    child::measure(export.args(["export", &path, "--quiet", "--etcd-endpoints", &etcd.endpoint()]), &[0])?;
    Ok(path)
}

/// Compares two states. The floor reads both.
fn compare(program: &str, etcd: &Etcd, runtime: &Runtime, states: [&str; 2]) -> Result<Compared, Failed> {
    let floor = || Measured::of(|| runtime.block_on(reading::both(etcd, states)));
    let diff = || {
        let mut diff = Command::new(program);
        diff.args(["diff", "--settle", "0", "-o", "json"]).args(states);
        child::measure(diff.args(["--etcd-endpoints", &etcd.endpoint()]), &[1])
    };
    Compared::best_of(COMPARISONS, floor, diff)
}

/// Queries an address repeatedly. Returns the median and the slowest time in milliseconds.
fn ask(program: &str, etcd: &Etcd, command: &str, address: &str) -> Result<[f64; 2], Failed> {
    let ask = |_| {
        let mut asked = Command::new(program);
        asked.args([command, "--quiet", "--ip", address, "--etcd-endpoints", &etcd.endpoint()]);
        child::measure(&mut asked, &[0])
    };
    Ok(middle_and_slowest(&(0..RUNS).map(ask).collect::<Result<Vec<_>, _>>()?))
}
