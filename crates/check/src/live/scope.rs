//! What is checked again, and what that needs to be known.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::endpoint::Endpoint;
use calipam_model::handle::{Handle, clean_id};
use calipam_model::pod::Pod;
use calipam_model::snapshot::{Snapshot, Source, Versioned};
use calipam_model::text::{Text, TextRef};

use super::touched::{Touched, pod_of};
use crate::cidr_set::CidrSet;
use crate::claim::Claim;
use crate::finding::Subject;
use crate::owner::{claimed_identities, each_identity, texts_of_pod};
use crate::parallel::in_parts;
use crate::rules::{Part, hash_of_handle};

/// What is checked again.
pub(super) struct Scope {
    pub part: Part,
    /// Endpoints and pods by the names that findings have for them.
    workloads: HashSet<String>,
    /// Identities of endpoints and pods that decide about unused addresses, or are checked themselves.
    named: HashSet<Vec<u8>>,
}

impl Scope {
    /// All whose findings may be others now. `unused` are addresses that blocks record and nothing used before the change.
    pub(super) fn new(mut touched: Touched, snapshot: &Snapshot, unused: &BTreeSet<IpAddr>) -> Self {
        add_workloads(&mut touched, snapshot);
        add_unused(&mut touched, snapshot, unused);
        add_same_handle(&mut touched, snapshot);
        add_claiming_handles(&mut touched, snapshot);

        let addresses = touched.addresses.into_iter().map(IpNet::from);
        let addresses = CidrSet::new(touched.blocks.into_iter().chain(addresses));
        let mut named = touched.pods;
        named.extend(claimed_in(&addresses, snapshot));
        let part = Part { addresses, handles: touched.handles };
        Self { part, workloads: touched.workloads, named }
    }

    /// True for the subject of a finding that the rules decide about within this scope: what is not about addresses, handles or
    /// workloads is checked as a whole.
    pub(super) fn decides(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Address(address) => self.part.addresses.contains(*address),
            Subject::Handle(id) => {
                self.part.handles.contains(&hash_of_handle(Text::new(clean_id(id)).as_ref()))
            }
            Subject::Endpoint(name) => self.workloads.contains(name),
            _ => true,
        }
    }
}

/// Whether an endpoint is live, and what a pod owns, depends on the other: all of a touched pod are touched.
fn add_workloads(touched: &mut Touched, snapshot: &Snapshot) {
    if touched.pods.is_empty() || !snapshot.has_read(Source::Pods) {
        return;
    }
    let pods = touched.pods.clone();
    let mut key = Vec::new();
    let mut is_touched =
        |namespace, pod| pod_of(&mut key, namespace, pod).is_some_and(|id| pods.contains(id));
    let endpoints = snapshot.endpoints.iter().map(|endpoint| &endpoint.value);
    let of_pods = snapshot.pods.iter().map(|pod| &pod.value);
    endpoints.filter(|e| is_touched(e.namespace(), e.pod())).for_each(|e| touched.note_endpoint(e));
    of_pods.filter(|pod| is_touched(pod.namespace(), pod.name())).for_each(|pod| touched.note_pod(pod));
}

/// What is not used is checked by those whom its record names: a workload, or a node that workloads name.
fn add_unused(touched: &mut Touched, snapshot: &Snapshot, unused: &BTreeSet<IpAddr>) {
    if touched.claimable.is_empty() {
        return;
    }
    for block in &snapshot.blocks {
        let Some(records) = block.value.content.usable() else { continue };
        for address in unused.range(range_of(block.value.key)) {
            let Some(allocation) = records.allocation_of(*address) else { continue };
            let claim = Claim::of(&allocation.attribute);
            let is_touched = match &claim {
                Claim::Tunnel { node, .. } => touched.nodes.contains(node),
                claim => claimed_identities(claim).iter().any(|id| touched.claimable.contains(id)),
            };
            if is_touched {
                touched.addresses.insert(*address);
            }
        }
    }
}

/// All addresses of a handle are of one sandbox: one that is in use keeps the others.
fn add_same_handle(touched: &mut Touched, snapshot: &Snapshot) {
    if touched.handles.is_empty() {
        return;
    }
    for records in snapshot.blocks.iter().filter_map(|block| block.value.content.usable()) {
        let is_touched =
            |id: TextRef<'_>| touched.handles.contains(&hash_of_handle(id.cut_at_carriage_return()));
        let of_handles = records.handles().filter(|(_, id)| is_touched(*id));
        let addresses = of_handles.filter_map(|(ordinal, _)| Some(records.allocation(ordinal)?.address));
        touched.addresses.extend(addresses);
    }
}

/// A finding about a handle names the owners of the blocks that it names.
fn add_claiming_handles(touched: &mut Touched, snapshot: &Snapshot) {
    if touched.blocks.is_empty() {
        return;
    }
    let blocks = &touched.blocks;
    let found = in_parts(snapshot.handles.len(), |range| {
        let handles = snapshot.handles[range].iter().map(|handle| &handle.value);
        let claiming = handles.filter(|handle| handle.blocks().any(|(block, _)| blocks.contains(&block)));
        claiming.map(hash_of).collect::<Vec<u64>>()
    });
    touched.handles.extend(found.into_iter().flatten());
}

fn hash_of(handle: &Handle) -> u64 {
    hash_of_handle(handle.id().cut_at_carriage_return())
}

/// The identities of endpoints and pods that the records of addresses name.
fn claimed_in(addresses: &CidrSet, snapshot: &Snapshot) -> HashSet<Vec<u8>> {
    let mut claimed = HashSet::new();
    for block in &snapshot.blocks {
        if addresses.within(block.value.key).next().is_none() {
            continue;
        }
        let records = block.value.content.usable().into_iter().flat_map(|block| block.allocations());
        let here = records.filter(|allocation| addresses.contains(allocation.address));
        claimed.extend(here.flat_map(|a| claimed_identities(&Claim::of(&a.attribute))));
    }
    claimed
}

