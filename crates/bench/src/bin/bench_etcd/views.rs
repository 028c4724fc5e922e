//! `show` against a pull of the kinds that the view is made of.

use calipam_bench::{check, child};

use super::RUNS;
use super::floor::{Floor, best, pull};

const BLOCKS: &str = "/calico/ipam/v2/assignment/";
const AFFINITIES: &str = "/calico/ipam/v2/host/";
const NODES: &str = "/calico/resources/v3/projectcalico.org/nodes/";
const POOLS: &str = "/calico/resources/v3/projectcalico.org/ippools/";
const CLUSTER: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/";

/// The views, and what they are made of. What is a single key hardly counts.
const VIEWS: [(&[&str], &[&str]); 5] = [
    (&["show"], &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER]),
    (&["show", "--blocks"], &[BLOCKS, POOLS, CLUSTER]),
    (&["show", "--nodes"], &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER]),
    (&["show", "--borrowed"], &[BLOCKS, POOLS, CLUSTER]),
    (&["show", "--configuration"], &[POOLS, CLUSTER]),
];

/// One line of the table.
pub struct View {
    command: String,
    floor: Floor,
    measured: child::Measured,
}

pub fn measure(program: &str, endpoint: &str, keys: &[Vec<u8>]) -> Result<Vec<View>, String> {
    let mut views = Vec::new();
    for (command, prefixes) in VIEWS {
        let (mut floors, mut runs) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            floors.extend(pull(endpoint, keys, prefixes)?);
            runs.push(check::run(program, command, &["--etcd-endpoints", endpoint])?);
        }
        views.push(View { command: command.join(" "), floor: best(floors)?, measured: child::best(runs)? });
    }
    Ok(views)
}

pub fn print<'r>(rows: impl Iterator<Item = (u64, &'r [View])>) {
    println!("| allocations | command | bytes pulled | floor | time | ratio | peak memory |");
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for (allocations, views) in rows {
        for View { command, floor, measured } in views {
            println!(
                "| {allocations} | `{command}` | {:.0} MB | {:.2} s | {:.2} s | {:.2} | {:.0} MiB |",
                floor.bytes as f64 / 1e6,
                floor.seconds,
                measured.seconds,
                measured.seconds / floor.seconds,
                measured.peak_mib,
            );
        }
    }
}
