//! The CNI plugin and the kubelet that calls it. The plugin is calipam's own code, or a model of Calico's plugin.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use calipam_assign::plugin::{Container, Del, Failure, Gc, Host, Plugin, Wanted};
use calipam_assign::{Allocator, Error, Family, FullBlocks, MemoryNotes, Notes, Release, Store};
use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_testkit::memory::MemoryStore;
use futures_util::FutureExt as _;
use jiff::{SignedDuration, Timestamp};

use super::Actor;
use super::call::{Call, NETWORK, Program};
use crate::calico::{Calico, Stop, Wanted as ByCalico};
use crate::objects::{is_recorded, is_released, may_be_left};
use crate::world::kubernetes::object_path;
use crate::world::{Client, Node, NoteOfBeginning, Phase, World};

/// The time by which a node's clock is ahead, so that a check does not judge a new record yet.
const AHEAD: SignedDuration = SignedDuration::from_secs(30);
/// Number of times that the kubelet calls DEL. No scenario is long enough for another call.
const ATTEMPTS: usize = 4;

/// The time for which a node may remember a search without a result is over after this.
const LATER: SignedDuration = SignedDuration::from_secs(6);

/// Creates an actor that starts a pod.
pub fn add(call: impl Into<Call>) -> Actor {
    kubelet("ADD", call.into(), async |kubelet| kubelet.start().await)
}

/// Creates an actor that stops a pod.
pub fn del(call: impl Into<Call>) -> Actor {
    kubelet("DEL", call.into(), async |kubelet| {
        if kubelet.call.is_watched {
            kubelet.step("delete the pod").await;
        }
        kubelet.stop().await;
    })
}

/// Creates an actor that stops a pod, and releases its addresses one by one under its handle before DEL.
pub fn del_by_address(call: impl Into<Call>) -> Actor {
    kubelet("releases the addresses of", call.into(), async |kubelet| {
        kubelet.release_addresses().await
    })
    .abandoned()
}

/// Creates an actor that writes a pod's endpoint late. The pod was believed to be deleted, but still uses its recorded
/// address.
pub fn writes_endpoint_late(call: impl Into<Call>, address: IpAddr) -> Actor {
    kubelet(
        "writes the endpoint of",
        call.into(),
        async move |Kubelet { world, actor, call }| {
            let footprint = call.touched().read_range(crate::world::ALL);
            let _ = world
                .turn(*actor, "write the endpoint".into(), footprint)
                .answered()
                .await;
            if is_recorded(world, address, &call.handle()) {
                world.truth.update(&call.handle(), |pod| pod.exists = true);
                give(world, call, &[address]);
            }
        },
    )
    .abandoned()
}

