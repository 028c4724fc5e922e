//! A small cluster in memory, and the true holders of its addresses.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::task::{Context, Poll, Waker};

use calipam_assign::{Allocator, Error, Record, Store};
use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};
use calipam_testkit::memory::{Fault, MemoryStore};
use jiff::Timestamp;
use serde_json::json;

use crate::scheduler::Rng;

pub(crate) const NODES: [&str; 3] = ["a", "b", "c"];
const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// The properties of a cluster.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    pub strict_affinity: bool,
    /// Seconds.
    pub cooldown: i64,
    /// The clock runs so fast that empty blocks may be taken from their owners.
    pub empty_blocks_are_old: bool,
    /// The clock is set, an hour forward or back, while clients are at work.
    pub clock_jumps: bool,
    /// Some answers to writes are lost, by this seed.
    pub lost_answers: Option<u64>,
}

/// A pod that has its addresses.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub node: String,
    pub handle: String,
    pub addresses: Vec<IpAddr>,
}

pub(crate) struct World {
    pub store: MemoryStore,
    pub shape: Shape,
    /// The holders of addresses, from their assignment to the beginning of their release.
    holders: RefCell<BTreeMap<IpAddr, String>>,
    pub pods: RefCell<Vec<Pod>>,
    /// Handles of operations that have begun and not ended. They may hold addresses or not.
    doubtful: RefCell<BTreeSet<String>>,
}

impl World {
    pub(crate) fn new(shape: Shape) -> Self {
        let store = MemoryStore::new("2026-05-01T10:00:00Z".parse::<Timestamp>().unwrap()).interleaved();
        for (name, cidr, size) in [("v4", "10.0.0.0/27", 30), ("v6", "fd00::/123", 126)] {
            let spec = json!({"spec": {"cidr": cidr, "blockSize": size, "nodeSelector": "all()"}});
            store.put(&format!("{RESOURCES}/ippools/{name}"), spec.to_string());
        }
        for node in NODES {
            let name = json!({"metadata": {"name": node}, "spec": {}});
            store.put(&format!("{RESOURCES}/nodes/{node}"), name.to_string());
        }
        let config = json!({"strict_affinity": shape.strict_affinity, "auto_allocate_blocks": true,
            "ipCooldownSeconds": shape.cooldown});
        store.put("/calico/ipam/v2/config", config.to_string());
        if let Some(seed) = shape.lost_answers {
            let mut rng = Rng(seed);
            store.set_fault(move || match rng.below(40) {
                0 => Fault::AnswerLost,
                1 => Fault::Lost,
                _ => Fault::None,
            });
        }
        let (holders, pods, doubtful) = Default::default();
        Self { store, shape, holders, pods, doubtful }
    }

    /// Notes that an operation on a handle begins.
    pub(crate) fn begin(&self, handle: &str) {
        self.doubtful.borrow_mut().insert(handle.to_owned());
    }

    /// Notes that the operation has ended, so that the handle's addresses are known.
    pub(crate) fn end(&self, handle: &str) {
        self.doubtful.borrow_mut().remove(handle);
    }

    /// Gives a pod its addresses and writes its endpoint.
    pub(crate) fn give(&self, pod: Pod) {
        for address in &pod.addresses {
            let before = self.holders.borrow_mut().insert(*address, pod.handle.clone());
            assert_eq!(before, None, "{address} is given to {} while another holds it", pod.handle);
        }
        let networks: Vec<String> = pod.addresses.iter().map(|a| IpNet::from(*a).to_string()).collect();
        let container = pod.handle.trim_start_matches("k8s-pod-network.");
        let endpoint = json!({"kind": "WorkloadEndpoint", "metadata": {"name": endpoint_name(&pod), "namespace": "default"},
            "spec": {"orchestrator": "k8s", "node": pod.node, "containerID": container, "pod": container,
                "endpoint": "eth0", "ipNetworks": networks}});
        self.store.put(
            &format!("{RESOURCES}/workloadendpoints/default/{}", endpoint_name(&pod)),
            endpoint.to_string(),
        );
        self.pods.borrow_mut().push(pod);
    }

    /// Withdraws a pod's addresses, which are about to be released.
    pub(crate) fn withdraw(&self, pod: &Pod) {
        for address in &pod.addresses {
            let before = self.holders.borrow_mut().remove(address);
            assert_eq!(before.as_ref(), Some(&pod.handle), "{address} was taken from its pod");
        }
        self.store.remove(&format!("{RESOURCES}/workloadendpoints/default/{}", endpoint_name(pod)));
        self.begin(&pod.handle);
    }

