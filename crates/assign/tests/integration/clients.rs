//! Clients of the datastore and their operations.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use calipam_assign::plugin::{Add, Container, Del, Failure, Host, Plugin, Wanted};
use calipam_assign::{Allocator, AssignIp, AutoAssign, InUse, Release, Store};
use calipam_model::IpNet;
use calipam_model::affinity::AffinityType;
use calipam_model::pool::PoolUse;
use calipam_testkit::memory::MemoryStore;
use calipam_testkit::operator::Operator as _;
use jiff::SignedDuration;

use crate::scheduler::Rng;
use crate::world::{NODES, Pod, World};

/// The kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Pods start and stop on its node.
    Pods,
    /// Blocks of any node are claimed and given up.
    Blocks,
    /// A handle that all such clients share gets addresses and loses them.
    OneHandle,
    /// Time passes.
    Clock,
}

const OPERATIONS: usize = 12;

/// The handle that several clients share.
const SHARED: &str = "k8s-pod-network.shared";

/// A client's work.
pub(crate) async fn client(world: &World, kind: Kind, number: usize, seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
    let allocator = Allocator::new(&world.store);
    let node = NODES[number % NODES.len()];
    for turn in 0..OPERATIONS {
        match kind {
            Kind::Pods => pods(world, &allocator, node, &format!("{node}{number}x{turn}"), &mut rng).await,
            Kind::Blocks => blocks(world, &allocator, &mut rng).await,
            Kind::OneHandle => one_handle(world, &allocator, node, &mut rng).await,
            Kind::Clock => {
                let seconds = if world.shape.clock_jumps {
                    rng.below(7_200) as i64 - 3_600
                } else {
                    rng.below(20) as i64
                };
                world.store.advance(SignedDuration::from_secs(seconds));
                // A request like any other, so that others have their turn.
                drop(allocator.config().await);
            }
        }
        if world.shape.empty_blocks_are_old {
            world.store.advance(SignedDuration::from_secs(30));
        }
    }
}

pub(crate) type Allocating<'w> = Allocator<&'w MemoryStore>;

async fn pods(world: &World, allocator: &Allocating<'_>, node: &str, name: &str, rng: &mut Rng) {
    match rng.below(10) {
        0..=4 => start(world, allocator, node, name, rng).await,
        5 => start_at(world, allocator, node, name, rng).await,
        6..=8 => stop(world, allocator, rng).await,
        _ => stop_by_address(world, allocator, rng).await,
    }
}

pub(crate) fn attributes(node: &str, name: &str, now: jiff::Timestamp) -> Option<BTreeMap<String, String>> {
    let timestamp = calipam_model::time::format_go_utc(now.as_nanosecond() as i64);
    let entries = [("node", node), ("pod", name), ("namespace", "default"), ("timestamp", &timestamp)];
    Some(entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
}

/// A node without time limits and without a lock: the datastore is safe without it.
pub(crate) struct Unlimited;

impl Host for Unlimited {
    type LockGuard = ();
    type Error = Infallible;

    async fn lock(&self) {}

    async fn within<T>(&self, _: Duration, work: impl Future<Output = T>) -> Option<T> {
        Some(work.await)
    }
}

fn plugin<'p>(allocator: &'p Allocating<'p>) -> Plugin<'p, &'p MemoryStore, Unlimited> {
    Plugin { allocator, host: &Unlimited }
}

pub(crate) fn container(node: &str, handle: &str) -> Container {
    Container { node: node.to_owned(), handle: handle.to_owned(), machine: None }
}

/// CNI ADD.
async fn start(world: &World, allocator: &Allocating<'_>, node: &str, name: &str, rng: &mut Rng) {
    let wanted = Wanted::Any { v4: true, v6: rng.below(2) == 1, max_blocks_per_host: 0 };
    add(world, allocator, node, name, wanted).await;
}

/// CNI ADD with an address that the pod requests.
async fn start_at(world: &World, allocator: &Allocating<'_>, node: &str, name: &str, rng: &mut Rng) {
    let address: IpAddr = format!("10.0.0.{}", rng.below(32)).parse().unwrap();
    add(world, allocator, node, name, Wanted::Address(address)).await;
}

