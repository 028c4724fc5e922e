//! A node has crashed with its pods and was removed from the cluster.

use calipam_testkit::cluster::Fault;

use super::*;

#[test]
fn after_a_node_crash() {
    let mut cluster = Cluster::plain(ClusterSpec::new(11).v4_only(), 3, 4);
    cluster.inject(Fault::NodeGone, 1);
    let etcd = Etcd::start().unwrap();
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let mut story = Story::begin(etcd);

    assert_eq!(story.tell("calipam check").code, 1);
    let gone = cluster.nodes().last().unwrap().name.clone();
    assert_eq!(story.tell(&format!("calipam release --node {gone} --dry-run")).code, 0);
    assert_eq!(story.tell(&format!("calipam release --node {gone} --yes")).code, 0);
    let clean = story.tell("calipam check");
    assert_eq!((clean.code, clean.stdout.contains("No findings")), (0, true), "{clean:?}");
    check_document("node-crash", &story.told);
}