/// Creates an actor for a call, which is followed by DEL after a kill.
fn kubelet(verb: &str, call: Call, work: impl AsyncFn(&Kubelet) + Clone + 'static) -> Actor {
    let of = if call.program == Program::Calico {
        "Calico's "
    } else {
        ""
    };
    let name = format!("{of}{verb} {} on {}", call.pod, call.node);
    let is_process = call.program == Program::OnKubernetes;
    let actor = Actor::going_on(name, move |world, actor, is_killed| {
        let kubelet = Kubelet {
            world,
            actor,
            call: call.clone(),
        };
        let work = work.clone();
        async move {
            if is_killed {
                kubelet.stop().await
            } else {
                work(&kubelet).await
            }
        }
    });
    Actor { is_process, ..actor }
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
        let _ = self
            .world
            .turn(self.actor, what.into(), self.call.touched())
            .answered()
            .await;
        self.world.record_answer(self.actor, what);
    }

    fn client(&self) -> Client {
        let client = Client::new(&self.world, self.actor);
        match self.call.program {
            Program::Calipam | Program::Calico => client,
            Program::OneByOne => client.one_by_one(),
            Program::OnKubernetes => client.on_kubernetes(),
        }
    }

    /// The allocator of the plugin.
    fn allocator(&self) -> Allocator<Client> {
        let allocator = Allocator::new(self.client());
        if self.call.keeps_notes {
            allocator.with_notes(Arc::new(self.host()))
        } else if self.call.lists_beginning {
            allocator.with_notes(Arc::new(NoteOfBeginning(self.world.now())))
        } else {
            allocator
        }
    }

    fn host(&self) -> Node {
        Node::new(&self.world, self.actor, &self.call.node)
    }

    async fn start(&self) {
        let Self { world, actor, call } = self;
        world.truth.begin(&call.handle(), &call.node);
        world.audit().adds.insert(*actor, call.node.clone());
        world.begin_add(*actor);
        world.truth.update(&call.handle(), |pod| {
            pod.is_of_calico |= call.program == Program::Calico
        });
        call.show(world, &[]);
        let now = if call.is_watched {
            Timestamp::now() + AHEAD
        } else {
            world.now()
        };
        let added = match call.program {
            Program::Calico => self.calico_add(now).await,
            _ => self.own_add(now).await,
        };
        if let Some(addresses) = &added {
            if addresses.len() != call.wants() {
                world
                    .truth
                    .violated(format!("ADD of {} gives {addresses:?}", call.pod));
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

    async fn own_add(&self, now: Timestamp) -> Option<Vec<IpAddr>> {
        let plugin = Plugin {
            allocator: &self.allocator(),
            host: &self.host(),
        };
        let added = plugin.add(&self.call.to_add(now)).await.ok()?;
        Some(added.addresses.iter().map(IpNet::addr).collect())
    }

    async fn calico_add(&self, now: Timestamp) -> Option<Vec<IpAddr>> {
        let _held = self.host().lock().await;
        let calico = Calico::new(self.client());
        let handle = self.call.handle();
        let owner = Some(self.call.attributes(now));
        let record = Attribute {
            handle: Some(handle.clone()),
            owner,
            ..Attribute::default()
        };
        let wanted = ByCalico {
            host: self.call.node.clone(),
            handle,
            record,
        };
        let added = match self.call.wanted {
            Wanted::Address(address) => calico.assign_ip(&wanted, address).await.ok().map(|()| address),
            Wanted::Any { .. } => calico.auto_assign(&wanted).await.ok().flatten(),
        };
        added.map(|address| vec![address])
    }

    /// Stops the pod and returns its addresses, which are about to be released.
    fn remove_pod(&self) -> Vec<IpAddr> {
        let Self { world, actor, call } = self;
        world.audit().begin(*actor, Phase::Releases);
        world.data.remove(&call.endpoint());
        world.data.remove(&object_path(&call.pod));
        world.touch(&call.touched());
        world.truth.remove_pod(&call.handle())
    }

    async fn release_addresses(&self) {
        let release = |address| Release {
            address,
            handle: Some(self.call.handle()),
            sequence: None,
        };
        let requests: Vec<Release> = self.remove_pod().into_iter().map(release).collect();
        let released = Allocator::new(self.client()).release_ips(&requests).await;
        if let Err(partly) = released
            && self.world.audit().is_undisturbed()
        {
            self.world
                .truth
                .violated(format!("{requests:?} fail: {}", partly.error));
        }
    }

    /// Stops the pod, and repeats DEL until it succeeds.
    async fn stop(&self) {
        let Self { world, call, .. } = self;
        let handle = call.handle();
        let previous = self.remove_pod();
        world
            .truth
            .update(&handle, |pod| pod.is_of_calico |= call.program == Program::Calico);
        for _ in 0..ATTEMPTS {
            let deleted = match call.program {
                Program::Calico => self.calico_del().await,
                _ => self.own_del(&previous).await,
            };
            match deleted {
                Ok(true) if may_be_left(world, &handle) => return,
                Ok(true) => {
                    let released = is_released(world, &handle);
                    return released.unwrap_or_else(|violation| world.truth.violated(violation));
                }
                Ok(false) => {}
                Err(what) => return world.truth.violated(format!("DEL of {handle} fails: {what}")),
            }
        }
    }

    /// Runs DEL once. Returns false if a request gets no answer.
    async fn own_del(&self, previous: &[IpAddr]) -> Result<bool, String> {
        let plugin = Plugin {
            allocator: &self.allocator(),
            host: &self.host(),
        };
        let container = self.call.container();
        let old_handle = self.call.old_handle();
        match plugin
            .del(&Del {
                container,
                old_handle,
                previous: previous.to_owned(),
            })
            .await
        {
            Ok(()) => Ok(true),
            Err(Failure::Allocator(error)) if error.is_unavailable() => Ok(false),
            Err(failure) => Err(failure.to_string()),
        }
    }

    async fn calico_del(&self) -> Result<bool, String> {
        let _held = self.host().lock().await;
        for handle in [self.call.handle(), self.call.old_handle()] {
            match Calico::new(self.client()).release_by_handle(&handle).await {
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
    let plugin = Plugin {
        allocator: &Allocator::new(store),
        host: &Node::alone(),
    };
    match plugin.add(&call.to_add(store.now())).now_or_never() {
        Some(Ok(added)) => added.addresses.iter().map(IpNet::addr).collect(),
        _ => Vec::new(),
    }
}

/// Returns true if an ADD a few seconds from now would write, given these notes of its node. An ADD writes once it has
/// found a free address, or room for a block.
pub(crate) fn would_assign(world: &World, call: &Call, notes: Option<&FullBlocks>) -> bool {
    let kept = MemoryNotes::default();
    notes
        .into_iter()
        .for_each(|full| kept.keep_full_blocks(Family::V4, full));
    let store = world.data.copy(world.now() + LATER);
    let allocator = Allocator::new(&store).with_notes(Arc::new(kept));
    let add = call.to_add(world.now());
    drop(
        Plugin {
            allocator: &allocator,
            host: &Node::alone(),
        }
        .add(&add)
        .now_or_never(),
    );
    !store.take_changes().is_empty()
}

/// Gives a pod more addresses and writes its endpoint.
pub(crate) fn give(world: &World, call: &Call, addresses: &[IpAddr]) {
    let handle = call.handle();
    world.truth.give(&handle, addresses);
    call.show(world, &world.truth.addresses(&handle));
}

/// Creates an actor for a container runtime that calls GC, which releases the addresses of all containers on the node
/// that are not in `valid`.
pub fn gc(node: &str, valid: &[&str]) -> Actor {
    let gc = Gc {
        node: node.to_owned(),
        network: NETWORK.to_owned(),
        valid: valid
            .iter()
            .map(|id| (*id).to_owned())
            .collect::<BTreeSet<String>>(),
    };
    Actor::new(format!("GC on {node}"), move |world, actor| {
        let gc = gc.clone();
        async move {
            world.audit().begin(actor, Phase::Releases);
            let allocator = Allocator::new(Client::new(&world, actor));
            let host = Node::new(&world, actor, &gc.node);
            // The runtime ignores errors, since it calls GC again later.
            drop(
                Plugin {
                    allocator: &allocator,
                    host: &host,
                }
                .gc(&gc)
                .await,
            );
        }
    })
}

/// Runs DEL for a handle on a datastore that no other actor uses.
///
/// # Errors Returns an error if DEL fails or does not end at once.
pub fn clean_up(store: &MemoryStore, node: &str, handle: &str) -> Result<(), String> {
    let allocator = Allocator::new(store);
    let container = Container {
        node: node.to_owned(),
        handle: handle.to_owned(),
        machine: None,
    };
    let del = Del {
        container,
        old_handle: format!("{handle}.old"),
        previous: Vec::new(),
    };
    match (Plugin {
        allocator: &allocator,
        host: &Node::alone(),
    })
    .del(&del)
    .now_or_never()
    {
        Some(Ok(()) | Err(Failure::Allocator(Error::NoHandle(_)))) => Ok(()),
        Some(Err(failure)) => Err(failure.to_string()),
        None => Err(format!("waits at {:?}", allocator.store().now())),
    }
}
