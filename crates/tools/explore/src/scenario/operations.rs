//! Worlds with room for eight blocks of each family. Operations of the allocator are killed before each of their
//! requests, or pods come and go while blocks are claimed and given up.

use calipam_assign::{AssignIp, AutoAssign, Error, InUse, NewOwner, OwnerConditions, OwnerUpdates};
use calipam_model::affinity::AffinityType;
use calipam_model::pool::PoolUse;
use calipam_testkit::operator;

use super::given::Given::{self, At, Block, Both, Gone, Pod};
use super::{ANY, Cluster, FIRST, Faults, Scenario, TWO, large, plain, wanting};
use crate::actor::{Actor, Call, add, cidr, claim, del, del_by_address, disown, operate, release_empty};
use crate::invariants;

const EIGHT: Cluster = Cluster {
    pool: "10.0.0.0/27",
    pool_v6: Some("fd00::/123"),
    ..TWO
};
const HALF: &str = "10.0.0.0/28";
/// A handle that several clients share.
const SHARED: &str = "k8s-pod-network.shared";

/// A pod on node `a5` with an address of each family. Its IPv4 address is from the first block.
const WITH_POD: &[Given] = &[Block(FIRST, "a5"), Both("a5/first")];
/// A pod on `a5` where `b55` has every IPv4 block.
const TAKEN: &[Given] = &[Block(EIGHT.pool, "b55"), Both("a5/first")];
/// The same with a pod in each block, so that none is empty.
const ALL_IN_USE: &[Given] = &[
    Block(EIGHT.pool, "b55"),
    Both("a5/first"),
    At(3, "b55/b0"),
    At(7, "b55/b1"),
    At(11, "b55/b2"),
    At(15, "b55/b3"),
    At(19, "b55/b4"),
    At(23, "b55/b5"),
    At(27, "b55/b6"),
    At(31, "b55/b7"),
];

/// Starts another pod on node `a5`. The pod wants an address of each family.
fn next() -> Vec<Actor> {
    vec![add(Call::of_both("a5/next")).abandoned()]
}

/// Releases the affinities of all blocks of `a5`.
fn give_up(in_use: InUse) -> Actor {
    operate("a gives up its blocks", move |_, allocator| async move {
        let released = allocator
            .release_host_affinities(AffinityType::Host, "a5", in_use)
            .await;
        // A block that a pod uses is not released. The operation reports that as an error.
        if in_use == InUse::Refuse { Ok(()) } else { released }
    })
}

fn give_up_pool(network: &'static str) -> Actor {
    operate(
        format!("the blocks of {network} are given up"),
        move |_, allocator| async move { operator::release_pool_affinities(&allocator, cidr(network)).await },
    )
}

fn remove_host(node: &'static str) -> Actor {
    operate(format!("{node} is removed"), move |_, allocator| async move {
        operator::remove_host(&allocator, AffinityType::Host, node).await
    })
}

/// Sets a second owner of the pod's address, as in a live migration.
fn set_owner() -> Actor {
    operate("a second owner is recorded", |world, allocator| async move {
        let first = Call::of_both("a5/first");
        let target = Call::from("b55/target");
        let alternate = NewOwner::Set(target.attributes(world.now()));
        let updates = OwnerUpdates {
            alternate,
            ..OwnerUpdates::default()
        };
        let address = world.truth.addresses(&first.handle())[0];
        let conditions = OwnerConditions::default();
        allocator
            .set_owner_attributes(address, &first.handle(), &updates, &conditions)
            .await
    })
}

/// A world with one operation. Afterwards, the next pod on the node must be assigned its addresses.
fn one(name: &'static str, before: &'static [Given], actors: fn() -> Vec<Actor>) -> Scenario {
    Scenario {
        end: invariants::next_pod_starts,
        longest: 160,
        ..plain(name, EIGHT, before, actors)
    }
}

fn interrupted() -> Vec<Scenario> {
    vec![
        // A pod starts in a block of its node.
        one("interrupted-add", WITH_POD, next),
        // A pod starts where the block of its node is full.
        one(
            "interrupted-add-in-new-block",
            &[
                Block(FIRST, "a5"),
                Both("a5/first"),
                Pod("a5/x"),
                Pod("a5/y"),
                Pod("a5/z"),
            ],
            next,
        ),
        // A pod starts where another node uses or just claimed all blocks.
        one("interrupted-add-by-borrowing", ALL_IN_USE, next),
        // A pod starts where another node has all blocks.
        one("interrupted-add-by-reclaiming", TAKEN, next),
        // A pod gets the address that it wants.
        one("interrupted-add-of-address", WITH_POD, || {
            vec![add(wanting(1, "a5/next")).abandoned()]
        }),
        // The same where the block is missing.
        one("interrupted-add-of-address-in-new-block", WITH_POD, || {
            vec![add(wanting(8, "a5/next")).abandoned()]
        }),
        // A pod stops.
        one("interrupted-del", WITH_POD, || {
            vec![del(Call::of_both("a5/first")).abandoned()]
        }),
        // The addresses of a pod are released.
        one("interrupted-del-by-address", WITH_POD, || {
            vec![del_by_address(Call::of_both("a5/first"))]
        }),
        // A node claims four blocks, one of which is another's.
        one("interrupted-claim", WITH_POD, || vec![claim(HALF, "b55")]),
        // A node gives up its empty blocks, and keeps that of a pod.
        one(
            "interrupted-give-up-of-empty-blocks",
            &[Block(FIRST, "a5"), Both("a5/first"), Block(HALF, "a5")],
            || vec![give_up(InUse::Refuse)],
        ),
        // A node gives up its blocks, which are in use.
        one("interrupted-give-up", WITH_POD, || vec![give_up(InUse::Release)]),
        // The blocks of a pool are given up.
        one("interrupted-give-up-of-pool", WITH_POD, || {
            vec![give_up_pool(EIGHT.pool)]
        }),
        // A host is removed.
        one("interrupted-remove-host", WITH_POD, || vec![remove_host("a5")]),
        // An address gets a second owner.
        one("interrupted-set-owner", WITH_POD, || vec![set_owner()]),
    ]
}

