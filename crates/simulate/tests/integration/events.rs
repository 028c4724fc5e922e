//! What happens to a cluster: each event does what it says, and leaves nothing behind.

use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::answer::{AtEnd, Run, run};
use calipam_simulate::{Collector, Event, Micros, Planned, PoolSpec, Scenario};

use crate::{pool, small};

fn after(what: Event, change: impl FnOnce(&mut Scenario)) -> Run {
    let mut scenario = Scenario { events: vec![Planned { at: Micros::from_mins(3), what }], ..small() };
    change(&mut scenario);
    let shown = run(&scenario).unwrap();
    assert_eq!(shown.clashes, 0, "{shown:?}");
    shown
}

#[test]
fn pods_of_a_node_that_returns_start_again() {
    let away = Micros::from_mins(1);
    let shown = after(Event::RebootNode { node: "node-1".into(), away }, |_| {});
    assert_eq!((shown.pods, shown.waiting_pods, shown.at_end), (60, 0, AtEnd::default()));
    assert!(shown.adds.started > 60 && shown.deleted == shown.adds.started - 60, "{shown:?}");
    assert_eq!(shown.blocks.allocated, 60);
    // The wait counts from the return.
    assert!(shown.time_to_address.worst < Micros::from_secs(2), "{}", shown.time_to_address.worst);
}

#[test]
fn a_node_that_returns_late_finds_its_pods_replaced() {
    let away = Micros::from_mins(8);
    let shown = after(Event::RebootNode { node: "node-1".into(), away }, |_| {});
    assert_eq!((shown.pods, shown.waiting_pods, shown.at_end), (60, 0, AtEnd::default()));
    assert_eq!(shown.blocks.allocated, 60);
}

#[test]
fn nodes_that_join_take_the_pods_that_found_no_place() {
    let full = |scenario: &mut Scenario| {
        (scenario.nodes, scenario.max_pods_per_node) = (4, 10);
        scenario.events.push(Planned { at: Micros::from_mins(2), what: Event::Burst(15) });
    };
    assert_eq!(after(Event::AddNodes(0), full).waiting_pods, 15);
    let shown = after(Event::AddNodes(2), full);
    assert_eq!((shown.pods, shown.waiting_pods), (55, 0));
}

#[test]
fn new_nodes_replace_all_others_and_the_collector_frees_their_blocks() {
    let shown = after(Event::ReplaceNodes { batch: 2 }, |scenario| {
        scenario.collector = Some(Collector { grace: Micros::from_mins(2), interval: None });
        scenario.duration = Some(Micros::from_mins(20));
    });
    assert_eq!((shown.pods, shown.waiting_pods, shown.at_end), (60, 0, AtEnd::default()));
    // What the nodes before had is free.
    assert!(shown.adds.started >= 120 && shown.blocks.blocks <= 14, "{shown:?}");
}

#[test]
fn machines_that_migrate_keep_their_addresses_and_leave_blocks_behind() {
    for datastore in [DatastoreKind::Etcd, DatastoreKind::Kubernetes] {
        let shown = after(Event::MigrateMachines(20), |scenario| {
            scenario.datastore = datastore;
            // Again, and the nodes that they have come to are drained.
            let again = Planned { at: Micros::from_mins(5), what: Event::MigrateMachines(60) };
            let drained = Planned { at: Micros::from_mins(7), what: Event::DrainNode("node-1".into()) };
            scenario.events.extend([again, drained]);
        });
        assert_eq!((shown.pods, shown.waiting_pods, shown.at_end), (60, 0, AtEnd::default()));
        assert!(shown.adds.started >= 60 + 70 && shown.adds.failed == 0, "{:?}", shown.adds);
        assert_eq!(shown.blocks.allocated, 60);
        assert!(shown.blocks.borrowed >= 20, "{:?}", shown.blocks);
    }
}

#[test]
fn a_plugin_that_is_killed_leaves_nothing_and_its_pod_starts() {
    let shown = after(Event::KillPlugins(10), |scenario| {
        scenario.events.push(Planned { at: Micros::from_mins(3), what: Event::Burst(20) });
    });
    assert_eq!((shown.pods, shown.waiting_pods, shown.adds.failed), (80, 0, 10));
    assert_eq!(shown.adds.reasons["the plugin was killed"], 10);
    assert_eq!((shown.blocks.allocated, shown.at_end), (80, AtEnd::default()));
}

#[test]
fn a_datastore_that_is_away_or_slow_makes_pods_wait() {
    let burst = |scenario: &mut Scenario| {
        scenario.events.push(Planned { at: Micros::from_mins(3), what: Event::Burst(20) });
    };
    let lasting = Micros::from_secs(40);
    let away = after(Event::StopDatastore { lasting }, burst);
    assert!(away.phases.storm.time_to_address.worst >= lasting, "{:?}", away.phases);
    assert_eq!((away.waiting_pods, away.phases.storm.pods), (0, 20));
    assert!(away.phases.fill.time_to_address.worst < Micros::from_secs(1), "{:?}", away.phases);
    assert!(away.curve.iter().any(|moment| moment.waiting > 0), "{:?}", away.curve);

    let slow = after(Event::SlowDatastore { times: 20, lasting }, burst).phases.storm.time_to_address;
    let usual = after(Event::SlowDatastore { times: 1, lasting }, burst).phases.storm.time_to_address;
    assert!(slow.median.0 > usual.median.0 * 5, "{slow:?} {usual:?}");
}

#[test]
fn pods_that_found_no_address_get_one_from_a_pool_that_is_added() {
    let tight = |scenario: &mut Scenario| scenario.pools = vec![pool("10.0.0.0/27", 29)];
    assert_eq!(after(Event::DisablePool("10.0.0.0/27".parse().unwrap()), tight).waiting_pods, 28);
    let shown = after(Event::AddPool(PoolSpec::new("10.1.0.0/24".parse().unwrap())), tight);
    assert_eq!((shown.pods, shown.waiting_pods), (60, 0));
}

#[test]
fn a_disabled_pool_gives_no_new_address_and_settings_count_from_their_change() {
    let late = |scenario: &mut Scenario| {
        scenario.events.push(Planned { at: Micros::from_mins(4), what: Event::Burst(5) });
    };
    let shown = after(Event::DisablePool("10.0.0.0/20".parse().unwrap()), late);
    assert_eq!(shown.waiting_pods, 5);
    // Blocks of 16 for 10 pods: two of the five of a node borrow from another, which strict affinity forbids.
    let one_block = |scenario: &mut Scenario| {
        scenario.events.push(Planned { at: Micros::from_mins(4), what: Event::Burst(60) });
    };
    let strict =
        Event::Configure { strict_affinity: Some(true), max_blocks_per_host: Some(1), cooldown: None };
    let shown = after(strict, one_block);
    assert!(shown.waiting_pods > 0 && shown.blocks.borrowed == 0, "{shown:?}");
    assert_eq!(after(Event::AddNodes(0), one_block).waiting_pods, 0);
}
