//! Single runs. Runs with the same seed are equal, and no address ever has two owners.

use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::answer::{Run, run};
use calipam_simulate::{Families, Micros, Scenario};

use crate::{fails, pool, small};

/// A cluster in which pods come and go, and a node fails and is removed.
fn busy(datastore: DatastoreKind, seed: u64) -> Scenario {
    Scenario {
        seed,
        datastore,
        nodes: 8,
        pods_per_node: 12,
        pools: vec![pool("10.0.0.0/22", 28), pool("fd00::/112", 122)],
        cooldown: Micros::from_secs(20),
        lifetime: Some(Micros::from_mins(4)),
        arrival: Some("6/s".parse().unwrap()),
        removal: Some(Micros::from_mins(7)),
        grace: Some(Micros::from_mins(2)),
        duration: Some(Micros::from_mins(16)),
        event: fails("node-3"),
        ..Scenario::default()
    }
}

#[test]
fn every_pod_of_a_cluster_with_room_starts() {
    let shown = run(&small()).unwrap();
    assert_eq!((shown.pods, shown.waiting_pods, shown.clashes), (60, 0, 0));
    assert_eq!((shown.adds.started, shown.adds.failed), (60, 0));
    assert_eq!(shown.blocks.allocated, 60);
    // Each node has 10 pods, more or less, and blocks of 16 addresses.
    assert!((6..=8).contains(&shown.blocks.blocks), "{:?}", shown.blocks);
    assert_eq!(shown.blocks.addresses - shown.blocks.wasted, 60);
    // An ADD sends requests for the inputs, the block, the handle, and the block again, as the plugin does.
    assert_eq!(shown.adds.requests_in_own_block.median, 4);
    // The first request for the block is replaced by these: the inputs again, some block keys, the pending affinity
    // twice, the block, and the confirmed affinity.
    assert_eq!(shown.adds.requests_with_list.median, 9);
}

#[test]
fn a_seed_gives_the_same_run_on_any_machine_without_an_address_of_two_owners() {
    for datastore in [DatastoreKind::Etcd, DatastoreKind::Kubernetes] {
        let runs = [5, 6, 7].map(|seed| run(&busy(datastore, seed)).unwrap());
        assert_eq!(runs[0], run(&busy(datastore, 5)).unwrap());
        assert_ne!(runs[0].adds, runs[1].adds);
        if datastore == DatastoreKind::Etcd {
            let Run {
                pods,
                datastore_requests,
                adds,
                ..
            } = &runs[0];
            let times = (adds.time.mean, adds.time.p99, adds.time.worst);
            assert_eq!((*pods, *datastore_requests, times), RECORDED);
        }
        for Run {
            clashes,
            pods,
            adds,
            deleted,
            ..
        } in &runs
        {
            assert_eq!(*clashes, 0, "{datastore}");
            assert!(
                *pods > 60 && adds.started > 150 && *deleted > 80,
                "{datastore}: {pods} {adds:?}"
            );
        }
    }
}

/// The result on one machine. All machines must have the same result until the model changes.
const RECORDED: (u64, u64, (Micros, Micros, Micros)) =
    (96, 5_728, (Micros(6_207), Micros(10_359), Micros(13_345)));

#[test]
fn an_exhausted_pool_is_a_result() {
    // There are 16 blocks for 20 nodes, so four nodes have no block, and borrow.
    let borrowing = Scenario {
        nodes: 20,
        pods_per_node: 5,
        pools: vec![pool("10.0.0.0/24", 28)],
        ..small()
    };
    let shown = run(&borrowing).unwrap();
    assert_eq!((shown.waiting_pods, shown.blocks.blocks), (0, 16));
    assert!(shown.blocks.borrowed > 0, "{:?}", shown.blocks);
    assert!(
        shown.blocks.routes == 16 + shown.blocks.borrowed,
        "{:?}",
        shown.blocks
    );

    // With strict affinity, the pods of these nodes cannot start. The run ends nevertheless.
    let strict = Scenario {
        strict_affinity: true,
        ..borrowing
    };
    let shown = run(&strict).unwrap();
    assert!(
        shown.simulated <= strict.end() + Micros::from_mins(4),
        "{}",
        shown.simulated
    );
    assert!(shown.waiting_pods > 0 && shown.adds.failed > 0, "{shown:?}");
    assert!(shown.blocks.stranded_nodes >= 4, "{:?}", shown.blocks);
    let reasons: Vec<&String> = shown.adds.reasons.keys().collect();
    assert!(
        reasons.iter().any(|reason| reason.contains("strict affinity")),
        "{reasons:?}"
    );
}

