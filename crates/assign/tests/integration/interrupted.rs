//! Every operation, interrupted before each of its requests in turn. A check must explain the state it leaves, a
//! repeated DEL must clean it up, and the next pod of the node must get an address.

use std::net::IpAddr;
use std::task::{Context, Waker};

use calipam_assign::{
    Allocator, AssignIp, AutoAssign, InUse, NewOwner, OwnerConditions, OwnerUpdates, Release, Store,
};
use calipam_model::affinity::AffinityType;
use calipam_model::pool::PoolUse;
use calipam_testkit::operator::Operator as _;
use jiff::SignedDuration;

use crate::clients::{Allocating, attributes};
use crate::interleaved::{OF_INTERRUPTIONS, OF_QUIET, assert_explained};
use crate::world::{Pod, Shape, World, run};

/// More requests than any operation makes.
const MANY: usize = 500;
const ALL_V4: &str = "10.0.0.0/27";

/// An operation, and the cluster before it. Node `a` always has a pod with both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    AddInOwnBlock,
    /// The block of the node is full.
    AddInNewBlock,
    /// The node has no block of its own, and `b` uses the others.
    AddByBorrowing,
    /// The same, but the blocks of `b` are empty and old.
    AddByReclaiming,
    AddGivenAddress,
    AddGivenAddressInNewBlock,
    DelByHandle,
    DelByAddress,
    Claim,
    GiveUpEmptyBlocks,
    GiveUpBlocksInUse,
    GiveUpPool,
    RemoveHost,
    SetOwner,
}

const OPERATIONS: [Operation; 14] = {
    use Operation::*;
    [
        AddInOwnBlock,
        AddInNewBlock,
        AddByBorrowing,
        AddByReclaiming,
        AddGivenAddress,
        AddGivenAddressInNewBlock,
        DelByHandle,
        DelByAddress,
        Claim,
        GiveUpEmptyBlocks,
        GiveUpBlocksInUse,
        GiveUpPool,
        RemoveHost,
        SetOwner,
    ]
};

fn request(allocator: &Allocating<'_>, node: &str, name: &str, v6: u32) -> AutoAssign {
    AutoAssign {
        host: node.to_owned(),
        v4: 1,
        v6,
        handle: Some(handle(name)),
        attributes: attributes(node, name, allocator.store().now()),
        intended_use: Some(PoolUse::Workload),
        ..AutoAssign::default()
    }
}

fn handle(name: &str) -> String {
    format!("k8s-pod-network.{name}")
}

/// Starts a pod without interruption.
fn start(world: &World, node: &str, name: &str, v6: u32) -> Pod {
    let allocator = Allocator::new(&world.store);
    let assigned = run(allocator.auto_assign(&request(&allocator, node, name, v6))).unwrap();
    let addresses: Vec<IpAddr> = assigned.addresses().collect();
    assert_eq!(addresses.len() as u32, 1 + v6, "{name} on {node}");
    let pod = Pod { node: node.to_owned(), handle: handle(name), addresses };
    world.give(pod.clone());
    pod
}

impl Operation {
    /// The cluster before the operation, and the pod of node `a`.
    fn world(self) -> (World, Pod) {
        let world = World::new(Shape::default());
        let allocator = Allocator::new(&world.store);
        if matches!(self, Self::AddByBorrowing | Self::AddByReclaiming) {
            run(allocator.claim_affinity(ALL_V4.parse().unwrap(), AffinityType::Host, "b")).unwrap();
            let pod = start(&world, "a", "first", 1);
            if self == Self::AddByReclaiming {
                world.store.advance(SignedDuration::from_secs(120));
            }
            return (world, pod);
        }
        let pod = start(&world, "a", "first", 1);
        let more = if self == Self::AddInNewBlock { 3 } else { 0 };
        (0..more).for_each(|number| drop(start(&world, "a", &format!("more{number}"), 0)));
        if self == Self::GiveUpEmptyBlocks {
            run(allocator.claim_affinity("10.0.0.0/28".parse().unwrap(), AffinityType::Host, "a")).unwrap();
        }
        (world, pod)
    }

