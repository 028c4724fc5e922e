//! What is checked again, and what that needs to be known.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::endpoint::Endpoint;
use calipam_model::handle::{Handle, clean_id};
use calipam_model::pod::Pod;
use calipam_model::snapshot::{Snapshot, Source, Versioned};
use calipam_model::text::{Text, TextRef};
use foldhash::fast::FixedState;

use super::layout::Reach;
use super::near::{Near, place_of_block};
use super::places::Places;
use super::touched::{Touched, pod_of};
use crate::cidr_set::CidrSet;
use crate::claim::Claim;
use crate::finding::Subject;
use crate::owner::{claimed_identities, each_identity, texts_of_pod};
use crate::rules::{Part, hash_of_name};

/// What is checked again.
pub(super) struct Scope {
    pub part: Part,
    pub reach: Reach,
    /// Endpoints and pods by the names that findings have for them.
    workloads: HashSet<String>,
    /// Identities of endpoints and pods that decide about unused addresses, or are checked themselves.
    named: HashSet<Vec<u8>>,
}

impl Scope {
    /// All whose findings may be others now. `unused` are addresses that blocks record and nothing used before the change.
    pub(super) fn new(
        mut touched: Touched,
        places: &Places,
        snapshot: &Snapshot,
        unused: &BTreeSet<IpAddr>,
    ) -> Self {
        add_workloads(&mut touched, snapshot);
        add_unused(&mut touched, snapshot, unused);
        add_claiming_handles(&mut touched, snapshot);
        add_same_handle(&mut touched, places, snapshot);

        let addresses = touched.addresses.into_iter().map(IpNet::from);
        let addresses = CidrSet::new(touched.blocks.iter().copied().chain(addresses));
        let mut named = touched.pods;
        named.extend(claimed_in(&addresses, snapshot));
        let part = Part { addresses, handles: touched.handles };
        let reach =
            Reach { is_rearranged: touched.is_rearranged, blocks: touched.blocks, nodes: touched.nodes };
        Self { part, reach, workloads: touched.workloads, named }
    }

