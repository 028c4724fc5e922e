//! Addresses and their holders, selected by node, pool or pod.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use super::blocks::pool_of;
use crate::claim::{Claim, describe};
use crate::index::Record;
use crate::{Context, Options, Scope};

pub type PodName = (String, String);

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressList {
    /// The addresses, ascending.
    pub addresses: Vec<HeldAddress>,
}

/// An address and its holder.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldAddress {
    pub address: IpAddr,
    /// The node in the record, or else the owner of the block; `None` if neither is a node.
    pub node: Option<String>,
    /// `pod`, `virtual machine`, `service`, `tunnel` or `other`. For an address that a named pod uses, also `cooling`,
    /// `windows-reserved`, or `not recorded` if no readable block records it.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `namespace/name`, the kind of tunnel, or the handle; empty for an address that is not recorded.
    pub allocated_to: String,
    pub handle: Option<String>,
    /// `None` if the address is in no block.
    pub block: Option<IpNet>,
    pub pool: Option<String>,
}

/// Returns the allocated addresses in a scope. If `pods` names pods, returns only the addresses that are allocated to
/// one of them, or that one of them uses. Addresses that are cooling down or reserved have no holder, and are left out
/// unless a named pod uses them.
pub fn addresses(snapshot: &Snapshot, scope: &Scope, pods: &[PodName]) -> AddressList {
    let context = Context::new(snapshot, &Options::default());
    // The addresses of the named pods for which no record has been found yet.
    let mut unrecorded = used_by(snapshot, pods);
    let mut list = AddressList {
        addresses: Vec::new(),
    };
    for Record { block, allocation } in context.index.records() {
        let address = allocation.address;
        let record = allocation.attribute;
        let claim = Claim::of(&record);
        if !scope.has_network(address.into()) {
            continue;
        }
        let is_used = unrecorded.remove(&address);
        if matches!(claim, Claim::Cooling | Claim::WindowsReserved) && !is_used {
            continue;
        }

        let node = match record.get("node") {
            Some(node) => Some(node.to_string()),
            None => block.host().map(str::to_owned),
        };
        let is_in_scope = match &node {
            Some(node) => scope.has_node(node),
            None => scope.nodes.is_empty(),
        };
        let is_of_pods = pods.is_empty() || is_used || claim.pod().is_some_and(|pod| pods.contains(&pod));
        if !is_in_scope || !is_of_pods {
            continue;
        }

        let (kind, allocated_to) = match claim {
            Claim::Cooling => ("cooling", String::new()),
            Claim::WindowsReserved => ("windows-reserved", String::new()),
            claim => describe(&claim, &record),
        };
        list.addresses.push(HeldAddress {
            address,
            node,
            kind,
            allocated_to,
            handle: record
                .clean_handle()
                .map(|handle| handle.to_string())
                .filter(|id| !id.is_empty()),
            block: Some(block.key),
            pool: pool_of(&context, address.into()),
        });
    }

    unrecorded.retain(|address| scope.has_network((*address).into()));
    for address in unrecorded {
        list.addresses.push(HeldAddress {
            address,
            node: None,
            kind: "not recorded",
            allocated_to: String::new(),
            handle: None,
            block: context.index.blocks_around(address).next().map(|block| block.key),
            pool: pool_of(&context, address.into()),
        });
    }
    list.addresses.sort_by_key(|held| (held.address, held.block));
    list
}

/// Returns the addresses that these pods use or name, according to endpoints and Kubernetes.
fn used_by(snapshot: &Snapshot, pods: &[PodName]) -> BTreeSet<IpAddr> {
    let mut addresses = BTreeSet::new();
    if pods.is_empty() {
        return addresses;
    }
    let is_wanted = |namespace: String, name: String| pods.contains(&(namespace, name));
    for endpoint in snapshot.endpoints.iter().map(|stored| &stored.value) {
        if is_wanted(endpoint.namespace().to_string(), endpoint.pod().to_string()) {
            addresses.extend(endpoint.addresses());
        }
    }
    for pod in snapshot.pods.iter().map(|stored| &stored.value) {
        if is_wanted(pod.namespace().to_string(), pod.name().to_string()) {
            addresses.extend(pod.mentioned());
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &[u8] =
        br#"{"cidr":"10.0.0.0/29","affinity":"host:node-1","allocations":[0,1,2,3,null,null,null,null],
        "unallocated":[4,5,6,7],"attributes":[
        {"handle_id":"net.aaaaaaaaaaaaaaaa","secondary":{"node":"node-1","namespace":"ns","pod":"a"}},
        {"handle_id":"net.bbbbbbbbbbbbbbbb","secondary":{"node":"node-2","namespace":"ns","pod":"b"}},
        {"handle_id":"ns.old","secondary":{}},{"releasedAt":"2026-05-01T12:00:00Z"}]}"#;

    fn snapshot() -> Snapshot {
        let taken_at = "2026-05-01T12:00:01Z".parse().unwrap();
        let mut snapshot = Snapshot {
            taken_at,
            ..Snapshot::default()
        };
        snapshot.add_entry(b"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29", BLOCK, 1);
        let endpoint =
            br#"{"metadata":{"namespace":"ns","name":"node--2-k8s-b-eth0"},"spec":{"node":"node-2","pod":"b",
            "orchestrator":"k8s","endpoint":"eth0","ipNetworks":["10.0.0.1/32","10.0.0.3/32","10.0.0.5/32"]}}"#;
        let key = b"/calico/resources/v3/projectcalico.org/workloadendpoints/ns/node--2-k8s-b-eth0";
        snapshot.add_entry(key, endpoint, 2);
        snapshot
    }

    fn shown(scope: &Scope, pods: &[PodName]) -> Vec<String> {
        let list = addresses(&snapshot(), scope, pods).addresses.into_iter();
        list.map(|held| format!("{} {} {}", held.address, held.kind, held.allocated_to))
            .collect()
    }

    #[test]
    fn by_node_with_the_owner_of_the_block_for_old_records() {
        let scope = Scope::of_nodes(["node-1".to_owned()]);
        assert_eq!(shown(&scope, &[]), ["10.0.0.0 pod ns/a", "10.0.0.2 pod ns/old"]);
        assert_eq!(shown(&Scope::default(), &[]).len(), 3);
    }

    #[test]
    fn a_pod_has_the_addresses_that_are_recorded_or_used() {
        let pod = ("ns".to_owned(), "b".to_owned());
        let pods = [pod];
        let all = ["10.0.0.1 pod ns/b", "10.0.0.3 cooling ", "10.0.0.5 not recorded "];
        assert_eq!(shown(&Scope::default(), &pods), all);
        // The address that is recorded for the pod is recorded on another node.
        assert_eq!(shown(&Scope::of_nodes(["node-1".to_owned()]), &pods), all[1..]);
        assert!(shown(&Scope::default(), &[("ns".to_owned(), "c".to_owned())]).is_empty());
    }

    #[test]
    fn by_pool() {
        let scope = Scope::of_networks(["10.0.0.0/31".parse().unwrap()]);
        assert_eq!(shown(&scope, &[]), ["10.0.0.0 pod ns/a", "10.0.0.1 pod ns/b"]);
    }
}