    /// Prepares the world for the beginning of the operation.
    fn begin(self, world: &World, pod: &Pod) {
        match self {
            Self::DelByHandle | Self::DelByAddress => {
                world.pods.borrow_mut().retain(|other| other.handle != pod.handle);
                world.withdraw(pod);
            }
            Self::AddInOwnBlock
            | Self::AddInNewBlock
            | Self::AddByBorrowing
            | Self::AddByReclaiming
            | Self::AddGivenAddress
            | Self::AddGivenAddressInNewBlock => world.begin(&handle("next")),
            _ => {}
        }
    }

    async fn perform(self, allocator: &Allocating<'_>, pod: &Pod) {
        let host = AffinityType::Host;
        match self {
            Self::AddInOwnBlock | Self::AddInNewBlock | Self::AddByBorrowing | Self::AddByReclaiming => {
                allocator.auto_assign(&request(allocator, "a", "next", 1)).await.unwrap();
            }
            Self::AddGivenAddress => {
                let used = pod.addresses[0];
                let free = format!("10.0.0.{}", (last_octet(used) & !3) + (last_octet(used) + 1) % 4);
                assign(allocator, &free).await;
            }
            Self::AddGivenAddressInNewBlock => {
                let used = last_octet(pod.addresses[0]);
                assign(allocator, &format!("10.0.0.{}", (used + 8) % 32)).await;
            }
            Self::DelByHandle => allocator.release_by_handle_wholly(&pod.handle).await.unwrap(),
            Self::DelByAddress => {
                let release = |address: &IpAddr| Release::any(*address);
                let requests: Vec<Release> = pod.addresses.iter().map(release).collect();
                allocator.release_ips(&requests).await.unwrap();
            }
            Self::Claim => {
                allocator.claim_affinity("10.0.0.0/28".parse().unwrap(), host, "b").await.unwrap();
            }
            Self::GiveUpEmptyBlocks => {
                // Keeps the pod's block, which is an error.
                drop(allocator.release_host_affinities(host, "a", InUse::Refuse).await);
            }
            Self::GiveUpBlocksInUse => {
                allocator.release_host_affinities(host, "a", InUse::Release).await.unwrap()
            }
            Self::GiveUpPool => allocator.release_pool_affinities(ALL_V4.parse().unwrap()).await.unwrap(),
            Self::RemoveHost => allocator.remove_host(host, "a").await.unwrap(),
            Self::SetOwner => {
                let target = attributes("b", "target", allocator.store().now()).unwrap();
                let updates = OwnerUpdates { alternate: NewOwner::Set(target), ..OwnerUpdates::default() };
                let (address, conditions) = (pod.addresses[0], OwnerConditions::default());
                allocator.set_owner_attributes(address, &pod.handle, &updates, &conditions).await.unwrap();
            }
        }
    }
}

fn last_octet(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => unreachable!("the first address of a pod is IPv4"),
    }
}

async fn assign(allocator: &Allocating<'_>, address: &str) {
    let request = AssignIp {
        handle: Some(handle("next")),
        attributes: attributes("a", "next", allocator.store().now()),
        ..AssignIp::new("a", address.parse().unwrap())
    };
    allocator.assign_ip(&request).await.unwrap();
}

/// Lets an operation make some steps, each of which ends before a request; true if it ended.
fn steps(operation: impl Future<Output = ()>, count: usize) -> bool {
    let mut operation = std::pin::pin!(operation);
    let mut context = Context::from_waker(Waker::noop());
    (0..count).any(|_| operation.as_mut().poll(&mut context).is_ready())
}

#[test]
fn every_interruption_is_explained_and_finished() {
    for operation in OPERATIONS {
        let mut requests = 0;
        loop {
            let (world, pod) = operation.world();
            operation.begin(&world, &pod);
            let allocator = Allocator::new(&world.store);
            let has_ended = steps(operation.perform(&allocator, &pod), requests + 1);

            let when = format!("{operation:?}, interrupted before request {requests}");
            world.assert_sound(requests as u64);
            assert_explained(&world, OF_INTERRUPTIONS, &when);
            world.clean_up();
            drop(start(&world, "a", "later", 1));
            world.assert_settled(requests as u64);
            assert_explained(&world, OF_QUIET, &format!("{when}, and cleaned up"));
            if has_ended {
                break;
            }
            requests += 1;
            assert!(requests < MANY, "{operation:?} does not end");
        }
        assert!(requests > 2, "{operation:?} has only {requests} requests");
    }
}
