//! The CNI plugin and the kubelet that calls it. The plugin is calipam's own code, or a model of Calico's plugin.

use std::collections::BTreeSet;
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
use crate::world::{Client, LockGuard, NodeLock, NodeNotes, Phase, World, kubernetes};

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
    kubelet("ADD", call, async |kubelet| kubelet.start().await)
}

/// Creates an actor that stops a pod.
pub fn del(call: Call) -> Actor {
    kubelet("DEL", call, async |kubelet| {
        if kubelet.call.is_watched {
            kubelet.step("delete the pod").await;
        }
        kubelet.stop().await;
    })
}

/// Creates an actor that stops a pod, and releases its addresses one by one under its handle before DEL.
pub fn del_by_address(call: Call) -> Actor {
    kubelet("releases the addresses of", call, async |kubelet| kubelet.release_addresses().await).abandoned()
}

/// Creates an actor that writes a pod's endpoint late. The pod was believed to be deleted, but still uses its recorded
/// address.
pub fn writes_endpoint_late(call: Call, address: IpAddr) -> Actor {
    kubelet("writes the endpoint of", call, async move |Kubelet { world, actor, call }| {
        let footprint = call.touched().read_range(crate::world::ALL);
        world.turn(*actor, "write the endpoint".into(), footprint).await;
        if invariants::is_recorded(world, address, &call.handle()) {
            world.truth.update(&call.handle(), |pod| pod.exists = true);
            give(world, call, &[address]);
        }
    })
    .abandoned()
}

/// Creates an actor for a call, which is followed by DEL after a kill.
fn kubelet(verb: &str, call: Call, work: impl AsyncFn(&Kubelet) + Clone + 'static) -> Actor {
    let program = call.program;
    let of = if program == Program::Calico { "Calico's " } else { "" };
    let name = format!("{of}{verb} {} on {}", call.pod, call.node);
    let new = move |world, actor| Kubelet { world, actor, call: call.clone() };
    let again = new.clone();
    let begin = move |world, actor| {
        let (kubelet, work) = (new(world, actor), work.clone());
        async move { work(&kubelet).await }
    };
    let after_kill = move |world, actor| {
        let kubelet = again(world, actor);
        async move { kubelet.stop().await }
    };
    match program {
        Program::OnKubernetes => Actor::process(name, begin, after_kill),
        Program::Calipam | Program::Calico => Actor::new(name, begin).after_kill(after_kill),
    }
}

/// The kubelet that calls the plugin for a pod.
struct Kubelet {
    world: Arc<World>,
    actor: usize,
    call: Call,
}

impl Kubelet {
    /// Waits for a step of the kubelet, which changes the pod.
    async fn step(&self, what: &'static str) {
        self.world.turn(self.actor, what.into(), self.call.touched()).await;
        self.world.record_answer(self.actor, what);
    }

    fn client(&self) -> Client {
        let client = Client::new(&self.world, self.actor);
        if self.call.one_by_one { client.one_by_one() } else { client }
    }

    /// The allocator of the plugin.
    fn allocator<S: Store>(&self, store: S) -> Allocator<S> {
        let allocator = Allocator::new(store);
        if !self.call.keeps_notes {
            return allocator;
        }
        let (world, node) = (Arc::clone(&self.world), self.call.node.clone());
        allocator.with_notes(Arc::new(NodeNotes { world, actor: self.actor, node }))
    }

    fn host(&self) -> OnNode {
        OnNode(NodeLock::new(&self.world, self.actor, &self.call.node))
    }

    fn calico(&self) -> Calico {
        Calico::new(Client::new(&self.world, self.actor))
    }

    async fn start(&self) {
        let Self { world, actor, call } = self;
        world.truth.begin(&call.handle(), &call.node);
        world.audit().adds.insert(*actor, call.node.clone());
        world.begin_add(*actor);
        world.truth.update(&call.handle(), |pod| pod.is_of_calico |= call.program == Program::Calico);
        call.show(world, &[]);
        let now = if call.is_watched { Timestamp::now() + AHEAD } else { world.now() };
        let added = match call.program {
            Program::Calico => self.calico_add(now).await,
            Program::Calipam => self.own_add(self.client(), now).await,
            Program::OnKubernetes => self.own_add(OnApiServer::open(world, *actor), now).await,
        };
        if let Some(addresses) = &added {
            if addresses.len() != call.wants() {
                world.truth.violated(format!("ADD of {} gives {addresses:?}", call.pod));
            }
            if call.is_watched {
                self.step("write the endpoint").await;
            }
            give(world, call, addresses);
        }
        world.end_add(*actor);
        // The kubelet calls DEL to release the leftovers of a failed ADD.
        if added.is_none() {
            self.stop().await;
        }
    }

