//! Addresses in pools that pods and services have without Calico IPAM: those from another CNI plugin or another load
//! balancer, those that bypass IPAM, and floating ones. No block records them for their owners, so Calico assigns them
//! to pods.

use std::net::IpAddr;

use calipam_model::pod::evidence;
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::{Coverage, DatastoreKind, Source, WhySkipped};
use calipam_model::text::Text;

use super::address::{Address, new_finding};
use crate::claim::Claim;
use crate::code::Code;
use crate::finding::{AddressEvidence, Finding};
use crate::index::{IndexedBlock, Owner, Record, Use};
use crate::names::{name_of_pod, names_of_owners, short};
use crate::{Context, FastSet};

/// Checks addresses of pods and services that Calico does not know to be in use.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let are_read = snapshot.has_read(Source::Pools) && snapshot.has_read(Source::Blocks);
    // Clusters with an older Calico have no reservations.
    let reservations = snapshot.coverage.get(&Source::Reservations);
    let are_known = matches!(
        reservations,
        Some(Coverage::Read | Coverage::Skipped(WhySkipped::NotInstalled(_)))
    );
    if context.index.services_only || !are_read || !are_known {
        return;
    }
    if snapshot.has_read(Source::Pods) {
        check_pods(context, out);
    }
    if snapshot.has_read(Source::Services) {
        check_services(context, out);
    }
}

/// Checks the addresses that other load balancers gave to services. A node's own address is another rule's subject.
fn check_services(context: &Context<'_>, out: &mut Vec<Finding>) {
    for (position, service) in (0..).zip(&context.snapshot.services) {
        if service.value.deleting {
            continue;
        }
        for address in &service.value.ingress {
            if context.index.node_of_own_address(*address).is_none() {
                out.extend(unrecorded(
                    context,
                    Owner::Service(position),
                    *address,
                    Origin::Foreign,
                ));
            }
        }
    }
}

/// Checks the addresses that running pods name, and that Calico did not assign.
fn check_pods(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let node_names = snapshot.nodes.iter().flat_map(|node| node.value.names());
    let node_texts: Vec<Text> = node_names.map(Text::new).collect();
    let packed_nodes: FastSet<&[u8]> = node_texts.iter().map(|name| name.as_ref().packed()).collect();
    for (position, pod) in (0..).zip(&snapshot.pods) {
        let pod = &pod.value;
        // If the pod has no sandbox with a network, the address could be from an earlier sandbox.
        let is_ending = pod.finished || pod.deleting;
        let has_sandbox = pod.running && pod.ready && !is_ending;
        if pod.host_network || !has_sandbox {
            continue;
        }

        // If Calico networks the pod, its status repeats the addresses that Calico assigned.
        let is_networked_by_calico = match snapshot.datastore {
            DatastoreKind::Kubernetes => pod.is_annotated(),
            DatastoreKind::Etcd | DatastoreKind::EtcdV2 => packed_nodes.contains(pod.node().packed()),
        };
        let mut wanted = evidence::NO_IPAM | evidence::FLOATING;
        if !is_networked_by_calico {
            wanted |= evidence::STATUS;
        }
        for (address, evidence) in pod.evidence() {
            let wanted_evidence = evidence & wanted;
            if wanted_evidence == 0 {
                continue;
            }
            let origin = Origin::from_evidence(wanted_evidence);
            out.extend(conflict(context, position, *address, origin));
            out.extend(unrecorded(context, Owner::Pod(position), *address, origin));
        }
    }
}

/// The way in which a pod or service has an address without Calico IPAM.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    /// The annotation `ipAddrsNoIpam` names it.
    NoIpam,
    /// The annotation `floatingIPs` names it.
    Floating,
    /// Another CNI plugin or load balancer gave it.
    Foreign,
}

impl Origin {
    /// The origin of an address by the sources that name it. An annotation counts more than the pod's status.
    fn from_evidence(sources: evidence::Bits) -> Self {
        if sources & evidence::NO_IPAM != 0 {
            Self::NoIpam
        } else if sources & evidence::FLOATING != 0 {
            Self::Floating
        } else {
            Self::Foreign
        }
    }

