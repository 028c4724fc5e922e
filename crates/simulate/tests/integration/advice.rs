//! Advice on clusters that can be worked out by hand. Pods are spread evenly, so each node has its maximum number of
//! pods.

use calipam_simulate::answer::{Advice, Drawback, advise};
use calipam_simulate::{PoolSpec, Scenario};

use crate::{pool, small};

fn full(nodes: u32, pods: u32, pools: Vec<PoolSpec>) -> Scenario {
    Scenario {
        nodes,
        pods_per_node: pods,
        max_pods_per_node: pods,
        pools,
        ..small()
    }
}

fn advice(scenario: &Scenario) -> Advice {
    advise(scenario, &[24, 25, 26, 27, 28, 29], 1).unwrap()
}

fn drawbacks(advice: &Advice, size: u8) -> &[Drawback] {
    let found = advice
        .candidates
        .iter()
        .find(|candidate| candidate.row.block_size == size);
    &found.unwrap_or_else(|| panic!("no /{size}")).drawbacks
}

#[test]
fn a_block_holds_the_pods_of_a_node_if_there_is_room() {
    // Wasted addresses of a node, plus 8 for each of its routes: /26 44 + 8, /27 12 + 8, /28 12 + 16, /29 4 + 24.
    let found = advice(&full(6, 20, vec![pool("10.0.0.0/20", 26)]));
    assert_eq!(
        (found.block_size, found.block_limit),
        (Some(27), Some(2)),
        "{found:?}"
    );
    // Six blocks of 32 addresses, plus a quarter to spare: 240 addresses.
    assert_eq!(
        (found.pool_addresses.unwrap().0, found.pool_prefix),
        (240, Some(24))
    );
    assert_eq!(found.pools_suffice, Some(true));
    assert!(
        found
            .candidates
            .iter()
            .all(|candidate| candidate.drawbacks.is_empty()),
        "{found:?}"
    );
}

#[test]
fn many_pods_take_several_blocks_if_that_wastes_less() {
    // The same sums: /24 106 + 8, /25 106 + 16, /26 42 + 24, /27 10 + 40, /28 10 + 80.
    let found = advice(&Scenario {
        max_pods_per_node: 250,
        ..full(6, 150, vec![pool("10.0.0.0/20", 26)])
    });
    assert_eq!(found.block_size, Some(27), "{found:?}");
    // 250 pods need 8 blocks of 32 on each node.
    assert_eq!(
        (found.block_limit, found.pool_addresses.unwrap().0),
        (Some(9), 6 * 256 * 5 / 4)
    );
    // With blocks of 8, the pods of a node need 32 blocks, but a node may have only 20.
    assert_eq!(drawbacks(&found, 29), [Drawback::BlockLimit]);
}

#[test]
fn each_node_still_has_a_block_in_a_small_pool() {
    // 4 blocks of 64, or 8 of 32, are too few for 10 nodes. A /28 wastes 4 + 8, a /29 4 + 16.
    let scarce = full(10, 12, vec![pool("10.0.0.0/24", 26)]);
    let found = advice(&scarce);
    assert_eq!(
        (found.block_size, found.pools_suffice),
        (Some(28), Some(true)),
        "{found:?}"
    );
    for size in [24, 25, 26, 27] {
        assert_eq!(drawbacks(&found, size), [Drawback::Borrows], "/{size}");
    }
    // With strict affinity, nodes cannot borrow, so some are stranded and their pods wait.
    let found = advice(&Scenario {
        strict_affinity: true,
        ..scarce
    });
    assert_eq!(found.block_size, Some(28), "{found:?}");
    for size in [24, 25, 26, 27] {
        assert_eq!(
            drawbacks(&found, size),
            [Drawback::WaitingPods, Drawback::StrandedNodes],
            "/{size}"
        );
    }
}

#[test]
fn a_larger_pool_is_advised_if_no_size_fits_the_pool() {
    // For 20 nodes, 16 blocks of 16 are too few. 32 blocks of 8 are also too few, since each node needs two.
    let found = advice(&full(20, 12, vec![pool("10.0.0.0/24", 26)]));
    assert!(
        found
            .candidates
            .iter()
            .all(|candidate| candidate.drawbacks == [Drawback::Borrows]),
        "{found:?}"
    );
    assert_eq!(
        (found.block_size, found.pools_suffice),
        (Some(28), Some(false)),
        "{found:?}"
    );
    // 20 blocks of 16 addresses, plus a quarter to spare: 400 addresses.
    assert_eq!(
        (found.pool_addresses.unwrap().0, found.pool_prefix),
        (400, Some(23))
    );
}

#[test]
fn a_pool_of_the_other_family_does_not_make_up_for_a_small_one() {
    // 14 blocks of 16 addresses, plus a quarter to spare, are more than the 256 addresses of the IPv4 pool.
    let pools = vec![pool("10.0.0.0/24", 26), pool("fd00::/64", 122)];
    let found = advice(&full(14, 12, pools));
    assert_eq!(
        (found.block_size, found.pools_suffice),
        (Some(28), Some(false)),
        "{found:?}"
    );

    let found = advice(&full(6, 20, vec![pool("fd00::/112", 122)]));
    assert_eq!(
        (found.block_size, found.pool_prefix),
        (Some(123), Some(120)),
        "{found:?}"
    );
}

#[test]
fn many_blocks_are_not_advised_with_slow_writes() {
    // Each claim of a block takes four more writes.
    let slow = Scenario {
        latency: "write=500ms".into(),
        ..full(30, 16, vec![pool("10.0.0.0/18", 26)])
    };
    let found = advise(&slow, &[26, 28, 30], 1).unwrap();
    assert!(drawbacks(&found, 30).contains(&Drawback::Slow), "{found:?}");
    assert_ne!(found.block_size, Some(30), "{found:?}");
}
