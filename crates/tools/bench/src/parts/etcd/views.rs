//! `show` compared with reading the kinds of the view.

use super::RUNS;
use super::floor::{best, pull};
use crate::views::View;
use crate::{Failed, check};

const BLOCKS: &str = "/calico/ipam/v2/assignment/";
const AFFINITIES: &str = "/calico/ipam/v2/host/";
const NODES: &str = "/calico/resources/v3/projectcalico.org/nodes/";
const POOLS: &str = "/calico/resources/v3/projectcalico.org/ippools/";
const CLUSTER: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/";

/// The views and their kinds; single keys hardly count.
const VIEWS: [(&[&str], &[&str]); 5] = [
    (&["show"], &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER]),
    (&["show", "--blocks"], &[BLOCKS, POOLS, CLUSTER]),
    (&["show", "--nodes"], &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER]),
    (&["show", "--borrowed"], &[BLOCKS, POOLS, CLUSTER]),
    (&["show", "--configuration"], &[POOLS, CLUSTER]),
];

pub(super) fn measure(program: &str, endpoint: &str, keys: &[Vec<u8>]) -> Result<Vec<View>, Failed> {
    let mut views = Vec::new();
    for (command, prefixes) in VIEWS {
        let (mut floors, mut runs) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            floors.extend(pull(endpoint, keys, prefixes)?);
            runs.push(check::run(program, command, &["--etcd-endpoints", endpoint])?);
        }
        let floor = best(floors)?;
        views.push(View::new(command, floor.bytes, floor.seconds, runs)?);
    }
    Ok(views)
}