#[test]
fn nodes_that_claim_at_once_have_conflicts_and_start_all_pods() {
    let all_at_once = Scenario {
        nodes: 40,
        pods_per_node: 4,
        pools: vec![pool("10.0.0.0/22", 28)],
        arrival: Some("10000/s".parse().unwrap()),
        ..small()
    };
    let shown = run(&all_at_once).unwrap();
    assert_eq!(shown.waiting_pods, 0);
    assert!(shown.adds.conflicts > 0, "{:?}", shown.adds);
    // Pods of one node wait for each other.
    assert!(shown.adds.waited.worst > shown.adds.waited.median);
}

#[test]
fn pods_that_wait_for_a_slow_datastore_start_before_a_run_ends() {
    // The five pods of a node start one after the other. Each needs two writes, and the first also needs the four
    // writes of a claim.
    let scenario = Scenario {
        pods_per_node: 5,
        max_pods_per_node: 5,
        arrival: Some("60/s".parse().unwrap()),
        latency: "write=12s,jitter=0".into(),
        ..small()
    };
    let shown = run(&scenario).unwrap();
    assert_eq!((shown.waiting_pods, shown.pods), (0, 30));
    assert!(shown.simulated > scenario.end(), "{}", shown.simulated);
    // A call with a claim takes 72 s, longer than its limit of a minute. The kubelet's next call has a block.
    assert!(shown.adds.failed + shown.adds.too_long > 0, "{:?}", shown.adds);
    // A run with a given duration ends after that time.
    let shown = run(&Scenario {
        duration: Some(Micros::from_mins(1)),
        ..scenario
    })
    .unwrap();
    assert_eq!(shown.simulated, Micros::from_mins(1));
    assert!(shown.waiting_pods > 0, "{shown:?}");
}

#[test]
fn pods_arrive_no_faster_than_a_scheduler_places_them() {
    let rate = |nodes: u32| Scenario { nodes, ..small() }.arrival().to_string();
    assert_eq!([rate(10), rate(500), rate(5_000)], ["2/s", "100/s", "100/s"]);
}

#[test]
fn more_pods_than_addresses_can_be_simulated() {
    let scenario = Scenario {
        nodes: 4,
        pods_per_node: 10,
        pools: vec![pool("10.0.0.0/27", 29)],
        ..small()
    };
    let shown = run(&scenario).unwrap();
    assert_eq!((shown.pods, shown.waiting_pods), (32, 8));
    assert_eq!(shown.time_to_address.count, 32);
}

#[test]
fn a_pod_gets_addresses_of_the_requested_families() {
    let pools = vec![pool("10.0.0.0/24", 28), pool("fd00::/116", 124)];
    let allocated = |families| {
        let scenario = Scenario {
            families,
            pools: pools.clone(),
            ..small()
        };
        run(&scenario).unwrap().blocks.allocated
    };
    assert_eq!(allocated(None), 120);
    let expected = [60, 60, 120];
    assert_eq!(
        [Families::Ipv4, Families::Ipv6, Families::Dual].map(|one| allocated(Some(one))),
        expected
    );
    let none = Scenario {
        families: Some(Families::Ipv6),
        ..small()
    };
    assert!(run(&none).unwrap_err().to_string().contains("no pool"));
}

#[test]
fn the_time_to_an_address_includes_calls_that_failed() {
    // A pod whose first ADD finds the pool exhausted gets the address of a pod that leaves.
    let scenario = Scenario {
        nodes: 1,
        pods_per_node: 9,
        pools: vec![pool("10.0.0.0/29", 29)],
        lifetime: Some(Micros::from_mins(1)),
        duration: Some(Micros::from_mins(10)),
        ..small()
    };
    let shown = run(&scenario).unwrap();
    assert!(
        shown.adds.failed > 0 && shown.time_to_address.worst > Micros::from_secs(10),
        "{shown:?}"
    );
    assert!(shown.time_to_address.worst > shown.adds.time.worst, "{shown:?}");
}
