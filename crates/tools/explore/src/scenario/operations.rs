//! Worlds with room for eight blocks of each family. Operations of the allocator are killed before each of their
//! requests, or pods come and go while blocks are claimed and given up.

use calipam_assign::{AssignIp, AutoAssign, Error, InUse, NewOwner, OwnerConditions, OwnerUpdates};
use calipam_model::affinity::AffinityType;
use calipam_model::pool::PoolUse;
use calipam_testkit::operator::Operator as _;

use super::{ANY, Before, Cluster, FIRST, Faults, Scenario, TWO_BLOCKS, call, cidr, large, plain, wanting};
use crate::actor::{Actor, Call, add, claim, del, del_by_address, disown, operate, release_empty};
use crate::invariants;

const EIGHT: Cluster = Cluster { pool: "10.0.0.0/27", pool_v6: Some("fd00::/123"), ..TWO_BLOCKS };
const HALF: &str = "10.0.0.0/28";
/// A handle that several clients share.
const SHARED: &str = "k8s-pod-network.shared";

/// Adds a pod on node `a`. The pod has an address of each family. Its IPv4 address is from the first block.
fn with_pod(before: &Before<'_>) {
    before.block(FIRST, "a");
    before.served(&Call::of_both("a", "first"));
}

/// Claims every IPv4 block for `b`, and adds a pod on `a`.
fn taken(before: &Before<'_>) {
    before.block(EIGHT.pool, "b");
    before.served(&Call::of_both("a", "first"));
}

/// Starts another pod on node `a`. The pod wants an address of each family.
fn next() -> Vec<Actor> {
    vec![add(Call::of_both("a", "next")).abandoned()]
}

/// Releases the affinities of all blocks of `a`.
fn give_up(in_use: InUse) -> Actor {
    operate("a gives up its blocks", move |_, allocator| async move {
        let released = allocator.release_host_affinities(AffinityType::Host, "a", in_use).await;
        // A block that a pod uses is not released. The operation reports that as an error.
        if in_use == InUse::Refuse { Ok(()) } else { released }
    })
}

fn give_up_pool(network: &'static str) -> Actor {
    operate(format!("the blocks of {network} are given up"), move |_, allocator| async move {
        allocator.release_pool_affinities(cidr(network)).await
    })
}

fn remove_host(node: &'static str) -> Actor {
    operate(format!("{node} is removed"), move |_, allocator| async move {
        allocator.remove_host(AffinityType::Host, node).await
    })
}

/// Sets a second owner of the pod's address, as in a live migration.
fn set_owner() -> Actor {
    operate("a second owner is recorded", |world, allocator| async move {
        let (first, target) = (Call::of_both("a", "first"), call("b", "target"));
        let alternate = NewOwner::Set(target.attributes(world.now()));
        let updates = OwnerUpdates { alternate, ..OwnerUpdates::default() };
        let (address, conditions) = (world.truth.addresses(&first.handle())[0], OwnerConditions::default());
        allocator.set_owner_attributes(address, &first.handle(), &updates, &conditions).await
    })
}

/// A world with one operation. Afterwards, the next pod on the node must be assigned its addresses.
fn one(name: &'static str, before: fn(&Before<'_>), actors: fn() -> Vec<Actor>) -> Scenario {
    Scenario { end: invariants::next_pod_starts, longest: 160, ..plain(name, EIGHT, before, actors) }
}

fn interrupted() -> Vec<Scenario> {
    vec![
        // A pod starts in a block of its node.
        one("interrupted-add", with_pod, next),
        // A pod starts where the block of its node is full.
        one(
            "interrupted-add-in-new-block",
            |before| {
                with_pod(before);
                before.pods("a", ["x", "y", "z"]);
            },
            next,
        ),
        // A pod starts where another node uses or just claimed all blocks.
        one(
            "interrupted-add-by-borrowing",
            |before| {
                taken(before);
                // Each block contains a pod, so none is empty.
                (0..8).for_each(|block| {
                    before.served(&wanting(4 * block + 3, call("b", &format!("b{block}"))));
                });
            },
            next,
        ),
        // A pod starts where another node has all blocks.
        one("interrupted-add-by-reclaiming", taken, next),
        // A pod gets the address that it wants.
        one("interrupted-add-of-address", with_pod, || vec![add(wanting(1, call("a", "next"))).abandoned()]),
        // The same where the block is missing.
        one("interrupted-add-of-address-in-new-block", with_pod, || {
            vec![add(wanting(8, call("a", "next"))).abandoned()]
        }),
        // A pod stops.
        one("interrupted-del", with_pod, || vec![del(Call::of_both("a", "first")).abandoned()]),
        // The addresses of a pod are released.
        one("interrupted-del-by-address", with_pod, || vec![del_by_address(Call::of_both("a", "first"))]),
        // A node claims four blocks, one of which is another's.
        one("interrupted-claim", with_pod, || vec![claim(cidr(HALF), "b")]),
        // A node gives up its empty blocks, and keeps that of a pod.
        one(
            "interrupted-give-up-of-empty-blocks",
            |before| {
                with_pod(before);
                before.block(HALF, "a");
            },
            || vec![give_up(InUse::Refuse)],
        ),
        // A node gives up its blocks, which are in use.
        one("interrupted-give-up", with_pod, || vec![give_up(InUse::Release)]),
        // The blocks of a pool are given up.
        one("interrupted-give-up-of-pool", with_pod, || vec![give_up_pool(EIGHT.pool)]),
        // A host is removed.
        one("interrupted-remove-host", with_pod, || vec![remove_host("a")]),
        // An address gets a second owner.
        one("interrupted-set-owner", with_pod, || vec![set_owner()]),
    ]
}

