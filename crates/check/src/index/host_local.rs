//! Pods with addresses from the host-local plugin instead of Calico IPAM.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::key::Key;
use calipam_model::pod::Pod;
use calipam_model::snapshot::{DatastoreKind, Defect, Snapshot, Source};

use super::IndexedBlock;
use super::blocks::{blocks_around, index_blocks};
use crate::FastMap;
use crate::claim::Claim;

/// Returns true if host-local serves all pods and Calico IPAM serves none.
pub(crate) fn is_host_local(snapshot: &Snapshot) -> bool {
    snapshot.has_read(Source::Pods) && count_pods(snapshot, &index_blocks(snapshot, snapshot.taken_at)) > 0
}

/// Returns the number of pods that Calico networks and that have addresses, if host-local assigned all these addresses;
/// otherwise 0. Host-local assigned them if each address is in its node's range, no record says that Calico assigned
/// it, and at least one address has no record and is in a range that does not cover its pool.
pub(super) fn count_pods(snapshot: &Snapshot, blocks: &[IndexedBlock<'_>]) -> usize {
    let mut needed = [Source::Pods, Source::Nodes, Source::Pools, Source::Blocks].into_iter();
    let is_pool = |defect: &Defect| matches!(defect.key, Some(Key::Pool(_)));
    if !needed.all(|source| snapshot.has_read(source)) || snapshot.defects.iter().any(is_pool) {
        return 0;
    }

    let mut ranges_of_nodes: FastMap<&str, &[IpNet]> = FastMap::default();
    for node in snapshot.nodes.iter().map(|stored| &stored.value) {
        if !node.pod_cidrs.is_empty() {
            let name = node.kubernetes_name.as_deref().unwrap_or(&node.name);
            ranges_of_nodes.insert(name, &node.pod_cidrs);
        }
    }
    if ranges_of_nodes.is_empty() {
        return 0;
    }

    let mut pods_with_address = 0;
    let mut is_shown = false;
    for pod in snapshot.pods.iter().map(|stored| &stored.value) {
        let is_of_calico = snapshot.datastore != DatastoreKind::Kubernetes || pod.is_annotated();
        if !is_of_calico {
            continue;
        }
        for address in pod.addresses() {
            let node = pod.node().to_string();
            let ranges = ranges_of_nodes.get(node.as_str()).copied().unwrap_or_default();
            let Some(range) = ranges.iter().find(|range| range.contains(&address)) else {
                return 0;
            };
            let mut smallest_first = blocks_around(blocks, address).rev().peekable();
            let may_be_free = smallest_first.peek().is_none_or(|block| block.usable.is_some());
            let mut records = smallest_first
                .filter_map(|block| block.usable?.allocation_of(address))
                .peekable();
            let is_unrecorded = may_be_free && records.peek().is_none();
            if is_unrecorded && !is_shown {
                is_shown = !covers_pool(snapshot, *range, address);
            }
            if records.any(|record| is_assigned_to(&record.attribute, pod)) {
                return 0;
            }
        }
        if pod.addresses().next().is_some() {
            pods_with_address += 1;
        }
    }
    if is_shown { pods_with_address } else { 0 }
}

/// Returns true if the range covers the address's pool. An address in such a range need not be from host-local.
fn covers_pool(snapshot: &Snapshot, range: IpNet, address: IpAddr) -> bool {
    let mut pools = snapshot.pools.iter().map(|pool| pool.value.cidr);
    pools.any(|pool| pool.contains(&address) && range.contains(&pool))
}

/// Returns true if Calico's CNI plugin wrote the record for the pod. Records that `upgrade-ipam` wrote have no time
/// (facts 4.1), and do not count.
fn is_assigned_to(record: &AttributeRef<'_>, pod: &Pod) -> bool {
    let Claim::Pod {
        namespace, pod: name, ..
    } = Claim::of(record)
    else {
        return false;
    };
    record.allocated_at().is_some() && namespace == pod.namespace() && name == pod.name()
}
