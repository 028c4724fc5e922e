//! The CNI plugin on a simulated node: the same code as in the real program, with a virtual lock and clock.

use std::cell::{Cell, Ref};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use calipam_assign::plugin::{self, Added, Container, Failure, Lookup, Plugin, Wanted};
use calipam_assign::{Allocator, Family};
use calipam_model::IpNet;
use calipam_model::snapshot::DatastoreKind;
use calipam_model::time::format_go_utc;

use super::World;
use super::measure::Timed;
use super::pods::Pod;
use crate::datastore::Client;
use crate::engine::{Lock, LockGuard, within};
use crate::time::Micros;

/// One call, which corresponds to one process.
struct Call<'w> {
    world: &'w World,
    id: u32,
    container: Container,
    allocator: Allocator<Client>,
    lock: Lock,
    /// True if the node's affinities have labels.
    is_labelled: Rc<Cell<bool>>,
    started: Micros,
    /// The time that the call waited for the lock.
    waited: Cell<Micros>,
}

impl<'w> Call<'w> {
    /// Begins a call for a pod: waits as long as the start of the process and its connection to the datastore take.
    async fn begin(world: &'w World, id: u32) -> Self {
        let started = world.engine.now();
        let node = node_of_pod(world, id).name.to_string();
        let lock = node_of_pod(world, id).lock.clone();
        let notes = Arc::clone(&node_of_pod(world, id).notes);
        let is_labelled = Rc::clone(&node_of_pod(world, id).is_labelled);
        // The process checks for labels when it starts.
        let client = Client::for_plugin(&world.server, is_labelled.get());

        let costs = &world.server.costs;
        let start_time = world.server.draw(costs.start);
        let connect_time = world.server.draw(costs.connect);
        world.engine.sleep(start_time + connect_time).await;

        let handle = world.pods.borrow().get(id).handle(id);
        Self {
            world,
            id,
            container: Container {
                node,
                handle,
                machine: None,
            },
            allocator: Allocator::new(client).with_notes(notes),
            lock,
            is_labelled,
            started,
            waited: Cell::default(),
        }
    }

    fn plugin(&self) -> Plugin<'_, Client, Self> {
        Plugin {
            allocator: &self.allocator,
            host: self,
        }
    }

    fn client(&self) -> &Client {
        self.allocator.store()
    }

    fn is_on_kubernetes(&self) -> bool {
        self.world.server.kind == DatastoreKind::Kubernetes
    }

    /// Returns how long the call has taken so far, and what it has requested. The numbers are kept small, since a run
    /// keeps millions of them; larger ones are cut.
    fn timed(&self) -> Timed {
        let micros = |time: Micros| u32::try_from(time.0).unwrap_or(u32::MAX);
        Timed {
            time: micros(self.world.engine.now() - self.started),
            waited: micros(self.waited.get()),
            requests: u16::try_from(self.client().requests.get()).unwrap_or(u16::MAX),
            listed: self.client().has_searched.get(),
        }
    }

    /// Returns the attributes that an ADD records for the pod's addresses, as of now.
    fn attributes(&self) -> BTreeMap<String, String> {
        let nanos = self.world.engine.now().timestamp().as_nanosecond();
        let timestamp = format_go_utc(i64::try_from(nanos).unwrap_or_default());
        BTreeMap::from([
            ("node".to_owned(), self.container.node.clone()),
            ("timestamp".to_owned(), timestamp),
            ("pod".to_owned(), Pod::name(self.id)),
            ("namespace".to_owned(), NAMESPACE.to_owned()),
        ])
    }
}

/// The namespace of all pods.
pub(super) const NAMESPACE: &str = "default";

fn node_of_pod(world: &World, id: u32) -> Ref<'_, super::nodes::NodeState> {
    let index = world.pods.borrow().get(id).node;
    Ref::map(world.nodes.borrow(), |nodes| nodes.get(index))
}

impl plugin::Host for Call<'_> {
    type LockGuard = LockGuard;
    type Error = Infallible;

    async fn lock(&self) -> LockGuard {
        let began = self.world.engine.now();
        let guard = self.lock.take().await;
        self.waited.set(self.world.engine.now() - began);
        guard
    }

    async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        within(&self.world.engine, limit.into(), work).await
    }

    async fn look_up(&self) -> Result<Lookup, Infallible> {
        if self.is_on_kubernetes() {
            // The plugin reads the labels of the namespace.
            self.client().look_up().await;
        }
        Ok(Lookup::default())
    }

    async fn label_affinities(&self) {
        if self.is_on_kubernetes() && !self.is_labelled.get() {
            self.client().list_affinities().await;
            self.is_labelled.set(true);
        }
    }
}

/// Carries out an ADD, which assigns addresses to a pod, and measures it. Returns `None` if the pod got none, and
/// counts the failure.
pub(super) async fn add(world: &World, id: u32) -> Option<Vec<IpAddr>> {
    let call = Call::begin(world, id).await;
    let add = plugin::Add {
        container: call.container.clone(),
        attributes: call.attributes(),
        wanted: Wanted::Any {
            v4: world.wants(Family::V4),
            v6: world.wants(Family::V6),
            max_blocks_per_host: 0,
        },
    };
    let added = call.plugin().add(&add).await;

    // Conflicts count even if the call failed.
    let mut measured = world.measured.borrow_mut();
    measured.conflicts += u64::from(call.client().conflicts.get());
    match added {
        Ok(Added { addresses, .. }) => {
            measured.started.push(call.timed());
            Some(addresses.iter().map(IpNet::addr).collect())
        }
        Err(Failure::TooSlow(_)) => {
            measured.too_long += 1;
            None
        }
        Err(failure) => {
            *measured.reasons.entry(failure.to_string()).or_default() += 1;
            None
        }
    }
}

/// Carries out a DEL, which releases a pod's addresses. Returns false if it failed.
pub(super) async fn del(world: &World, id: u32) -> bool {
    let call = Call::begin(world, id).await;
    let del = plugin::Del {
        container: call.container.clone(),
        old_handle: format!("{NAMESPACE}.{}", Pod::name(id)),
        previous: world.pods.borrow().get(id).addresses.to_vec(),
    };
    let is_done = call.plugin().del(&del).await.is_ok();
    world.measured.borrow_mut().deleted += u64::from(is_done);
    is_done
}
