//! Worlds with room for eight blocks of each family. Operations of the allocator are killed before each of their
//! requests, or pods come and go while blocks are claimed and given up.

use calipam_assign::plugin::Wanted;
use calipam_assign::{AssignIp, AutoAssign, Error, InUse, NewOwner, OwnerConditions, OwnerUpdates};
use calipam_model::affinity::AffinityType;
use calipam_model::pool::PoolUse;
use calipam_testkit::operator::Operator as _;

use super::{ANY, Before, Cluster, FIRST, Faults, Scenario, TWO_BLOCKS, cidr, large, plain};
use crate::actor::{Actor, Call, add, claim, del, del_by_address, disown, operate, release_empty};
use crate::invariants;

const EIGHT: Cluster = Cluster { pool: "10.0.0.0/27", pool_v6: Some("fd00::/123"), ..TWO_BLOCKS };
const HALF: &str = "10.0.0.0/28";
/// A handle that several clients share.
const SHARED: &str = "k8s-pod-network.shared";

/// A call for a pod that wants this IPv4 address.
fn at(node: &str, pod: &str, last: u8) -> Call {
    Call { wanted: Wanted::Address([10, 0, 0, last].into()), ..Call::new(node, pod) }
}

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
fn give_up(in_use: InUse) -> Vec<Actor> {
    vec![operate("a gives up its blocks", move |_, allocator| async move {
        let released = allocator.release_host_affinities(AffinityType::Host, "a", in_use).await;
        // A block that a pod uses is not released. The operation reports that as an error.
        if in_use == InUse::Refuse { Ok(()) } else { released }
    })]
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
        let (first, target) = (Call::of_both("a", "first"), Call::new("b", "target"));
        let alternate = NewOwner::Set(target.attributes(world.now()));
        let updates = OwnerUpdates { alternate, ..OwnerUpdates::default() };
        let (address, conditions) = (world.truth.addresses(&first.handle())[0], OwnerConditions::default());
        allocator.set_owner_attributes(address, &first.handle(), &updates, &conditions).await
    })
}

/// A world with one operation. Afterwards, the next pod on the node must be assigned its addresses.
fn one(
    name: &'static str,
    about: &'static str,
    before: fn(&Before<'_>),
    actors: fn() -> Vec<Actor>,
) -> Scenario {
    Scenario { end: invariants::next_pod_starts, longest: 160, ..plain(name, about, EIGHT, before, actors) }
}

fn interrupted() -> Vec<Scenario> {
    vec![
        one("interrupted-add", "a pod starts in a block of its node", with_pod, next),
        one(
            "interrupted-add-in-new-block",
            "a pod starts where the block of its node is full",
            |before| {
                with_pod(before);
                ["x", "y", "z"].into_iter().for_each(|pod| before.pod("a", pod));
            },
            next,
        ),
        one(
            "interrupted-add-by-borrowing",
            "a pod starts where another node uses or just claimed all blocks",
            |before| {
                taken(before);
                // Each block contains a pod, so none is empty.
                (0..8).for_each(|block| before.served(&at("b", &format!("b{block}"), 4 * block + 3)));
            },
            next,
        ),
        one("interrupted-add-by-reclaiming", "a pod starts where another node has all blocks", taken, next),
        one("interrupted-add-of-address", "a pod gets the address that it wants", with_pod, || {
            vec![add(at("a", "next", 1)).abandoned()]
        }),
        one(
            "interrupted-add-of-address-in-new-block",
            "the same where the block is missing",
            with_pod,
            || vec![add(at("a", "next", 8)).abandoned()],
        ),
        one("interrupted-del", "a pod stops", with_pod, || {
            vec![del(Call::of_both("a", "first")).abandoned()]
        }),
        one("interrupted-del-by-address", "the addresses of a pod are released", with_pod, || {
            vec![del_by_address(Call::of_both("a", "first"))]
        }),
        one("interrupted-claim", "a node claims four blocks, one of which is another's", with_pod, || {
            vec![claim(cidr(HALF), "b")]
        }),
        one(
            "interrupted-give-up-of-empty-blocks",
            "a node gives up its empty blocks, and keeps that of a pod",
            |before| {
                with_pod(before);
                before.block(HALF, "a");
            },
            || give_up(InUse::Refuse),
        ),
        one("interrupted-give-up", "a node gives up its blocks, which are in use", with_pod, || {
            give_up(InUse::Release)
        }),
        one("interrupted-give-up-of-pool", "the blocks of a pool are given up", with_pod, || {
            vec![give_up_pool(EIGHT.pool)]
        }),
        one("interrupted-remove-host", "a host is removed", with_pod, || vec![remove_host("a")]),
        one("interrupted-set-owner", "an address gets a second owner", with_pod, || vec![set_owner()]),
    ]
}

/// Pods that come and go on all nodes, some without DEL.
fn pods() -> Vec<Actor> {
    vec![
        add(Call::of_both("a", "q1")),
        add(Call::of_both("b", "q2")).abandoned(),
        add(Call::new("c", "q3")),
        add(at("b", "q4", 5)),
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
    ]);
    actors.extend(give_up(InUse::Refuse));
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
fn busy(name: &'static str, about: &'static str, cluster: Cluster, actors: fn() -> Vec<Actor>) -> Scenario {
    let before = |before: &Before<'_>| {
        before.served(&Call::of_both("a", "p1"));
        before.served(&Call::of_both("b", "p2"));
        before.block("10.0.0.8/30", "c");
        // Registers the shared handle like a deleted pod, so that DEL releases its leftovers at the end.
        before.0.truth.begin(SHARED, "a");
        before.0.truth.remove_pod(SHARED);
    };
    let end = invariants::at_the_end_of_claims;
    Scenario { end, ..large(name, about, cluster, before, actors) }
}

pub(super) fn all() -> Vec<Scenario> {
    // The jump of an hour ahead exceeds every waiting period. After any two of these jumps, an old block is still old.
    let hours = Faults { jumps: &[3_600, -1_700], ..ANY };
    let of_pods = "pods of three nodes come and go, by both families";
    let of_blocks = "the same while blocks are claimed and given up";
    let busy = [
        busy("busy-pods", of_pods, EIGHT, pods),
        busy("busy-blocks", of_blocks, EIGHT, pods_and_blocks),
        busy("busy-blocks-strict", of_blocks, Cluster { strict_affinity: true, ..EIGHT }, pods_and_blocks),
        Scenario {
            kinds: hours,
            ..busy("busy-cooldown", of_blocks, Cluster { cooldown: 30, ..EIGHT }, pods_and_blocks)
        },
        busy("busy-handle", "several clients fill and empty one handle", EIGHT, of_one_handle),
    ];
    interrupted().into_iter().chain(busy).collect()
}
