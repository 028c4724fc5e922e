//! What calipam's CNI plugin does for an ADD and a DEL of an ordinary pod (crates/cni, `command/add.rs` and `command/del.rs`),
//! with the real allocator.

use std::collections::BTreeMap;
use std::rc::Rc;

use calipam_assign::{Allocator, AutoAssign, Error, Family, Release};
use calipam_model::key::Key;
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::DatastoreKind;
use calipam_model::time::format_go_utc;

use super::World;
use super::measure::{Add, Outcome};
use super::pods::Pod;
use crate::datastore::Client;
use crate::engine::within;
use crate::time::Micros;

/// How long one operation on the datastore may take, from the moment that the lock is held, as in the plugin.
const OPERATION: Micros = Micros::from_secs(90);
/// How long it may take to take back what was assigned before an ADD failed.
const UNDO: Micros = Micros::from_secs(30);

/// What both calls need.
struct Call {
    allocator: Allocator<Client>,
    node: Rc<str>,
    handle: String,
    started: Micros,
}

impl Call {
    /// The process starts and connects.
    async fn begin(world: &World, id: u32) -> Self {
        let started = world.engine.now();
        let (node, is_labelled) = {
            let pods = world.pods.borrow();
            let nodes = world.nodes.borrow();
            let node = nodes.get(pods.get(id).node);
            (Rc::clone(&node.name), node.is_labelled.get())
        };
        let costs = &world.server.costs;
        world.engine.sleep(world.server.varied(costs.start) + world.server.varied(costs.connect)).await;
        let allocator = Allocator::new(Client::for_plugin(&world.server, is_labelled));
        let handle = world.pods.borrow().get(id).handle(id);
        Self { allocator, node, handle, started }
    }

    fn client(&self) -> &Client {
        self.allocator.store()
    }
}

/// ADD: gives a pod addresses.
pub(super) async fn add(world: &World, id: u32) -> Add {
    let call = Call::begin(world, id).await;
    if world.server.kind == DatastoreKind::Kubernetes {
        // The labels of the namespace.
        call.client().look_up().await;
    }
    let (lock, is_labelled) = {
        let (pods, nodes) = (world.pods.borrow(), world.nodes.borrow());
        let node = nodes.get(pods.get(id).node);
        (node.lock.clone(), Rc::clone(&node.is_labelled))
    };
    let began = world.engine.now();
    let assigned = {
        let _held = lock.take().await;
        let waited = world.engine.now() - began;
        let assigned = within(&world.engine, OPERATION, async {
            if world.server.kind == DatastoreKind::Kubernetes && !is_labelled.replace(true) {
                call.client().list_affinities().await;
            }
            call.allocator.auto_assign(&request(world, id, &call)).await
        });
        (assigned.await, waited)
    };
    let (assigned, waited) = assigned;
    let outcome = match assigned {
        Err(_) => Outcome::TooLong,
        Ok(Ok(assigned)) => {
            let short =
                [&assigned.v4, &assigned.v6].into_iter().flatten().find_map(|family| family.shortage());
            let addresses: Vec<_> = assigned.addresses().collect();
            match short {
                None => Outcome::Started(addresses),
                Some(reason) => {
                    undo(world, &call, addresses).await;
                    Outcome::Failed(reason)
                }
            }
        }
        Ok(Err(partly)) => {
            undo(world, &call, partly.done.addresses().collect()).await;
            Outcome::Failed(partly.error.to_string())
        }
    };
    Add {
        time: world.engine.now() - call.started,
        waited,
        requests: call.client().requests(),
        conflicts: call.client().conflicts(),
        listed: call.client().block_lists() > 0,
        outcome,
    }
}

fn request(world: &World, id: u32, call: &Call) -> AutoAssign {
    let nanos = world.engine.now().timestamp().as_nanosecond();
    let attributes: BTreeMap<String, String> = [
        ("node", call.node.to_string()),
        ("timestamp", format_go_utc(i64::try_from(nanos).unwrap_or_default())),
        ("pod", Pod::name(id)),
        ("namespace", "default".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    AutoAssign {
        host: call.node.to_string(),
        v4: world.wants(Family::V4),
        v6: world.wants(Family::V6),
        handle: Some(call.handle.clone()),
        attributes: Some(attributes),
        intended_use: Some(PoolUse::Workload),
        ..AutoAssign::default()
    }
}

/// Takes back what was assigned before an ADD failed.
async fn undo(world: &World, call: &Call, addresses: Vec<std::net::IpAddr>) {
    if !addresses.is_empty() {
        let _ = within(&world.engine, UNDO, release(call, addresses)).await;
    }
}

/// An ADD that the runtime gave up.
pub(super) fn given_up(world: &World, id: u32) -> Add {
    let time = world.engine.now() - world.pods.borrow().get(id).created;
    Add { time, waited: Micros::ZERO, requests: 0, conflicts: 0, listed: false, outcome: Outcome::TooLong }
}

/// DEL: takes the addresses of a pod back.
pub(super) async fn del(world: &World, id: u32) -> Result<(), ()> {
    let call = Call::begin(world, id).await;
    let lock = {
        let (pods, nodes) = (world.pods.borrow(), world.nodes.borrow());
        nodes.get(pods.get(id).node).lock.clone()
    };
    let _held = lock.take().await;
    let done = within(&world.engine, OPERATION, container(id, &call)).await;
    let is_done = matches!(done, Ok(Ok(())));
    let mut measured = world.measured.borrow_mut();
    match is_done {
        true => measured.deleted += 1,
        false => measured.not_deleted += 1,
    }
    is_done.then_some(()).ok_or(())
}

/// Gives back what the handle has. Meanwhile it asks for the handle of an old plugin, which these pods never have.
async fn container(id: u32, call: &Call) -> Result<(), Error> {
    let old = call.client().ask_for(Key::Handle(format!("default.{}", Pod::name(id))));
    let released = release_handle(call, &call.handle).await;
    old.await;
    released
}

async fn release_handle(call: &Call, handle: &str) -> Result<(), Error> {
    match call.allocator.release_by_handle_wholly(handle).await {
        Err(Error::NoHandle(_)) => {
            let found = call.allocator.search_handle(handle, Some(&call.node)).await?;
            release(call, found).await
        }
        other => other,
    }
}

async fn release(call: &Call, addresses: Vec<std::net::IpAddr>) -> Result<(), Error> {
    let mut result = Ok(());
    for address in addresses {
        let request = Release { address, handle: Some(call.handle.clone()), sequence: None };
        match call.allocator.release_ips(&[request]).await {
            Ok(_) => {}
            // It belongs to another handle by now.
            Err(partly) if matches!(partly.error, Error::Changed(_)) => {}
            Err(partly) => result = result.and(Err(partly.error)),
        }
    }
    result
}
