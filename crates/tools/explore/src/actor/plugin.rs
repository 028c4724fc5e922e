//! The CNI plugin, and the kubelet that calls it: calipam's own code.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use calipam_assign::plugin::{Add, Container, Del, Failure, Gc, Host, Plugin, Wanted};
use calipam_assign::{Allocator, Error, MemoryStore, Store};
use calipam_model::IpNet;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::Actor;
use crate::invariants;
use crate::world::{Client, Footprint, Held, NodeLock, PODS, World};

const NETWORK: &str = "k8s-pod-network";
/// How far the clock of a node is ahead, so that what it has just recorded is too young to be judged.
const AHEAD: SignedDuration = SignedDuration::from_secs(30);
/// How often the kubelet calls DEL before it waits longer than anyone watches.
const ATTEMPTS: usize = 4;

/// A pod's call.
#[derive(Clone, Debug)]
pub struct Call {
    pub node: String,
    /// The pod, which is also the container.
    pub pod: String,
    pub wanted: Wanted,
    /// The datastore is Kubernetes.
    pub one_by_one: bool,
    /// The endpoint is written some time after the address was recorded, and people look at the clock of the machine.
    pub is_watched: bool,
}

impl Call {
    /// A pod on a node that wants any IPv4 address.
    pub fn new(node: &str, pod: &str) -> Self {
        let wanted = Wanted::Any { v4: true, v6: false, max_blocks_per_host: 0 };
        Self { node: node.to_owned(), pod: pod.to_owned(), wanted, one_by_one: false, is_watched: false }
    }

    pub fn handle(&self) -> String {
        format!("{NETWORK}.{}", self.pod)
    }

    fn container(&self) -> Container {
        Container { node: self.node.clone(), handle: self.handle(), machine: None }
    }

    fn client(&self, world: &Arc<World>, actor: usize) -> Client {
        let client = Client::new(world, actor);
        if self.one_by_one { client.one_by_one() } else { client }
    }

    /// What the record of an address has.
    pub(crate) fn attributes(&self, now: jiff::Timestamp) -> BTreeMap<String, String> {
        let timestamp = calipam_model::time::format_go_utc(now.as_nanosecond() as i64);
        let entries =
            [("node", &*self.node), ("pod", &self.pod), ("namespace", "default"), ("timestamp", &timestamp)];
        entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    /// What changes outside of IPAM when a pod gets or loses its addresses.
    fn touched(&self) -> Footprint {
        Footprint::default().write(self.endpoint()).write(format!("{PODS}{}", self.handle()))
    }

    pub(crate) fn endpoint(&self) -> String {
        let name = format!("{}-k8s-{}-eth0", self.node, self.pod.replace('-', "--"));
        format!("{}workloadendpoints/default/{name}", calipam_model::key::RESOURCE_PREFIX)
    }
}

/// The node of a call, which limits nothing.
struct OnNode(NodeLock);

impl Host for OnNode {
    type Held = Held;
    type Error = Infallible;

    async fn lock(&self) -> Held {
        self.0.take().await
    }