    /// Continues a sentence that says whose address it is.
    fn clause(self) -> &'static str {
        match self {
            Self::NoIpam => ", whose annotation ipAddrsNoIpam names it",
            Self::Floating => ", whose annotation floatingIPs names it",
            Self::Foreign => ", which has it from another CNI plugin",
        }
    }
}

/// Reports an address that Calico has given to another pod, node or service.
fn conflict(context: &Context<'_>, position: u32, address: IpAddr, origin: Origin) -> Option<Finding> {
    let index = &context.index;
    index.enabled_pool_around(address)?;
    let owner = Owner::Pod(position);
    let pod = &context.snapshot.pods[position as usize].value;
    let mut uses: Vec<Use> = index.uses_of(address).to_vec();
    uses.retain(|used| index.identity(used.owner) != index.identity(owner));
    let mut records: Vec<Record<'_, '_>> = index.records_of(address).collect();
    records.retain(|record| !record.allocation.attribute.is_cooling());

    let is_of_other_pod = |record: &Record<'_, '_>| {
        let Some((namespace, name)) = Claim::of(&record.allocation.attribute).pod() else {
            return false;
        };
        if pod.namespace() == *namespace && pod.name() == *name {
            return false;
        }
        let other = index.pod(Text::new(&namespace).as_ref(), Text::new(&name).as_ref());
        other.is_some_and(|other| !context.snapshot.pods[other as usize].value.finished)
    };
    if uses.is_empty() && !records.iter().any(is_of_other_pod) {
        return None;
    }

    let other_users = context.index.describe_users(address, &uses);
    uses.push(Use { address, owner });
    uses.sort_unstable();
    let address = Address {
        address,
        records: &records,
        uses: &uses,
        blocks: index.group_around(address),
    };
    Some(new_finding(
        context,
        Code::DuplicateAddress,
        &address,
        |evidence| {
            let name = short(&name_of_pod(pod));
            let clause = origin.clause();
            if !other_users.is_empty() {
                return format!("is used by {} and {name}{clause}", names_of_owners(&other_users));
            }
            let mut holders = evidence.holding().map(|record| record.holder());
            let recorded = holders.next().unwrap_or_default();
            format!("is used by {name}{clause}, but recorded for {recorded}")
        },
    ))
}

/// Reports an address in a pool for workloads that its owner uses, but that no block records.
fn unrecorded(context: &Context<'_>, owner: Owner, address: IpAddr, origin: Origin) -> Option<Finding> {
    let index = &context.index;
    let pool = index.enabled_pool_around(address)?;
    if !pool.allows(PoolUse::Workload) {
        return None;
    }
    if !index.uses_of(address).is_empty() || index.is_unknown(address.into()) {
        return None;
    }
    let mut reserved = context.snapshot.reserved_cidrs();
    if reserved.any(|cidr| cidr.contains(&address)) {
        return None;
    }

    let mut smallest_block: Option<&IndexedBlock<'_>> = None;
    for block in index.blocks_around(address) {
        let could_record = match block.usable {
            Some(usable) => usable.allocation_of(address).is_some(),
            None => true,
        };
        if could_record {
            return None;
        }
        smallest_block = Some(block);
    }
    let place = match smallest_block {
        Some(block) => format!("free in {}", block.key),
        None => "in no block".to_owned(),
    };

    let address = Address {
        address,
        records: &[],
        uses: &[Use { address, owner }],
        blocks: smallest_block.map_or(&[][..], std::slice::from_ref),
    };
    let describe = |evidence: &AddressEvidence| {
        let users = evidence.users();
        if origin == Origin::Floating {
            format!("is a floating address of {users}, but not assigned by Calico and {place}")
        } else {
            format!("is used by {users}, but not assigned by Calico and {place}")
        }
    };
    Some(new_finding(context, Code::UnrecordedAddress, &address, describe))
}
