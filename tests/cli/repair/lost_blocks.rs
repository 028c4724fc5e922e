//! Objects that were lost or left behind together: what is planned for one does not contradict what is said of another.

use super::site::*;
use crate::cli::program::{calipam, file, items};

/// The commands of all cures that a report has.
fn commands(report: &Value) -> Vec<String> {
    let of_causes = items(&report["causes"])
        .iter()
        .flat_map(|cause| items(&cause["cures"]));
    let all = of_causes.chain(items(&report["cures"]));
    all.map(|cure| cure["command"].as_str().unwrap().to_owned())
        .collect()
}

/// On an etcd without a kubeconfig, nothing tells whether pods still need handles whose block and endpoints were lost.
#[test]
fn handles_of_a_lost_block_stay_if_no_pods_were_read() {
    let mut cluster = healthy();
    let pods: Vec<Pod> = (0..4).map(|_| cluster.add_pod_on(0)).collect();
    let blocks: BTreeSet<IpNet> = pods
        .iter()
        .flat_map(|pod| pod.addresses.iter().map(|(_, block)| *block))
        .collect();
    blocks
        .iter()
        .for_each(|block| drop(cluster.remove(&key::block(*block))));
    pods.iter().for_each(|pod| drop(cluster.remove(&pod.endpoint)));
    let site = Site::of(&cluster);

    let report = site.run_at_once(&["check", "-o", "json"], &[]).json();
    let advised = commands(&report);
    assert!(
        !advised.is_empty() && advised.iter().all(|line| !line.contains("--orphan-handles")),
        "{advised:?}"
    );

    let before = site.dump();
    let plan = site
        .release(&["--leaked", "--orphan-handles", "-o", "json"])
        .completed()
        .json();
    assert_eq!(changes(&plan), set([] as [&str; 0]));
    let skipped = skips(&plan);
    for pod in &pods {
        assert!(
            skipped.contains(&format!("not-read {}", pod.handle)),
            "{skipped:?}"
        );
    }
    assert_eq!(differing(&before, &site.dump()), set([] as [&str; 0]));
}

/// The affinities of a deleted node lack the labels of Calico 3.31, which others get.
#[test]
fn what_a_rebuild_deletes_is_not_skipped_for_its_other_faults() {
    let cluster = healthy().with(Fault::NodeGone, 1);
    let mut list = cluster.kubernetes(Flavour::Native).list();
    let affinities = list["items"].as_array_mut().unwrap().iter_mut();
    for affinity in affinities.filter(|item| item["kind"] == "BlockAffinity") {
        affinity["metadata"].as_object_mut().unwrap().remove("labels");
    }
    let (_folder, path) = file("list.json", list.to_string());
    let plan = calipam(&["rebuild", "--datastore", &path, "-o", "json", "--grace", "0"])
        .completed()
        .json();
    let planned = changes(&plan);
    let deleted = subjects(&planned, "delete-affinity ");
    assert!(
        !deleted.is_empty() && !subjects(&planned, "label-affinity ").is_empty(),
        "{planned:?}"
    );
    let skipped: BTreeSet<String> = skips(&plan)
        .iter()
        .filter_map(|skip| Some(skip.split_once(' ')?.1.to_owned()))
        .collect();
    assert!(deleted.is_disjoint(&skipped), "{skipped:?}");
}
