//! The order in which an assignment is written where the datastore has no transactions.

use calipam_check::{Code, Options, check};
use calipam_model::key::Key;
use calipam_plan::assign::{Request, plan};
use calipam_plan::{Basis, try_plan};
use calipam_testkit::cluster::{Cluster, ClusterSpec};

/// A new cluster whose pools overlap. Its tunnels and pods have addresses that no block records.
#[test]
fn the_first_block_is_not_blamed_for_pools_that_overlap() {
    let cluster = Cluster::plain(ClusterSpec::new(12), 2, 3);
    let mut snapshot = cluster.snapshot();
    let inner = snapshot.pools[0].value.cidr.subnets(20).unwrap().next().unwrap();
    let mut pool = snapshot.pools[0].clone();
    (pool.value.name, pool.value.cidr) = ("inner".to_owned(), inner);
    snapshot.pools.push(pool);
    snapshot.blocks.clear();
    snapshot.affinities.clear();
    snapshot.handles.clear();

    let options = Options::default();
    let report = check(&snapshot, &options);
    assert!(report.findings.iter().all(|finding| finding.code == Code::OverlappingPools), "{report:?}");
    assert!(!report.findings.is_empty());
    let node = snapshot.nodes[0].value.clone();
    let request = Request {
        node: node.name.clone(),
        count: 1,
        handle: Some("printer".to_owned()),
        ..Request::default()
    };
    let made = plan(&Basis::new(&snapshot, &report, &options), &node, &request).plan;
    assert_eq!(made.forced.len(), 1);
    let kept = try_plan(snapshot, report, made.clone(), &options).unwrap();
    assert_eq!(kept.actions.len(), made.actions.len(), "{:?}", kept.skipped);
}

#[test]
fn the_affinity_of_a_new_block_comes_before_the_handle_and_the_block() {
    let cluster = Cluster::plain(ClusterSpec::new(12), 2, 3);
    let snapshot = cluster.snapshot();
    let options = Options::default();
    let report = check(&snapshot, &options);
    let basis = Basis::new(&snapshot, &report, &options);
    let node = &snapshot.nodes[0].value;
    let address = cluster.spec().spare_block_v4(0).hosts().nth(4).unwrap();
    let request = Request {
        node: node.name.clone(),
        addresses: vec![address],
        handle: Some("printer".to_owned()),
        ..Request::default()
    };

    let assignment = plan(&basis, node, &request);
    let [action] = &assignment.plan.actions[..] else { panic!("{:?}", assignment.plan) };
    let kinds = action.step.by_object().into_iter().map(|(key, _)| match key {
        Key::Affinity(_) => "affinity",
        Key::Handle(_) => "handle",
        Key::Block(_) => "block",
        _ => "another",
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["affinity", "handle", "block"]);
}
