//! The CNI plugin and the kubelet that calls it. The plugin is calipam's own code, or a model of Calico's plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use calipam_assign::plugin::{Container, Del, Failure, Gc, Host, Plugin, Wanted};
use calipam_assign::{Allocator, Entry, Error, Query, Release, Store, StoreError, Swap};
use calipam_datastore::allocation::AllocatorStore;
use calipam_datastore::write::Consent;
use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::snapshot::Revision;
use calipam_testkit::memory::MemoryStore;
use jiff::{SignedDuration, Timestamp};

use super::Actor;
use super::call::{Call, NETWORK, Program, object_path};
use crate::calico::{Calico, Stop, Wanted as ByCalico};
use crate::invariants;
use crate::world::{Client, LockGuard, NodeLock, Phase, World, kubernetes};

/// The time by which a node's clock is ahead, so that a check does not judge a new record yet.
const AHEAD: SignedDuration = SignedDuration::from_secs(30);
/// Number of times that the kubelet calls DEL. No scenario is long enough for another call.
const ATTEMPTS: usize = 4;

/// The host on which a plugin call runs. It sets no time limits.
struct OnNode(NodeLock);

impl Host for OnNode {
    type LockGuard = LockGuard;
    type Error = Infallible;

    async fn lock(&self) -> LockGuard {
        self.0.take().await
    }

    async fn within<T>(&self, _: Duration, work: impl Future<Output = T>) -> Option<T> {
        Some(work.await)
    }
}

/// Creates an actor that starts a pod.
pub fn add(call: Call) -> Actor {
    let (name, again) = (format!("ADD {} on {}", call.pod, call.node), call.clone());
    let begin = move |world, actor| start(world, actor, call.clone());
    kubelet(name, again, begin)
}

/// Creates an actor that stops a pod.
pub fn del(call: Call) -> Actor {
    let (name, again) = (format!("DEL {} on {}", call.pod, call.node), call.clone());
    let begin = move |world: Arc<World>, actor| {
        let call = call.clone();
        async move {
            if call.is_watched {
                world.turn(actor, "delete the pod".into(), call.touched()).await;
                world.record_answer(actor, "deleted");
            }
            stop(world, actor, call).await;
        }
    };
    kubelet(name, again, begin)
}

/// Creates an actor for a call, which is followed by DEL after a kill.
fn kubelet<F: Future<Output = ()> + 'static>(
    name: String,
    call: Call,
    begin: impl Fn(Arc<World>, usize) -> F + 'static,
) -> Actor {
    let program = call.program;
    let name = if program == Program::Calico { format!("Calico's {name}") } else { name };
    let again = move |world, actor| stop(world, actor, call.clone());
    match program {
        Program::OnKubernetes => Actor::process(name, begin, again),
        Program::Calipam | Program::Calico => Actor::new(name, begin).after_kill(again),
    }
}

async fn start(world: Arc<World>, actor: usize, call: Call) {
    world.truth.begin(&call.handle(), &call.node);
    world.audit().adds.insert(actor, call.node.clone());
    world.begin_add(actor);
    world.truth.update(&call.handle(), |pod| pod.is_of_calico |= call.program == Program::Calico);
    call.show(&world, &[]);
    let now = if call.is_watched { Timestamp::now() + AHEAD } else { world.now() };
    let added = match call.program {
        Program::Calico => calico_add(&world, actor, &call, call.attributes(now)).await,
        Program::Calipam => own_add(&world, actor, &call, call.client(&world, actor), now).await,
        Program::OnKubernetes => own_add(&world, actor, &call, OnApiServer::open(&world, actor), now).await,
    };
    match added {
        Some(addresses) => {
            if addresses.len() != call.wants() {
                world.truth.violated(format!("ADD of {} gives {addresses:?}", call.pod));
            }
            if call.is_watched {
                world.turn(actor, "write the endpoint".into(), call.touched()).await;
                world.record_answer(actor, "endpoint");
            }
            give(&world, &call, &addresses);
            world.end_add(actor);
        }
        // The kubelet calls DEL to release the leftovers of a failed ADD.
        None => {
            world.end_add(actor);
            stop(world, actor, call).await;
        }
    }
}

