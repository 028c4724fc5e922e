//! The time for which a finding must last before it counts.

use calipam_model::snapshot::Snapshot;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use jiff::SignedDuration;

use crate::{FindingAges, Options, check};

/// A cluster with a pod, and a snapshot of it that lacks the pod's handle.
fn without_a_handle() -> (Cluster, Snapshot) {
    let mut cluster = Cluster::plain(ClusterSpec::new(5), 3, 4);
    let handle = cluster.add_pod_on(0).handle;
    let mut snapshot = cluster.snapshot();
    snapshot
        .handles
        .retain(|stored| stored.value.id() != *handle.as_str());
    (cluster, snapshot)
}

#[test]
fn a_finding_with_dependencies_counts_after_the_settle_time() {
    let (cluster, snapshot) = without_a_handle();
    let begin = snapshot.taken_at;
    let mut ages = FindingAges::new(SignedDuration::from_secs(5));
    let mut found_at = |seconds: i64, snapshot: &Snapshot| {
        let mut report = check(snapshot, &Options::default());
        let now = begin + SignedDuration::from_secs(seconds);
        let held = ages.hold_back(&mut report, now, now);
        assert!(report.rechecked);
        (
            report.findings.len(),
            held.len(),
            ages.next().map(|at| at.duration_since(begin).as_secs()),
        )
    };
    assert_eq!(found_at(0, &snapshot), (0, 1, Some(5)));
    assert_eq!(found_at(4, &snapshot), (0, 1, Some(5)));
    // The time starts over if a finding disappears and comes back.
    assert_eq!(found_at(5, &cluster.snapshot()), (0, 0, None));
    assert_eq!(found_at(6, &snapshot), (0, 1, Some(11)));
    assert_eq!(found_at(11, &snapshot), (1, 0, None));
    assert_eq!(found_at(12, &snapshot), (1, 0, None));
}

#[test]
fn a_clock_jump_neither_delays_nor_advances_a_finding() {
    let (_, snapshot) = without_a_handle();
    let begin = snapshot.taken_at;
    let mut ages = FindingAges::new(SignedDuration::from_secs(5));
    let mut counts_at = |seconds: i64| {
        let mut report = check(&snapshot, &Options::default());
        let now = begin + SignedDuration::from_secs(seconds);
        ages.hold_back(&mut report, now, now);
        (
            report.findings.len(),
            ages.next().map(|at| at.duration_since(begin).as_secs()),
        )
    };
    assert_eq!(counts_at(0), (0, Some(5)));
    assert_eq!(
        counts_at(-3_600),
        (0, Some(-3_595)),
        "an hour back: it counts five seconds from then"
    );
    assert_eq!(counts_at(-3_596), (0, Some(-3_595)));
    assert_eq!(counts_at(-3_595), (1, None));
    assert_eq!(
        counts_at(-7_200),
        (1, None),
        "a finding that counts keeps counting"
    );
}

/// With separate watches, the data of one kind of object can be older than that of another kind.
#[test]
fn with_separate_watches_every_finding_waits_until_all_changes_have_arrived() {
    let cluster = Cluster::all_faults(ClusterSpec::new(5), 1).snapshot();
    let begin = cluster.taken_at;
    let mut ages = FindingAges::new(SignedDuration::from_secs(5)).with_independent_kinds(true);
    let mut found_at = |now: i64, known: i64| {
        let mut report = check(&cluster, &Options::default());
        let all = report.findings.len();
        let [now, known] = [now, known].map(|seconds| begin + SignedDuration::from_secs(seconds));
        let held = ages.hold_back(&mut report, now, known);
        assert_eq!(held.len() + report.findings.len(), all);
        (report.findings.is_empty(), held.is_empty())
    };
    assert_eq!(found_at(0, -60), (true, false));
    assert_eq!(
        found_at(9, 4),
        (true, false),
        "it is not known whether it has lasted for so long"
    );
    assert_eq!(found_at(10, 5), (false, true));
    assert_eq!(found_at(11, 5), (false, true));
}

#[test]
fn a_finding_whose_objects_were_read_again_counts_before_all_is_known() {
    let (_, snapshot) = without_a_handle();
    let at = |seconds: i64| snapshot.taken_at + SignedDuration::from_secs(seconds);
    let mut ages = FindingAges::new(SignedDuration::from_secs(5)).with_independent_kinds(true);
    let key = check(&snapshot, &Options::default()).findings[0].key();
    let counts = |ages: &mut FindingAges, now: i64| {
        let mut report = check(&snapshot, &Options::default());
        ages.hold_back(&mut report, at(now), at(0));
        report.findings.len()
    };

    assert_eq!(ages.due_at(&key), None, "it was not found yet");
    assert_eq!(counts(&mut ages, 0), 0);
    assert_eq!(ages.due_at(&key), Some(at(5)));
    assert!(!ages.is_due(&key, at(4)) && ages.is_due(&key, at(5)));
    assert_eq!(counts(&mut ages, 6), 0, "not all changes are known");

    ages.count(&key);
    assert_eq!(ages.due_at(&key), None, "it counts already");
    assert_eq!(counts(&mut ages, 7), 1);
    assert_eq!(counts(&mut ages, 8), 1);
}