    /// Checks the invariants of every moment: the address of a pod is recorded for it in one block, and no handle
    /// counts fewer addresses than blocks record.
    pub(crate) fn assert_sound(&self, seed: u64) {
        if self.store.take_changes().is_empty() {
            return;
        }
        let (blocks, handles) = self.objects();
        let mut recorded: BTreeMap<IpAddr, String> = BTreeMap::new();
        let mut counts: BTreeMap<(String, IpNet), i64> = BTreeMap::new();
        for block in &blocks {
            for held in block.allocations() {
                let Some(handle) = held.attribute.to_attribute().handle else { continue };
                let other = recorded.insert(held.address, handle.clone());
                assert_eq!(other, None, "seed {seed}: two blocks record {}", held.address);
                *counts.entry((handle, block.cidr())).or_default() += 1;
            }
        }
        for (address, holder) in &*self.holders.borrow() {
            assert_eq!(recorded.get(address), Some(holder), "seed {seed}: {address} of {holder} is lost");
        }
        for ((handle, block), count) in counts {
            let counted = handles.get(&handle).map_or(0, |object| object.count(block));
            assert!(
                counted >= count,
                "seed {seed}: {handle} counts {counted} of {count} addresses in {block}"
            );
        }
    }

    /// Releases addresses that interrupted operations may have left, as a runtime does that repeats DEL.
    pub(crate) fn clean_up(&self) {
        self.store.set_fault(|| Fault::None);
        let allocator = Allocator::new(&self.store);
        for handle in std::mem::take(&mut *self.doubtful.borrow_mut()) {
            match run(allocator.release_by_handle_wholly(&handle)) {
                Ok(()) | Err(Error::NoHandle(_)) => {}
                Err(error) => panic!("{handle} cannot be released: {error}"),
            }
        }
    }

    /// Stops all pods.
    pub(crate) fn stop_all(&self) {
        for pod in std::mem::take(&mut *self.pods.borrow_mut()) {
            self.withdraw(&pod);
        }
        self.clean_up();
    }

    /// Checks the invariants without operations under way: blocks record and handles count the addresses of pods alone.
    pub(crate) fn assert_settled(&self, seed: u64) {
        let (blocks, handles) = self.objects();
        let mut counts: BTreeMap<String, BTreeMap<IpNet, i64>> = BTreeMap::new();
        for block in &blocks {
            for held in block.allocations().filter(|held| !held.attribute.is_cooling()) {
                let handle = held.attribute.to_attribute().handle.unwrap_or_default();
                let holder = self.holders.borrow().get(&held.address).cloned();
                assert_eq!(holder.as_ref(), Some(&handle), "seed {seed}: {} leaks", held.address);
                *counts.entry(handle).or_default().entry(block.cidr()).or_default() += 1;
            }
        }
        let counted: BTreeMap<String, BTreeMap<IpNet, i64>> =
            handles.iter().map(|(id, handle)| (id.clone(), handle.blocks().collect())).collect();
        assert_eq!(counted, counts, "seed {seed}: handles and blocks disagree");
    }

    fn objects(&self) -> (Vec<Block>, BTreeMap<String, Handle>) {
        let (mut blocks, mut handles) = (Vec::new(), BTreeMap::new());
        for (path, value, _) in self.store.values("/calico/ipam/v2/") {
            let key = Key::parse(&path).unwrap().unwrap();
            match Record::decode(&key, &value) {
                Some(Record::Block(block)) => blocks.push((*block).clone()),
                Some(Record::Handle(handle)) => drop(handles.insert(handle.id().to_string(), handle)),
                Some(Record::Undecodable { key, reason }) => panic!("{key}: {reason}"),
                _ => {}
            }
        }
        (blocks, handles)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot { taken_at: self.store.now(), rechecked: true, ..Snapshot::default() };
        for (path, value, revision) in self.store.values("/calico/") {
            snapshot.add_entry(path.as_bytes(), &value, revision);
        }
        snapshot.mark_read(ETCD_SOURCES);
        snapshot
    }
}

/// The name of an endpoint: node, orchestrator, pod and interface, dashes doubled in each.
fn endpoint_name(pod: &Pod) -> String {
    let container = pod.handle.trim_start_matches("k8s-pod-network.").replace('-', "--");
    format!("{}-k8s-{container}-eth0", pod.node)
}

/// Runs an operation to its end, without others in between.
pub(crate) fn run<T>(operation: impl Future<Output = T>) -> T {
    let mut operation = std::pin::pin!(operation);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = operation.as_mut().poll(&mut context) {
            return result;
        }
    }
}