async fn own_add<S: Store>(
    world: &Arc<World>,
    actor: usize,
    call: &Call,
    store: S,
    now: Timestamp,
) -> Option<Vec<IpAddr>> {
    let allocator = call.allocator(world, actor, store);
    let host = OnNode(NodeLock::new(world, actor, &call.node));
    let added = (Plugin { allocator: &allocator, host: &host }).add(&call.to_add(now)).await.ok()?;
    Some(added.addresses.iter().map(IpNet::addr).collect())
}

async fn calico_add(
    world: &Arc<World>,
    actor: usize,
    call: &Call,
    attributes: BTreeMap<String, String>,
) -> Option<Vec<IpAddr>> {
    let _held = NodeLock::new(world, actor, &call.node).take().await;
    let calico = Calico::new(Client::new(world, actor));
    let handle = call.handle();
    let record = Attribute { handle: Some(handle.clone()), owner: Some(attributes), ..Attribute::default() };
    let wanted = ByCalico { host: call.node.clone(), handle, record };
    match call.wanted {
        Wanted::Address(address) => calico.assign_ip(&wanted, address).await.ok().map(|()| vec![address]),
        Wanted::Any { .. } => calico.auto_assign(&wanted).await.ok().flatten().map(|address| vec![address]),
    }
}

/// Returns the addresses that an ADD is assigned on a datastore that no other actor uses.
pub(crate) fn served(store: &MemoryStore, call: &Call) -> Vec<IpAddr> {
    let (allocator, add) = (Allocator::new(store), call.to_add(store.now()));
    match crate::world::at_once(Plugin { allocator: &allocator, host: &Alone }.add(&add)) {
        Some(Ok(added)) => added.addresses.iter().map(IpNet::addr).collect(),
        _ => Vec::new(),
    }
}

/// Gives a pod more addresses and writes its endpoint.
pub(crate) fn give(world: &World, call: &Call, addresses: &[IpAddr]) {
    let handle = call.handle();
    world.truth.give(&handle, addresses);
    call.show(world, &world.truth.addresses(&handle));
}

/// Creates an actor that writes a pod's endpoint late. The pod was believed to be deleted, but still uses its recorded
/// address.
pub fn writes_endpoint_late(call: Call, address: IpAddr) -> Actor {
    Actor::new(format!("the endpoint of {} is written", call.pod), move |world: Arc<World>, actor| {
        let call = call.clone();
        async move {
            let footprint = call.touched().read_range(crate::world::ALL);
            world.turn(actor, "write the endpoint".into(), footprint).await;
            if invariants::is_recorded(&world, address, &call.handle()) {
                world.truth.update(&call.handle(), |pod| pod.exists = true);
                give(&world, &call, &[address]);
            }
        }
    })
}

/// The result of a DEL.
enum DelResult {
    Done,
    /// A request got no answer, so the kubelet tries again.
    NoAnswer,
    Failed(String),
}

/// Stops a pod and returns its addresses, which are about to be released.
fn remove_pod(world: &World, actor: usize, call: &Call) -> Vec<IpAddr> {
    world.begin_phase(actor, Phase::Releases);
    world.data().remove(&call.endpoint());
    world.data().remove(&object_path(&call.pod));
    world.touch(&call.touched());
    world.truth.remove_pod(&call.handle())
}

/// Creates an actor that stops a pod, and releases its addresses one by one under its handle before DEL.
pub fn del_by_address(call: Call) -> Actor {
    Actor::new(format!("releases the addresses of {}", call.pod), move |world: Arc<World>, actor| {
        let call = call.clone();
        async move {
            let release = |address| Release { address, handle: Some(call.handle()), sequence: None };
            let requests: Vec<Release> = remove_pod(&world, actor, &call).into_iter().map(release).collect();
            let allocator = Allocator::new(call.client(&world, actor));
            let released = allocator.release_ips(&requests).await;
            if let Err(partly) = released
                && world.audit().is_undisturbed()
            {
                world.truth.violated(format!("{requests:?} fail: {}", partly.error));
            }
        }
    })
}