fn range_of(block: IpNet) -> std::ops::RangeInclusive<IpAddr> {
    block.network()..=block.broadcast()
}

/// What of the long lists decides about what is checked again.
pub(super) struct Needed {
    pub endpoints: Vec<Versioned<Endpoint>>,
    pub pods: Vec<Versioned<Pod>>,
    pub handles: Vec<Versioned<Handle>>,
}

impl Needed {
    /// `also` are addresses that are not checked, and of which it has to be known who uses them.
    pub(super) fn new(scope: &Scope, snapshot: &Snapshot, also: impl Iterator<Item = IpAddr>) -> Self {
        let handles = in_parts(snapshot.handles.len(), |range| {
            let handles = snapshot.handles[range].iter();
            handles.filter(|h| scope.part.handles.contains(&hash_of(&h.value))).cloned().collect::<Vec<_>>()
        });
        let mut chosen = Chosen::new(scope, snapshot, also);
        while chosen.grow(snapshot) {}
        Self {
            endpoints: picked(&snapshot.endpoints, &chosen.endpoints),
            pods: picked(&snapshot.pods, &chosen.pods),
            handles: handles.concat(),
        }
    }
}

fn picked<T: Clone>(list: &[T], chosen: &[bool]) -> Vec<T> {
    list.iter().zip(chosen).filter(|(_, chosen)| **chosen).map(|(object, _)| object.clone()).collect()
}

/// Endpoints and pods, by position; with each all endpoints and pods of its name, without which it would seem to be another's.
struct Chosen {
    endpoints: Vec<bool>,
    pods: Vec<bool>,
    named: HashSet<Vec<u8>>,
    /// There are names that were not looked for yet.
    is_growing: bool,
}

impl Chosen {
    /// Those that use one of the addresses. With them, of each node that does not exist or takes no pods, one that is there: the
    /// rules ask whether any is.
    fn new(scope: &Scope, snapshot: &Snapshot, also: impl Iterator<Item = IpAddr>) -> Self {
        let in_use = CidrSet::new(also.map(IpNet::from));
        let is_near = |address: IpAddr| scope.part.addresses.contains(address) || in_use.contains(address);
        let endpoints = in_parts(snapshot.endpoints.len(), |range| {
            let endpoints = snapshot.endpoints[range].iter();
            endpoints.map(|endpoint| endpoint.value.addresses().any(is_near)).collect::<Vec<bool>>()
        });
        let named_by = |pod: &Pod| pod.evidence().iter().any(|(address, _)| is_near(*address));
        let mut chosen = Self {
            endpoints: endpoints.concat(),
            pods: snapshot.pods.iter().map(|pod| named_by(&pod.value)).collect(),
            named: scope.named.clone(),
            is_growing: true,
        };
        chosen.add_one_of_nodes(snapshot);
        chosen
    }

    fn add_one_of_nodes(&mut self, snapshot: &Snapshot) {
        let nodes = snapshot.nodes.iter().map(|node| &node.value);
        let names: Vec<Text> = nodes.filter(|node| !node.tainted).map(|node| Text::new(&node.name)).collect();
        let usual: HashSet<&[u8]> = names.iter().map(|name| name.as_ref().packed()).collect();
        let (mut of_endpoints, mut of_pods) = (HashSet::new(), HashSet::new());
        for (chosen, endpoint) in self.endpoints.iter_mut().zip(&snapshot.endpoints) {
            let node = endpoint.value.node().packed();
            *chosen |= !usual.contains(node) && of_endpoints.insert(node);
        }
        for (chosen, pod) in self.pods.iter_mut().zip(&snapshot.pods) {
            let pod = &pod.value;
            let node = pod.node().packed();
            if !pod.finished && !usual.contains(node) {
                *chosen |= of_pods.insert((node, pod.host_network));
            }
        }
    }

    /// Adds what has a name that is looked for, and looks for the names of all that was chosen; false where nothing was added.
    fn grow(&mut self, snapshot: &Snapshot) -> bool {
        if !self.is_growing {
            return false;
        }
        let known = self.named.len();
        let named = &self.named;
        let with_pods = !snapshot.pods.is_empty();
        let endpoints = in_parts(snapshot.endpoints.len(), |range| {
            let (mut key, mut names) = (Vec::new(), Vec::new());
            let mut chosen = self.endpoints[range.clone()].to_vec();
            for (chosen, endpoint) in chosen.iter_mut().zip(&snapshot.endpoints[range]) {
                let texts = endpoint.value.texts();
                each_identity(&mut key, &texts, |identity| *chosen |= named.contains(identity));
                if *chosen && with_pods {
                    names.extend(pod_of(&mut key, texts.namespace, texts.pod).map(<[u8]>::to_vec));
                }
            }
            (chosen, names)
        });
        let (endpoints, mut names): (Vec<Vec<bool>>, Vec<Vec<Vec<u8>>>) = endpoints.into_iter().unzip();
        let (mut key, mut of_pods) = (Vec::new(), Vec::new());
        for (chosen, pod) in self.pods.iter_mut().zip(&snapshot.pods) {
            let texts = texts_of_pod(&pod.value);
            each_identity(&mut key, &texts, |identity| *chosen |= named.contains(identity));
            if *chosen {
                of_pods.extend(pod_of(&mut key, texts.namespace, texts.pod).map(<[u8]>::to_vec));
            }
        }
        names.push(of_pods);
        self.endpoints = endpoints.concat();
        self.named.extend(names.into_iter().flatten());
        self.is_growing = self.named.len() > known;
        true
    }
}
