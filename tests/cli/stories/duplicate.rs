//! A script has released addresses that are in use. One of them was assigned again, and more will be.

use calipam_testkit::cluster::Fault;

use super::*;

#[test]
fn two_pods_with_one_address() {
    let cluster = Cluster::plain(ClusterSpec::new(12).v4_only(), 3, 4)
        .with(Fault::DuplicatePods, 1)
        .with(Fault::UnallocatedFreed, 2);
    let etcd = Etcd::of(&cluster).unwrap();
    let mut story = Story::begin(etcd);

    assert_eq!(story.tell("calipam check").code, 1);
    let address = subject(&cluster, "duplicate-address");
    let shown = story.tell(&format!("calipam show --ip {address}"));
    let lost: std::net::IpAddr = subject(&cluster, "unallocated-in-use").parse().unwrap();
    let block = cluster
        .blocks()
        .find(|block| block.cidr.contains(&lost))
        .unwrap()
        .cidr;
    assert_eq!(
        story.tell(&format!("calipam rebuild --block {block}")).code,
        1,
        "the duplicate is skipped"
    );
    let rebuild = format!("calipam rebuild --block {block} --apply --endpoints-only --yes");
    assert_eq!(story.tell(&rebuild).code, 1);

    // Of the two pods, the one without a record in the block is deleted.
    let recorded = shown
        .stdout
        .lines()
        .find(|line| line.starts_with("Recorded"))
        .unwrap();
    let is_intruder = |living: &Living| {
        let name = format!("{}/{}", living.namespace, living.pod);
        shown.stdout.contains(&name) && !recorded.contains(&name)
    };
    delete_pod(
        &mut story,
        &endpoints(&cluster).into_iter().find(is_intruder).unwrap(),
    );
    story.tell("calipam check").succeeded().prints("No findings");
    check_document("duplicate", &story.told);
}

fn subject(cluster: &Cluster, code: &str) -> String {
    cluster
        .truth()
        .iter()
        .find(|f| f.code == code)
        .expect("the fault was injected")
        .subject
}

/// Acts like `kubectl delete pod`, after which the CNI plugin deletes the endpoint and releases the handle.
fn delete_pod(story: &mut Story, living: &Living) {
    story.tell_deletion(living);
    assert_eq!(story.etcd().delete(&living.key).unwrap(), 1);
    story
        .run(&format!(
            "release --handle {} --grace 0 --settle 0 --yes",
            living.handle
        ))
        .succeeded();
}