    /// True for the subject of a finding that the rules decide about within this scope: what is not about addresses, handles or
    /// workloads is checked as a whole.
    pub(super) fn decides(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Address(address) => self.part.addresses.contains(*address),
            Subject::Handle(id) => {
                self.part.handles.contains(&hash_of_name(Text::new(clean_id(id)).as_ref()))
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

/// A finding about a handle names the owners of the blocks that it names.
fn add_claiming_handles(touched: &mut Touched, snapshot: &Snapshot) {
    let mut near = Near::new();
    touched.blocks.iter().for_each(|block| near.add(place_of_block(*block)));
    let handles = near.handles(&snapshot.handles, |handle| &handle.value).into_iter();
    let handles = handles.map(|position| &snapshot.handles[position].value);
    let claiming = handles.filter(|handle| handle.blocks().any(|(block, _)| touched.blocks.contains(&block)));
    touched.handles.extend(claiming.map(hash_of));
}

/// All addresses of a handle are of one sandbox: one that is in use keeps the others. After this each address that is recorded under
/// one of the handles is checked.
fn add_same_handle(touched: &mut Touched, places: &Places, snapshot: &Snapshot) {
    let mut near = Near::new();
    touched.handles.iter().for_each(|handle| places.add_recording(*handle, &mut near));
    let blocks = snapshot.blocks.iter().filter(|block| near.has(place_of_block(block.value.key)));
    for records in blocks.filter_map(|block| block.value.content.usable()) {
        let is_touched =
            |id: TextRef<'_>| touched.handles.contains(&hash_of_name(id.cut_at_carriage_return()));
        let of_handles = records.handles().filter(|(_, id)| is_touched(*id));
        let addresses = of_handles.filter_map(|(ordinal, _)| Some(records.allocation(ordinal)?.address));
        touched.addresses.extend(addresses);
    }
}

fn hash_of(handle: &Handle) -> u64 {
    hash_of_name(handle.id().cut_at_carriage_return())
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
    pub(super) fn new(
        scope: &Scope,
        places: &Places,
        snapshot: &Snapshot,
        also: impl Iterator<Item = IpAddr>,
    ) -> Self {
        let mut near = Near::new();
        scope.part.handles.iter().for_each(|handle| places.add_handle(*handle, &mut near));
        let handles = near.handles(&snapshot.handles, |handle| &handle.value).into_iter();
        let handles = handles.map(|position| &snapshot.handles[position]);
        let handles = handles.filter(|handle| scope.part.handles.contains(&hash_of(&handle.value)));

        let mut chosen = Chosen::new(scope, places, snapshot, also);
        while chosen.grow(places, snapshot) {}
        let endpoints = chosen.endpoints.iter().map(|position| snapshot.endpoints[*position].clone());
        let pods = snapshot.pods.iter().zip(&chosen.pods).filter(|(_, chosen)| **chosen);
        Self {
            endpoints: endpoints.collect(),
            pods: pods.map(|(pod, _)| pod.clone()).collect(),
            handles: handles.cloned().collect(),
        }
    }
}

/// Endpoints and pods, by position; with each all endpoints and pods of its name, without which it would seem to be another's.
struct Chosen {
    endpoints: BTreeSet<usize>,
    pods: Vec<bool>,
    named: HashSet<Vec<u8>>,
    /// Addresses whose users are chosen.
    addresses: [CidrSet; 2],
    /// What may have such an address, or a name that was looked for.
    near: Near,
    /// Names that were not looked for yet.
    new: Vec<Vec<u8>>,
    /// Nodes, packed, of each of which one endpoint is chosen.
    nodes: HashSet<Box<[u8]>>,
}

impl Chosen {
    /// Those that use one of the addresses. With them, of each node that does not exist or takes no pods, one that is there: the
    /// rules ask whether any is.
    fn new(scope: &Scope, places: &Places, snapshot: &Snapshot, also: impl Iterator<Item = IpAddr>) -> Self {
        let addresses = [scope.part.addresses.clone(), CidrSet::new(also.map(IpNet::from))];
        let mut near = Near::new();
        addresses.iter().for_each(|addresses| near.add_all(addresses));

        let nodes = snapshot.nodes.iter().map(|node| &node.value);
        let names: Vec<Text> = nodes.filter(|node| !node.tainted).map(|node| Text::new(&node.name)).collect();
        let usual: HashSet<&[u8], FixedState> = names.iter().map(|name| name.as_ref().packed()).collect();
        let unusual = places.nodes().filter(|(node, _)| !usual.contains(node));
        let nodes = unusual.map(|(node, place)| {
            near.add(place);
            node.into()
        });
        let nodes = nodes.collect();

        let is_near = |address: &IpAddr| addresses.iter().any(|addresses| addresses.contains(*address));
        let (mut of_nodes, mut pods) = (HashSet::new(), Vec::with_capacity(snapshot.pods.len()));
        for pod in snapshot.pods.iter().map(|pod| &pod.value) {
            let node = pod.node().packed();
            let is_first =
                !pod.finished && !usual.contains(node) && of_nodes.insert((node, pod.host_network));
            pods.push(is_first || pod.evidence().iter().any(|(address, _)| is_near(address)));
        }
        let new = scope.named.iter().cloned().collect();
        Self { endpoints: BTreeSet::new(), pods, named: scope.named.clone(), addresses, near, new, nodes }
    }

    /// Adds what has a name that is looked for, and looks for the names of all that was chosen; false where nothing was added.
    fn grow(&mut self, places: &Places, snapshot: &Snapshot) -> bool {
        self.new.drain(..).for_each(|name| places.add_named(&name, &mut self.near));
        let is_near = |address: IpAddr| self.addresses.iter().any(|addresses| addresses.contains(address));
        let (mut key, mut names) = (Vec::new(), Vec::new());
        let named = &self.named;
        let with_pods = !snapshot.pods.is_empty();
        for position in self.near.endpoints(&snapshot.endpoints, |endpoint| &endpoint.value) {
            let endpoint = &snapshot.endpoints[position].value;
            let texts = endpoint.texts();
            let mut is_chosen = self.endpoints.contains(&position) || endpoint.addresses().any(is_near);
            is_chosen |= !self.nodes.is_empty() && self.nodes.remove(texts.node.packed());
            each_identity(&mut key, &texts, |identity| is_chosen |= named.contains(identity));
            if is_chosen {
                self.endpoints.insert(position);
                if with_pods {
                    names.extend(pod_of(&mut key, texts.namespace, texts.pod).map(<[u8]>::to_vec));
                }
            }
        }
        for (chosen, pod) in self.pods.iter_mut().zip(&snapshot.pods) {
            let texts = texts_of_pod(&pod.value);
            each_identity(&mut key, &texts, |identity| *chosen |= named.contains(identity));
            if *chosen {
                names.extend(pod_of(&mut key, texts.namespace, texts.pod).map(<[u8]>::to_vec));
            }
        }
        self.new = names.into_iter().filter(|name| self.named.insert(name.clone())).collect();
        !self.new.is_empty()
    }
}