/// Pods that come and go on all nodes, some without DEL.
fn pods() -> Vec<Actor> {
    vec![
        add(Call::of_both("a", "q1")),
        add(Call::of_both("b", "q2")).abandoned(),
        add(call("c", "q3")),
        add(wanting(5, call("b", "q4"))),
        del(Call::of_both("a", "p1")),
        del_by_address(Call::of_both("b", "p2")),
    ]
}

/// Pods that come and go while blocks are claimed and given up.
fn pods_and_blocks() -> Vec<Actor> {
    let mut actors = pods();
    actors.extend([
        claim(cidr(HALF), "c"),
        release_empty(cidr("10.0.0.8/30"), "c"),
        disown(cidr(FIRST), "a"),
        give_up_pool(HALF),
        remove_host("b"),
        give_up(InUse::Refuse),
    ]);
    actors
}

/// Clients that fill and empty one handle.
fn of_one_handle() -> Vec<Actor> {
    let fill = |node: &'static str, most| {
        operate(format!("{node} fills the handle"), move |_, allocator| async move {
            let request = AutoAssign {
                host: node.to_owned(),
                v4: 1,
                handle: Some(SHARED.to_owned()),
                intended_use: Some(PoolUse::Workload),
                max_per_handle: most,
                ..AutoAssign::default()
            };
            allocator.auto_assign(&request).await.map(drop).map_err(|partly| partly.error)
        })
    };
    let fill_at = |node: &'static str, last: u8| {
        operate(format!("{node} fills the handle with an address"), move |_, allocator| async move {
            let wanted = AssignIp::new(node, [10, 0, 0, last].into());
            allocator.assign_ip(&AssignIp { handle: Some(SHARED.to_owned()), ..wanted }).await
        })
    };
    let empty = || {
        operate("the handle is emptied", |_, allocator| async move {
            match allocator.release_by_handle_fully(SHARED).await {
                Err(Error::NoHandle(_)) => Ok(()),
                released => released,
            }
        })
    };
    vec![fill("a", 0), fill("b", 2), fill_at("c", 1), empty(), fill("c", 2), fill_at("a", 9), empty()]
}

/// A large world with pods on two nodes, and an empty block on the third.
fn busy(name: &'static str, cluster: Cluster, actors: fn() -> Vec<Actor>) -> Scenario {
    let before = |before: &Before<'_>| {
        before.served(&Call::of_both("a", "p1"));
        before.served(&Call::of_both("b", "p2"));
        before.block("10.0.0.8/30", "c");
        // DEL releases the leftovers of the shared handle at the end.
        before.gone(SHARED);
    };
    let end = invariants::at_the_end_of_claims;
    Scenario { end, ..large(name, cluster, before, actors) }
}

pub(super) fn all() -> Vec<Scenario> {
    // The jump of an hour ahead exceeds every waiting period. After any two of these jumps, an old block is still old.
    let hours = Faults { jumps: &[3_600, -1_700], ..ANY };
    let busy = [
        // Pods of three nodes come and go, by both families.
        busy("busy-pods", EIGHT, pods),
        // The same while blocks are claimed and given up.
        busy("busy-blocks", EIGHT, pods_and_blocks),
        busy("busy-blocks-strict", Cluster { strict_affinity: true, ..EIGHT }, pods_and_blocks),
        Scenario {
            kinds: hours,
            ..busy("busy-cooldown", Cluster { cooldown: 30, ..EIGHT }, pods_and_blocks)
        },
        // Several clients fill and empty one handle.
        busy("busy-handle", EIGHT, of_one_handle),
    ];
    interrupted().into_iter().chain(busy).collect()
}
