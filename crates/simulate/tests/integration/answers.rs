//! Experiments that consist of many runs.

use calipam_simulate::answer::{Cause, Failure, block_sizes, clashes, failure, scale};
use calipam_simulate::{Micros, Scenario};

use crate::{fails, pool, small};

#[test]
fn the_number_of_nodes_affects_the_time_of_a_claim_but_not_the_requests_of_an_add() {
    let scenario = Scenario {
        pools: vec![pool("10.0.0.0/14", 26)],
        ..small()
    };
    let shown = scale(&scenario, &[10, 200], 1).unwrap();
    let [few, many] = &shown.rows[..] else {
        panic!("{shown:?}")
    };
    assert_eq!((few.nodes, many.nodes), (10, 200));
    assert_eq!(
        few.adds.requests_in_own_block.median,
        many.adds.requests_in_own_block.median
    );
    assert!(
        many.adds.time_with_list.median > few.adds.time_with_list.median,
        "{shown:?}"
    );
    assert_eq!(
        scale(&scenario, &[10, 0], 1).unwrap_err().to_string(),
        "there is no node"
    );
}

#[test]
fn smaller_blocks_waste_less_and_announce_more_routes() {
    let shown = block_sizes(&small(), &[24, 26, 29], 1).unwrap();
    let wasted: Vec<u64> = shown.rows.iter().map(|row| row.run.blocks.wasted).collect();
    let routes: Vec<u64> = shown.rows.iter().map(|row| row.run.blocks.routes).collect();
    assert!(wasted.is_sorted_by(|a, b| a > b), "{wasted:?}");
    assert!(routes.is_sorted() && routes[0] < routes[2], "{routes:?}");
    let too_large = block_sizes(
        &Scenario {
            pools: vec![pool("10.0.0.0/25", 26)],
            ..small()
        },
        &[24],
        1,
    );
    assert_eq!(
        too_large.unwrap_err().to_string(),
        "a block of /24 is larger than the pool 10.0.0.0/25"
    );
}

#[test]
fn only_the_collector_frees_the_addresses_of_a_removed_node() {
    let scenario = Scenario {
        removal: Some(Micros::from_mins(10)),
        event: fails("node-1"),
        ..small()
    };
    let shown = failure(&scenario, 1).unwrap();
    assert_eq!(shown.node, "node-1");
    assert!(shown.held >= 5, "{shown:?}");
    let free = shown.with_collector.addresses_free_after.unwrap();
    // The addresses are freed soon after the node is removed and its pods are gone, but not before.
    assert!(
        (Micros::from_secs(640)..Micros::from_mins(13)).contains(&free),
        "{free}"
    );
    assert!(shown.with_collector.blocks_free_after.is_some());
    assert_eq!(shown.without_collector.addresses_free_after, None);
    assert_eq!(shown.without_collector.points.last().unwrap().held, shown.held);
    let several = failure(&scenario, 3).unwrap();
    let range = several.range.unwrap();
    let free = |failure: &Failure| failure.with_collector.addresses_free_after.unwrap();
    assert!(free(&range.lowest) <= free(&range.highest) && range.highest.held >= range.lowest.held);
    assert_eq!(range.lowest.without_collector.addresses_free_after, None);
    // The pods of the node are replaced once the node has been known to be down for five minutes.
    assert!(
        shown
            .with_collector
            .all_running_after
            .is_some_and(|after| after >= Micros::from_secs(340))
    );

    // A node that stays in the cluster keeps its addresses.
    let shown = failure(
        &Scenario {
            removal: None,
            ..scenario
        },
        1,
    )
    .unwrap();
    assert_eq!(
        (shown.removed_after, shown.with_collector.addresses_free_after),
        (None, None)
    );
}

#[test]
fn each_cause_gives_addresses_two_owners_and_no_cause_does_not() {
    // The pool is nearly full, so that freed addresses are soon assigned again.
    let scenario = Scenario {
        pods_per_node: 9,
        pools: vec![pool("10.0.0.0/26", 29)],
        ..small()
    };
    let shown = clashes(&scenario, &Cause::ALL, 2).unwrap();
    let causes: Vec<Cause> = shown.causes.iter().map(|row| row.cause).collect();
    assert_eq!(causes, Cause::ALL);
    for row in &shown.causes {
        let is_cause = row.cause != Cause::None;
        assert_eq!(row.clashes > 0, is_cause, "{row:?}");
        assert_eq!(row.first_clash_after.is_some(), is_cause, "{row:?}");
    }
    let codes = |cause: Cause| -> Vec<&str> {
        let row = shown.causes.iter().find(|row| row.cause == cause).unwrap();
        row.findings.iter().map(|found| found.code.as_str()).collect()
    };
    assert!(codes(Cause::None).is_empty(), "{:?}", codes(Cause::None));
    for cause in [Cause::OldBackup, Cause::SharedHandle, Cause::FreedByHand] {
        let found = codes(cause);
        assert!(found.contains(&"unallocated-in-use"), "{cause:?} {found:?}");
        assert!(found.contains(&"duplicate-address"), "{cause:?} {found:?}");
    }
}
