//! Findings of lists that were read at different times, settled by a second read.

use calipam_model::pod::PodParts;
use serde_json::Value;

use super::kubernetes_tests::{both, kubernetes, revision, running, verdict, with_pods};
use crate::test_cluster::{Cluster, pod};
use crate::{Options, check, drop_changed, suspects};

/// The findings about addresses and endpoints in `first` that are left after `later` was read.
fn standing(first: &Cluster, later: &Cluster) -> Vec<String> {
    let mut report = check(&first.0, &Options::default());
    report
        .findings
        .retain(|finding| ["address", "endpoint"].contains(&finding.subject.kind()));
    assert!(!report.findings.is_empty(), "nothing to settle");
    assert!(
        report
            .findings
            .iter()
            .all(|finding| !finding.depends_on.is_empty()),
        "{:?}",
        suspects(&report)
    );
    drop_changed(&mut report, &first.0, &later.0);
    report
        .findings
        .iter()
        .map(|f| format!("{} {}", f.code, f.subject))
        .collect()
}

/// The cluster at a later time, after its pods, nodes and blocks were written again.
fn written_again(mut cluster: Cluster) -> Cluster {
    cluster
        .0
        .pods
        .iter_mut()
        .for_each(|pod| pod.revision = revision("2"));
    cluster
        .0
        .nodes
        .iter_mut()
        .for_each(|node| node.revision = revision("2"));
    cluster
        .0
        .blocks
        .iter_mut()
        .for_each(|block| block.revision = revision("2"));
    cluster
}

#[test]
fn lists_read_at_different_times_cause_no_findings() {
    let web = || pod("node-1", "web");
    let started = |record: Value, address| {
        with_pods(
            kubernetes(record),
            &[running("web", "10.244.1.0"), running("new", address)],
        )
    };
    let finding = |code: &str, address: &str| vec![format!("{code} {address}")];
    // A pod got its address after blocks had been listed.
    let first = started(web(), "10.244.1.1");
    let mut later = started(web(), "10.244.1.1");
    let found = standing(&first, &written_again(started(web(), "10.244.1.1")));
    assert_eq!(
        found,
        finding("unallocated-in-use", "10.244.1.1"),
        "heartbeats change nothing"
    );
    later.0.blocks.clear();
    later.block("10.244.1.0/30", "host:node-1", [web(), pod("node-1", "new")]);
    assert_eq!(standing(&first, &written_again(later)), [""; 0], "it is recorded");
    let mut later = written_again(started(web(), "10.244.1.1"));
    later.0.pods.pop();
    assert_eq!(standing(&first, &later), [""; 0], "the pod is gone");
    // The pod's block was claimed after blocks had been listed.
    let first = started(web(), "10.244.1.9");
    assert_eq!(
        standing(&first, &first),
        finding("unallocated-in-use", "10.244.1.9")
    );
    let mut later = started(web(), "10.244.1.9");
    later.block(
        "10.244.1.8/30",
        "host:node-1",
        [Value::Null, pod("node-1", "new")],
    );
    assert_eq!(standing(&first, &later), [""; 0], "the block is there");
    // Another owner had the address when blocks were listed.
    let first = with_pods(kubernetes(pod("node-1", "old")), &[running("web", "10.244.1.0")]);
    assert_eq!(standing(&first, &first), finding("owner-mismatch", "10.244.1.0"));
    let later = with_pods(kubernetes(web()), &[running("web", "10.244.1.0")]);
    assert_eq!(
        standing(&first, &written_again(later)),
        [""; 0],
        "it is the pod's"
    );
    // The second owner is a pod that was about to finish.
    let first = started(web(), "10.244.1.0");
    let expected = finding("duplicate-address", "10.244.1.0");
    assert_eq!(
        standing(&first, &written_again(started(web(), "10.244.1.0"))),
        expected
    );
    let done = PodParts {
        phase: "Succeeded",
        ..running("new", "10.244.1.0")
    };
    let later = with_pods(kubernetes(web()), &[running("web", "10.244.1.0"), done]);
    assert_eq!(standing(&first, &later), [""; 0], "it has finished");
    // The pod's node joined after nodes had been listed.
    let elsewhere = || PodParts {
        node: "node-9",
        ..running("web", "")
    };
    let first = with_pods(kubernetes(Value::Null), &[elsewhere()]);
    assert_eq!(
        standing(&first, &first),
        finding("endpoint-of-missing-node", "default/web")
    );
    let mut later = with_pods(kubernetes(Value::Null), &[elsewhere()]);
    let mut joined = later.0.nodes[0].clone();
    joined.value.name = "node-9".into();
    later.0.nodes.push(joined);
    assert_eq!(standing(&first, &later), [""; 0], "the node is there");
}

#[test]
fn pods_are_listed_after_endpoints() {
    let web = || running("web", "10.244.1.0");
    let first = both(&[web(), running("new", "")]);
    assert_eq!(standing(&first, &first), ["pod-without-endpoint default/new"]);
    let mut later = both(&[web(), running("new", "")]);
    later.endpoint("node-1", "new", &["10.244.1.1/32"]);
    assert_eq!(standing(&first, &later), [""; 0], "its endpoint came meanwhile");
    // CNI DEL has removed the endpoint, and the address already has another owner.
    let terminating = PodParts {
        deleting: true,
        ..running("old", "10.244.1.0")
    };
    assert_eq!(verdict(&both(&[web(), terminating])), [""; 0]);
    assert_eq!(
        verdict(&both(&[web(), running("old", "10.244.1.0")])).len(),
        2,
        "one that runs is accused"
    );
}
