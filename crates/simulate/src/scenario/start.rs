//! Takes the initial state of a simulated cluster from a snapshot.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use calipam_check::{Code, Options, Subject, check};
use calipam_model::affinity::Affinity;
use calipam_model::block::{Block, BlockContent};
use calipam_model::config::IpamConfig;
use calipam_model::handle::{Handle, clean_id};
use calipam_model::node::Node;
use calipam_model::pool::{Pool, Reservation};
use calipam_model::snapshot::{Snapshot, Versioned};

/// The initial state of a simulated cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Start {
    pub nodes: Vec<Node>,
    pub pools: Vec<Pool>,
    pub reservations: Vec<Reservation>,
    pub config: Option<IpamConfig>,
    pub blocks: Vec<Arc<Block>>,
    pub affinities: Vec<Affinity>,
    pub handles: Vec<Handle>,
    /// The pods that have addresses, by handle.
    pub pods: Vec<StartPod>,
    /// The number of blocks that cannot be decoded and are left out.
    pub left_out: usize,
}

/// A pod that already has addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartPod {
    pub handle: String,
    /// The node that the pod's owner record names.
    pub node: String,
    pub addresses: Vec<IpAddr>,
}

impl Start {
    /// The state of the cluster in a snapshot. Allocations whose records name a node and a pod become running pods, one
    /// for each handle. Leaked addresses have no pod: like the other allocations, they stay as they are.
    pub fn from_snapshot(snapshot: &Snapshot) -> Self {
        let mut blocks: Vec<Arc<Block>> = Vec::new();
        for stored in &snapshot.blocks {
            if let BlockContent::Sound(block) = &stored.value.content {
                blocks.push(Arc::new(Block::clone(block)));
            }
        }
        // The index of a node must not depend on the order in which it was read.
        let mut nodes = values(&snapshot.nodes);
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            nodes,
            pools: values(&snapshot.pools),
            reservations: values(&snapshot.reservations),
            config: snapshot.effective_ipam_config(),
            pods: pods(&blocks, &leaked(snapshot)),
            left_out: snapshot.blocks.len() - blocks.len(),
            blocks,
            affinities: values(&snapshot.affinities),
            handles: values(&snapshot.handles),
        }
    }

    /// The same cluster before any block was claimed.
    pub(super) fn without_blocks(&self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            pools: self.pools.clone(),
            reservations: self.reservations.clone(),
            config: self.config,
            ..Self::default()
        }
    }
}

/// Copies objects without their revisions.
fn values<T: Clone>(stored: &[Versioned<T>]) -> Vec<T> {
    stored.iter().map(|object| object.value.clone()).collect()
}

/// Returns the addresses that a check of the snapshot finds leaked.
fn leaked(snapshot: &Snapshot) -> HashSet<IpAddr> {
    let report = check(snapshot, &Options::default());
    let mut leaked = HashSet::new();
    for finding in &report.findings {
        if finding.code == Code::LeakedAddress
            && let Subject::Address(address) = finding.subject
        {
            leaked.insert(address);
        }
    }
    leaked
}

/// Returns the pods that the records in blocks name, one for each handle, sorted by handle. Skips leaked addresses, and
/// those of other owners, such as tunnels.
fn pods(blocks: &[Arc<Block>], leaked: &HashSet<IpAddr>) -> Vec<StartPod> {
    let mut pods: BTreeMap<String, StartPod> = BTreeMap::new();
    for block in blocks {
        for allocation in block.allocations() {
            if leaked.contains(&allocation.address) {
                continue;
            }
            let record = allocation.attribute.to_attribute();
            let owner = record.owner.unwrap_or_default();
            // Only pods have all of these.
            let (Some(handle), Some(node), Some(_)) = (record.handle, owner.get("node"), owner.get("pod"))
            else {
                continue;
            };

            let handle = clean_id(&handle).to_owned();
            let pod = pods.entry(handle.clone()).or_insert_with(|| StartPod {
                handle,
                node: node.clone(),
                addresses: Vec::new(),
            });
            pod.addresses.push(allocation.address);
        }
    }
    pods.into_values().collect()
}
