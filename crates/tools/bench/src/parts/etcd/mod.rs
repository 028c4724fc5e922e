//! `calipam check` and `calipam show` on etcd, and `calipam check` on files, compared with the floor.

mod files;
mod floor;
mod phases;

use calipam_testkit::servers::EtcdOptions;

pub(super) use self::phases::TITLES as PHASES;
use crate::Failed;
use crate::bench::Bench;
use crate::child::{self, CHECK};
use crate::cluster::{seeded_etcd, sized};

/// Runs of each measurement.
const RUNS: usize = 3;

const BLOCKS: &str = "/calico/ipam/v2/assignment/";
const AFFINITIES: &str = "/calico/ipam/v2/host/";
const NODES: &str = "/calico/resources/v3/projectcalico.org/nodes/";
const POOLS: &str = "/calico/resources/v3/projectcalico.org/ippools/";
const CLUSTER: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/";

/// The commands and the prefixes that they read. Single keys are left out, since they hardly cost anything.
const COMMANDS: [(&str, &[&str]); 4] = [
    (CHECK, &["/calico/"]),
    ("show", &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER]),
    ("show --blocks", &[BLOCKS, POOLS, CLUSTER]),
    ("show --nodes", &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER]),
];

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failed> {
    let (program, allocations) = (bench.program, bench.number()?);
    let etcd = seeded_etcd(allocations, EtcdOptions::new())?;
    let (cluster, endpoint) = (sized(allocations), etcd.endpoint());
    let keys = floor::sample(&cluster);
    for (command, prefixes) in COMMANDS {
        let floor = || floor::pull(&endpoint, &keys, prefixes);
        let measured = || child::run(program, command, &["--etcd-endpoints", &endpoint]);
        bench.compare(command, RUNS, floor, measured)?;
    }
    files::measure(bench, &etcd)?;
    drop(etcd);
    bench.row(1, &phases::measure(&cluster, allocations));
    Ok(())
}