    async fn own_add<S: Store>(&self, store: S, now: Timestamp) -> Option<Vec<IpAddr>> {
        let allocator = self.allocator(store);
        let plugin = Plugin { allocator: &allocator, host: &self.host() };
        let added = plugin.add(&self.call.to_add(now)).await.ok()?;
        Some(added.addresses.iter().map(IpNet::addr).collect())
    }

    async fn calico_add(&self, now: Timestamp) -> Option<Vec<IpAddr>> {
        let _held = self.host().lock().await;
        let (calico, handle) = (self.calico(), self.call.handle());
        let owner = Some(self.call.attributes(now));
        let record = Attribute { handle: Some(handle.clone()), owner, ..Attribute::default() };
        let wanted = ByCalico { host: self.call.node.clone(), handle, record };
        let added = match self.call.wanted {
            Wanted::Address(address) => calico.assign_ip(&wanted, address).await.ok().map(|()| address),
            Wanted::Any { .. } => calico.auto_assign(&wanted).await.ok().flatten(),
        };
        added.map(|address| vec![address])
    }

    /// Stops the pod and returns its addresses, which are about to be released.
    fn remove_pod(&self) -> Vec<IpAddr> {
        let Self { world, actor, call } = self;
        world.begin_phase(*actor, Phase::Releases);
        world.data().remove(&call.endpoint());
        world.data().remove(&object_path(&call.pod));
        world.touch(&call.touched());
        world.truth.remove_pod(&call.handle())
    }

    async fn release_addresses(&self) {
        let release = |address| Release { address, handle: Some(self.call.handle()), sequence: None };
        let requests: Vec<Release> = self.remove_pod().into_iter().map(release).collect();
        let released = Allocator::new(self.client()).release_ips(&requests).await;
        if let Err(partly) = released
            && self.world.audit().is_undisturbed()
        {
            self.world.truth.violated(format!("{requests:?} fail: {}", partly.error));
        }
    }

    /// Stops the pod, and repeats DEL until it succeeds.
    async fn stop(&self) {
        let Self { world, actor, call } = self;
        let (handle, previous) = (call.handle(), self.remove_pod());
        world.truth.update(&handle, |pod| pod.is_of_calico |= call.program == Program::Calico);
        for _ in 0..ATTEMPTS {
            let deleted = match call.program {
                Program::Calico => self.calico_del().await,
                Program::Calipam => self.own_del(self.client(), &previous).await,
                Program::OnKubernetes => self.own_del(OnApiServer::open(world, *actor), &previous).await,
            };
            match deleted {
                Ok(true) if invariants::may_be_left(world, &handle) => return,
                Ok(true) => {
                    let released = invariants::is_released(world, &handle);
                    return released.unwrap_or_else(|violation| world.truth.violated(violation));
                }
                Ok(false) => {}
                Err(what) => return world.truth.violated(format!("DEL of {handle} fails: {what}")),
            }
        }
    }

    /// Runs DEL once. Returns false if a request gets no answer.
    async fn own_del<S: Store>(&self, store: S, previous: &[IpAddr]) -> Result<bool, String> {
        let allocator = self.allocator(store);
        let plugin = Plugin { allocator: &allocator, host: &self.host() };
        let (container, old_handle) = (self.call.container(), self.call.old_handle());
        match plugin.del(&Del { container, old_handle, previous: previous.to_owned() }).await {
            Ok(()) => Ok(true),
            Err(Failure::Allocator(error)) if error.is_unavailable() => Ok(false),
            Err(failure) => Err(failure.to_string()),
        }
    }

    async fn calico_del(&self) -> Result<bool, String> {
        let _held = self.host().lock().await;
        for handle in [self.call.handle(), self.call.old_handle()] {
            match self.calico().release_by_handle(&handle).await {
                Ok(()) | Err(Stop::Gone) => {}
                Err(Stop::NoAnswer) => return Ok(false),
                Err(stop) => return Err(format!("{stop:?}")),
            }
        }
        Ok(true)
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
