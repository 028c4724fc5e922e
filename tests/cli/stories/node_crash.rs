//! A node has crashed with its pods and was removed from the cluster.

use calipam_testkit::cluster::Fault;

use super::*;

#[test]
fn after_a_node_crash() {
    let cluster = Cluster::plain(ClusterSpec::new(11).v4_only(), 3, 4).with(Fault::NodeGone, 1);
    let etcd = Etcd::of(&cluster).unwrap();
    let mut story = Story::begin(etcd);

    assert_eq!(story.tell("calipam check").code, 1);
    let gone = cluster.nodes().last().unwrap().name.clone();
    assert_eq!(
        story
            .tell(&format!("calipam release --node {gone} --dry-run"))
            .code,
        0
    );
    assert_eq!(
        story.tell(&format!("calipam release --node {gone} --yes")).code,
        0
    );
    story.tell("calipam check").succeeded().prints("No findings");
    check_document("node-crash", &story.told);
}