/// Pods that come and go on all nodes, some without DEL.
fn pods() -> Vec<Actor> {
    vec![
        add(Call::of_both("a5/q1")),
        add(Call::of_both("b55/q2")).abandoned(),
        add("c8/q3"),
        add(wanting(5, "b55/q4")),
        del(Call::of_both("a5/p1")),
        del_by_address(Call::of_both("b55/p2")),
    ]
}

/// Pods that come and go while blocks are claimed and given up.
fn pods_and_blocks() -> Vec<Actor> {
    let mut actors = pods();
    actors.extend([
        claim(HALF, "c8"),
        release_empty("10.0.0.8/30", "c8"),
        disown(FIRST, "a5"),
        give_up_pool(HALF),
        remove_host("b55"),
        give_up(InUse::Refuse),
    ]);
    actors
}

/// Assigns an address to the shared handle, which has `most` addresses at most; 0 for no limit.
fn fill(node: &'static str, most: u32) -> Actor {
    operate(
        format!("{node} fills the handle"),
        move |_, allocator| async move {
            let request = AutoAssign {
                host: node.to_owned(),
                v4: 1,
                handle: Some(SHARED.to_owned()),
                intended_use: Some(PoolUse::Workload),
                max_per_handle: most,
                ..AutoAssign::default()
            };
            allocator
                .auto_assign(&request)
                .await
                .map(drop)
                .map_err(|partly| partly.error)
        },
    )
}

/// Assigns the address 10.0.0.`last` to the shared handle.
fn fill_at(node: &'static str, last: u8) -> Actor {
    operate(
        format!("{node} fills the handle with an address"),
        move |_, allocator| async move {
            let wanted = AssignIp::new(node, [10, 0, 0, last].into());
            allocator
                .assign_ip(&AssignIp {
                    handle: Some(SHARED.to_owned()),
                    ..wanted
                })
                .await
        },
    )
}

/// Releases all addresses of the shared handle.
fn empty() -> Actor {
    operate("the handle is emptied", |_, allocator| async move {
        match allocator.release_by_handle_fully(SHARED).await {
            Err(Error::NoHandle(_)) => Ok(()),
            released => released,
        }
    })
}

/// Clients that fill and empty one handle.
fn of_one_handle() -> Vec<Actor> {
    vec![
        fill("a5", 0),
        fill("b55", 2),
        fill_at("c8", 1),
        empty(),
        fill("c8", 2),
        fill_at("a5", 9),
        empty(),
    ]
}

/// A handle that is emptied, and so deleted, while a client assigns its first address. Another client makes it anew.
fn made_anew() -> Vec<Actor> {
    vec![fill_at("c8", 1), empty(), fill("a5", 0)]
}

/// A large world with pods on two nodes, and an empty block on the third.
fn busy(name: &'static str, cluster: Cluster, actors: fn() -> Vec<Actor>) -> Scenario {
    // DEL releases the leftovers of the shared handle at the end.
    const BEFORE: &[Given] = &[
        Both("a5/p1"),
        Both("b55/p2"),
        Block("10.0.0.8/30", "c8"),
        Gone(SHARED),
    ];
    let end = invariants::at_the_end_of_claims;
    Scenario {
        end,
        ..large(name, cluster, BEFORE, actors)
    }
}

pub(super) fn all() -> Vec<Scenario> {
    // The jump of an hour ahead exceeds every waiting period. After any two of these jumps, an old block is still old.
    let hours = Faults {
        jumps: &[3_600, -1_700],
        ..ANY
    };
    let busy = [
        // Pods of three nodes come and go, by both families.
        busy("busy-pods", EIGHT, pods),
        // The same while blocks are claimed and given up.
        busy("busy-blocks", EIGHT, pods_and_blocks),
        busy(
            "busy-blocks-strict",
            Cluster {
                strict_affinity: true,
                ..EIGHT
            },
            pods_and_blocks,
        ),
        Scenario {
            kinds: hours,
            ..busy(
                "busy-cooldown",
                Cluster {
                    cooldown: 30,
                    ..EIGHT
                },
                pods_and_blocks,
            )
        },
        // Several clients fill and empty one handle.
        busy("busy-handle", EIGHT, of_one_handle),
        busy("handle-made-anew", EIGHT, made_anew),
    ];
    interrupted().into_iter().chain(busy).collect()
}