    async fn within<T>(&self, _: Duration, work: impl Future<Output = T>) -> Option<T> {
        Some(work.await)
    }
}

/// A pod starts.
pub fn add(call: Call) -> Actor {
    let again = call.clone();
    Actor::new(format!("ADD {} on {}", call.pod, call.node), move |world, actor| {
        start(world, actor, call.clone())
    })
    .after_kill(move |world, actor| stop(world, actor, again.clone()))
}

/// A pod stops.
pub fn del(call: Call) -> Actor {
    let again = call.clone();
    Actor::new(format!("DEL {} on {}", call.pod, call.node), move |world, actor| {
        stop(world, actor, call.clone())
    })
    .after_kill(move |world, actor| stop(world, actor, again.clone()))
}

async fn start(world: Arc<World>, actor: usize, call: Call) {
    let handle = call.handle();
    world.truth.begin(&handle, &call.node);
    let allocator = Allocator::new(call.client(&world, actor));
    let host = OnNode(NodeLock::new(&world, actor, &call.node));
    let now = if call.is_watched { Timestamp::now() + AHEAD } else { world.now() };
    let add =
        Add { container: call.container(), attributes: call.attributes(now), wanted: call.wanted.clone() };
    match (Plugin { allocator: &allocator, host: &host }).add(&add).await {
        Ok(added) => {
            let addresses: Vec<IpAddr> = added.addresses.iter().map(IpNet::addr).collect();
            if call.is_watched {
                world.turn(actor, "write the endpoint".into(), call.touched(), None, None).await;
                world.tell(actor, "endpoint");
            }
            give(&world, &call, &addresses);
        }
        // The kubelet takes back what a failed ADD left.
        Err(_) => stop(world, actor, call).await,
    }
}

/// The pod uses its addresses, and its endpoint says so.
pub(crate) fn give(world: &World, call: &Call, addresses: &[IpAddr]) {
    let networks: Vec<String> = addresses.iter().map(|address| IpNet::from(*address).to_string()).collect();
    let endpoint = json!({"kind": "WorkloadEndpoint", "metadata": {"namespace": "default"},
        "spec": {"orchestrator": "k8s", "node": call.node, "containerID": call.pod, "pod": call.pod,
            "endpoint": "eth0", "ipNetworks": networks}});
    world.data().put(&call.endpoint(), endpoint.to_string());
    world.touch(&call.touched());
    world.truth.give(&call.handle(), addresses);
}

/// A pod whose address is recorded turns out to use it: its endpoint is written late.
pub fn comes_back(call: Call, address: IpAddr) -> Actor {
    Actor::new(format!("the endpoint of {} is written", call.pod), move |world: Arc<World>, actor| {
        let call = call.clone();
        async move {
            let footprint = call.touched().read_range(crate::world::ALL);
            world.turn(actor, "write the endpoint".into(), footprint, None, None).await;
            if invariants::is_recorded(&world, address, &call.handle()) {
                world.truth.come_back(&call.handle());
                give(&world, &call, &[address]);
            }
        }
    })
}

/// The kubelet stops the pod and repeats DEL where it fails.
pub(crate) async fn stop(world: Arc<World>, actor: usize, call: Call) {
    let handle = call.handle();
    world.data().remove(&call.endpoint());
    world.touch(&call.touched());
    let previous = world.truth.withdraw(&handle);
    let allocator = Allocator::new(call.client(&world, actor));
    let host = OnNode(NodeLock::new(&world, actor, &call.node));
    let plugin = Plugin { allocator: &allocator, host: &host };
    let del = Del { container: call.container(), old_handle: format!("default.{}", call.pod), previous };
    for _ in 0..ATTEMPTS {
        match plugin.del(&del).await {
            Ok(()) => {
                let released = invariants::is_released(&world, &handle);
                return released.unwrap_or_else(|violation| world.truth.violated(violation));
            }
            Err(Failure::Allocator(error)) if error.is_unavailable() => {}
            Err(failure) => return world.truth.violated(format!("DEL of {handle} fails: {failure}")),
        }
    }
}

/// The runtime of a node asks to free what containers have that are not alive.
pub fn gc(node: &str, valid: &[&str]) -> Actor {
    let gc = Gc {
        node: node.to_owned(),
        network: NETWORK.to_owned(),
        valid: valid.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<String>>(),
    };
    Actor::new(format!("GC on {node}"), move |world, actor| {
        let gc = gc.clone();
        async move {
            let allocator = Allocator::new(Client::new(&world, actor));
            let host = OnNode(NodeLock::new(&world, actor, &gc.node));
            // The runtime asks again some other time.
            drop(Plugin { allocator: &allocator, host: &host }.gc(&gc).await);
        }
    })
}

/// DEL of a handle on a datastore that no one else uses, as the kubelet repeats it.
///
/// # Errors
/// What DEL says.
pub fn clean_up(store: &MemoryStore, node: &str, handle: &str) -> Result<(), String> {
    let allocator = Allocator::new(store);
    let container = Container { node: node.to_owned(), handle: handle.to_owned(), machine: None };
    let del = Del { container, old_handle: format!("{handle}.old"), previous: Vec::new() };
    let done = crate::world::at_once(Plugin { allocator: &allocator, host: &Alone }.del(&del));
    match done {
        Some(Ok(())) => Ok(()),
        Some(Err(Failure::Allocator(Error::NoHandle(_)))) => Ok(()),
        Some(Err(failure)) => Err(failure.to_string()),
        None => Err(format!("waits at {:?}", allocator.store().now())),
    }
}

/// A node on which nothing else runs.
struct Alone;

impl Host for Alone {
    type Held = ();
    type Error = Infallible;

    async fn lock(&self) {}

    async fn within<T>(&self, _: Duration, work: impl Future<Output = T>) -> Option<T> {
        Some(work.await)
    }
}