/// Stops a pod, and repeats DEL until it succeeds, as the kubelet does.
pub(crate) async fn stop(world: Arc<World>, actor: usize, call: Call) {
    let handle = call.handle();
    let previous = remove_pod(&world, actor, &call);
    world.truth.update(&handle, |pod| pod.is_of_calico |= call.program == Program::Calico);
    for _ in 0..ATTEMPTS {
        let deleted = match call.program {
            Program::Calico => calico_del(&world, actor, &call).await,
            Program::Calipam => own_del(&world, actor, &call, call.client(&world, actor), &previous).await,
            Program::OnKubernetes => {
                own_del(&world, actor, &call, OnApiServer::open(&world, actor), &previous).await
            }
        };
        match deleted {
            DelResult::Done if invariants::may_be_left(&world, &handle) => return,
            DelResult::Done => {
                let released = invariants::is_released(&world, &handle);
                return released.unwrap_or_else(|violation| world.truth.violated(violation));
            }
            DelResult::NoAnswer => {}
            DelResult::Failed(what) => {
                return world.truth.violated(format!("DEL of {handle} fails: {what}"));
            }
        }
    }
}

async fn own_del<S: Store>(
    world: &Arc<World>,
    actor: usize,
    call: &Call,
    store: S,
    previous: &[IpAddr],
) -> DelResult {
    let allocator = call.allocator(world, actor, store);
    let host = OnNode(NodeLock::new(world, actor, &call.node));
    let (container, old_handle) = (call.container(), call.old_handle());
    let del = Del { container, old_handle, previous: previous.to_owned() };
    match (Plugin { allocator: &allocator, host: &host }).del(&del).await {
        Ok(()) => DelResult::Done,
        Err(Failure::Allocator(error)) if error.is_unavailable() => DelResult::NoAnswer,
        Err(failure) => DelResult::Failed(failure.to_string()),
    }
}

async fn calico_del(world: &Arc<World>, actor: usize, call: &Call) -> DelResult {
    let _held = NodeLock::new(world, actor, &call.node).take().await;
    let calico = Calico::new(Client::new(world, actor));
    for handle in [call.handle(), call.old_handle()] {
        match calico.release_by_handle(&handle).await {
            Ok(()) | Err(Stop::Gone) => {}
            Err(Stop::NoAnswer) => return DelResult::NoAnswer,
            Err(stop) => return DelResult::Failed(format!("{stop:?}")),
        }
    }
    DelResult::Done
}

/// An API server with the clock of the world.
struct OnApiServer {
    store: AllocatorStore,
    world: Arc<World>,
}

impl OnApiServer {
    fn open(world: &Arc<World>, actor: usize) -> Self {
        let store = kubernetes::open(world, actor).allocator(Consent::from_runtime("kubernetes"));
        Self { store: store.expect("an allocator's store"), world: Arc::clone(world) }
    }
}

impl Store for OnApiServer {
    fn now(&self) -> Timestamp {
        self.world.now()
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        self.store.read(queries).await
    }

    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        self.store.swap(swap).await
    }
}

/// Creates an actor for a container runtime that calls GC, which releases the addresses of all containers on the node
/// that are not in `valid`.
pub fn gc(node: &str, valid: &[&str]) -> Actor {
    let gc = Gc {
        node: node.to_owned(),
        network: NETWORK.to_owned(),
        valid: valid.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<String>>(),
    };
    Actor::new(format!("GC on {node}"), move |world, actor| {
        let gc = gc.clone();
        async move {
            world.begin_phase(actor, Phase::Releases);
            let allocator = Allocator::new(Client::new(&world, actor));
            let host = OnNode(NodeLock::new(&world, actor, &gc.node));
            // The runtime ignores errors, since it calls GC again later.
            drop(Plugin { allocator: &allocator, host: &host }.gc(&gc).await);
        }
    })
}

/// Runs DEL for a handle on a datastore that no other actor uses.
///
/// # Errors Returns an error if DEL fails or does not end at once.
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
pub(super) struct Alone;

impl Host for Alone {
    type LockGuard = ();
    type Error = Infallible;

    async fn lock(&self) {}

    async fn within<T>(&self, _: Duration, work: impl Future<Output = T>) -> Option<T> {
        Some(work.await)
    }
}
