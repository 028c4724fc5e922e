//! The order in which an assignment is written where the datastore has no transactions.

use calipam_check::{Options, check};
use calipam_model::key::Key;
use calipam_plan::Basis;
use calipam_plan::assign::{Request, plan};
use calipam_testkit::cluster::{Cluster, ClusterSpec};

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
