//! Names that begin with a text, for suggestions while a command line is written: few and small reads, whatever the
//! cluster holds. Nothing is read whole, and nothing is meant to be complete.

mod addresses;
mod etcd;
mod kubernetes;
mod page;

use std::collections::BTreeSet;

use calipam_model::affinity::AffinityType;
use calipam_model::snapshot::Snapshot;

use crate::error::Result;
use crate::store::{Datastore, Pending};

/// Most names of one answer; a few more where they keep it from looking complete.
pub(crate) const MOST: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// Nodes that are there, and nodes that hold affinities.
    Nodes,
    /// IP pools, by name.
    Pools,
    /// Blocks, by CIDR.
    Blocks,
    /// Addresses that are allocated; of many, the parts of networks that have some, such as `10.244.`.
    Addresses,
    /// Handles, by ID.
    Handles,
    /// Namespaces that are there, in etcd those that have endpoints.
    Namespaces,
}

impl Datastore {
    /// Names of a kind that begin with a text, ascending. If there are too many, those that are left out share no longer
    /// beginning than those that are given: what the names have in common is what all of them have in common.
    pub fn names<'a>(&'a self, kind: NameKind, begin: &'a str) -> Pending<'a, Result<BTreeSet<String>>> {
        Box::pin(async move {
            match self {
                Self::Etcd(client, _) => etcd::names(client, kind, begin).await,
                Self::Kubernetes(client) => kubernetes::names(client, kind, begin).await,
                Self::File(_) | Self::EtcdV2(..) => {
                    let snapshot = self.observe(&calipam_files::quiet()).await?;
                    Ok(page::few(in_snapshot(&snapshot, kind), begin))
                }
            }
        })
    }
}

/// All names of a kind in a file of data or in the tree of etcd v2, which are small or take too long to wait for.
fn in_snapshot(snapshot: &Snapshot, kind: NameKind) -> BTreeSet<String> {
    match kind {
        NameKind::Nodes => {
            let nodes = snapshot.nodes.iter().map(|node| node.value.name.clone());
            let hosts = snapshot.affinities.iter().filter(|held| held.value.key.kind == AffinityType::Host);
            nodes.chain(hosts.map(|held| held.value.key.node.clone())).collect()
        }
        NameKind::Pools => snapshot.pools.iter().map(|pool| pool.value.name.clone()).collect(),
        NameKind::Blocks => snapshot.blocks.iter().map(|block| block.value.key.to_string()).collect(),
        NameKind::Handles => handles(snapshot),
        NameKind::Namespaces => {
            let pods = snapshot.pods.iter().map(|pod| pod.value.namespace().to_string());
            pods.chain(snapshot.endpoints.iter().map(|one| one.value.namespace().to_string())).collect()
        }
        NameKind::Addresses => addresses::allocated(snapshot),
    }
}

fn handles(snapshot: &Snapshot) -> BTreeSet<String> {
    snapshot.handles.iter().map(|handle| handle.value.id().to_string()).collect()
}
