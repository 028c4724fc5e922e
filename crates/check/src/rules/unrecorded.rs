//! Addresses in pools that pods have without Calico IPAM: those from another CNI plugin, and those that bypass IPAM. No
//! block records them, so Calico could assign them to other pods.

use std::net::IpAddr;

use calipam_model::pod::evidence;
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::{Coverage, DatastoreKind, Source, WhySkipped};
use calipam_model::text::Text;

use super::addresses::Address;
use super::in_use::finding;
use crate::code::Code;
use crate::finding::Finding;
use crate::index::{IndexedBlock, Owner, Use};
use crate::{Context, FastSet};

/// Checks pod addresses that Calico does not know to be in use.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let are_read =
        [Source::Pods, Source::Pools, Source::Blocks].into_iter().all(|source| snapshot.has_read(source));
    // Clusters with an older Calico have no reservations.
    let reservations = snapshot.coverage.get(&Source::Reservations);
    let are_known =
        matches!(reservations, Some(Coverage::Read | Coverage::Skipped(WhySkipped::NotInstalled(_))));
    if context.index.services_only || !are_read || !are_known {
        return;
    }
    let nodes: Vec<Text> = snapshot.nodes.iter().flat_map(|node| node.value.names()).map(Text::new).collect();
    let nodes: FastSet<&[u8]> = nodes.iter().map(|name| name.as_ref().packed()).collect();
    for (position, pod) in (0..).zip(&snapshot.pods) {
        let pod = &pod.value;
        // If the pod has no sandbox with a network, the address could be from an earlier sandbox.
        if pod.finished || pod.deleting || pod.host_network || !pod.running || !pod.ready {
            continue;
        }
        // If Calico networks the pod, its status repeats the addresses that Calico assigned.
        let is_networked_by_calico = match snapshot.datastore {
            DatastoreKind::Kubernetes => pod.is_annotated(),
            DatastoreKind::Etcd | DatastoreKind::EtcdV2 => nodes.contains(pod.node().packed()),
        };
        let wanted =
            if is_networked_by_calico { evidence::NO_IPAM } else { evidence::NO_IPAM | evidence::STATUS };
        for address in pod.named_by(wanted) {
            out.extend(unrecorded(context, position, address));
        }
    }
}

fn unrecorded(context: &Context<'_>, position: u32, address: IpAddr) -> Option<Finding> {
    let index = &context.index;
    let pool = index.enabled_pool_around(address)?;
    let is_reserved = || context.snapshot.reserved_cidrs().any(|cidr| cidr.contains(&address));
    let around: Vec<&IndexedBlock<'_>> = index.blocks_around(address).rev().collect();
    let is_recorded =
        || around.iter().any(|block| block.usable.is_none_or(|block| block.allocation_of(address).is_some()));
    if !pool.allows(PoolUse::Workload)
        || !index.uses_of(address).is_empty()
        || index.is_unknown(address.into())
        || is_reserved()
        || is_recorded()
    {
        return None;
    }
    let blocks = around.first().map_or(&[][..], |block| std::slice::from_ref(*block));
    let place = blocks.first().map_or("in no block".to_owned(), |block| format!("free in {}", block.key));
    let uses = [Use { address, owner: Owner::Pod(position) }];
    let address = Address { address, records: &[], uses: &uses, blocks };
    Some(finding(context, Code::UnrecordedAddress, &address, |evidence| {
        format!("is used by {}, but not assigned by Calico and {place}", evidence.users())
    }))
}