async fn add(world: &World, allocator: &Allocating<'_>, node: &str, name: &str, wanted: Wanted) {
    let handle = format!("k8s-pod-network.{name}");
    world.begin(&handle);
    let attributes = attributes(node, name, world.store.now()).unwrap_or_default();
    let add = Add { container: container(node, &handle), attributes, wanted };
    match plugin(allocator).add(&add).await {
        Ok(added) => {
            let addresses = added.addresses.iter().map(IpNet::addr).collect();
            world.give(Pod { node: node.to_owned(), handle: handle.clone(), addresses });
            world.end(&handle);
        }
        // The runtime cleans up after a failed ADD.
        Err(_) => delete(world, allocator, node, &handle, &[]).await,
    }
}

/// CNI DEL, which a runtime repeats if it fails.
async fn delete(world: &World, allocator: &Allocating<'_>, node: &str, handle: &str, previous: &[IpAddr]) {
    let old_handle = handle.replace("k8s-pod-network", "default");
    let del = Del { container: container(node, handle), old_handle, previous: previous.to_vec() };
    for _ in 0..20 {
        match plugin(allocator).del(&del).await {
            Ok(()) => return world.end(handle),
            Err(Failure::Allocator(error)) if error.is_unavailable() => {}
            Err(failure) => panic!("{handle} cannot be released: {failure}"),
        }
    }
}

fn any_pod(world: &World, rng: &mut Rng) -> Option<Pod> {
    let mut pods = world.pods.borrow_mut();
    let count = pods.len() as u64;
    (count > 0).then(|| pods.swap_remove(rng.below(count) as usize))
}

async fn stop(world: &World, allocator: &Allocating<'_>, rng: &mut Rng) {
    let Some(pod) = any_pod(world, rng) else { return };
    world.withdraw(&pod);
    delete(world, allocator, &pod.node, &pod.handle, &pod.addresses).await;
}

/// A collector releases the addresses one by one, with guards, and the runtime comes later.
async fn stop_by_address(world: &World, allocator: &Allocating<'_>, rng: &mut Rng) {
    let Some(pod) = any_pod(world, rng) else { return };
    world.withdraw(&pod);
    let request =
        |address: &IpAddr| Release { address: *address, handle: Some(pod.handle.clone()), sequence: None };
    let requests: Vec<Release> = pod.addresses.iter().map(request).collect();
    let _ = allocator.release_ips(&requests).await;
    delete(world, allocator, &pod.node, &pod.handle, &pod.addresses).await;
}

async fn blocks(world: &World, allocator: &Allocating<'_>, rng: &mut Rng) {
    let node = NODES[rng.below(3) as usize];
    let cidr = format!("10.0.0.{}/30", 4 * rng.below(8)).parse().unwrap();
    match rng.below(6) {
        0 => drop(allocator.claim_affinity(cidr, AffinityType::Host, node).await),
        1 => drop(allocator.release_affinity(cidr, node, InUse::Refuse).await),
        2 => drop(allocator.release_affinity(cidr, node, InUse::Release).await),
        3 => drop(allocator.release_host_affinities(AffinityType::Host, node, InUse::Refuse).await),
        4 => drop(allocator.release_pool_affinities("10.0.0.0/28".parse().unwrap()).await),
        _ => world.store.advance(SignedDuration::from_secs(70)),
    }
}

/// An operation on a handle whose addresses others release meanwhile, so that their holder is not known.
async fn one_handle(world: &World, allocator: &Allocating<'_>, node: &str, rng: &mut Rng) {
    world.begin(SHARED);
    match rng.below(4) {
        0 | 1 => {
            let request = AutoAssign {
                host: node.to_owned(),
                v4: 1,
                handle: Some(SHARED.to_owned()),
                attributes: attributes(node, "shared", world.store.now()),
                intended_use: Some(PoolUse::Workload),
                max_per_handle: 2 * rng.below(2) as u32,
                ..AutoAssign::default()
            };
            drop(allocator.auto_assign(&request).await);
        }
        2 => {
            let address = format!("10.0.0.{}", rng.below(32)).parse().unwrap();
            let request = AssignIp {
                handle: Some(SHARED.to_owned()),
                attributes: attributes(node, "shared", world.store.now()),
                ..AssignIp::new(node, address)
            };
            drop(allocator.assign_ip(&request).await);
        }
        _ => drop(allocator.release_by_handle_wholly(SHARED).await),
    }
}
