//! The time after which findings count.

use calipam_model::snapshot::Snapshot;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use jiff::SignedDuration;

use crate::{Options, Standing, check};

/// A cluster, and its snapshot without a pod's handle.
fn without_a_handle() -> (Cluster, Snapshot) {
    let mut cluster = Cluster::plain(ClusterSpec::new(5), 3, 4);
    let handle = cluster.add_pod_on(0).handle;
    let mut snapshot = cluster.snapshot();
    snapshot.handles.retain(|stored| stored.value.id() != *handle.as_str());
    (cluster, snapshot)
}

#[test]
fn a_finding_that_depends_on_objects_counts_once_it_has_stood() {
    let (cluster, snapshot) = without_a_handle();
    let begin = snapshot.taken_at;
    let mut standing = Standing::new(SignedDuration::from_secs(5));
    let mut found_at = |seconds: i64, snapshot: &Snapshot| {
        let mut report = check(snapshot, &Options::default());
        let now = begin + SignedDuration::from_secs(seconds);
        let held = standing.hold_back(&mut report, now, now);
        assert!(report.rechecked);
        (report.findings.len(), held.len(), standing.next().map(|at| at.duration_since(begin).as_secs()))
    };
    assert_eq!(found_at(0, &snapshot), (0, 1, Some(5)));
    assert_eq!(found_at(4, &snapshot), (0, 1, Some(5)));
    // A finding that disappears in between starts over.
    assert_eq!(found_at(5, &cluster.snapshot()), (0, 0, None));
    assert_eq!(found_at(6, &snapshot), (0, 1, Some(11)));
    assert_eq!(found_at(11, &snapshot), (1, 0, None));
    assert_eq!(found_at(12, &snapshot), (1, 0, None));
}

#[test]
fn a_clock_that_jumps_neither_keeps_a_finding_back_nor_hurries_it() {
    let (_, snapshot) = without_a_handle();
    let begin = snapshot.taken_at;
    let mut standing = Standing::new(SignedDuration::from_secs(5));
    let mut stands_at = |seconds: i64| {
        let mut report = check(&snapshot, &Options::default());
        let now = begin + SignedDuration::from_secs(seconds);
        standing.hold_back(&mut report, now, now);
        (report.findings.len(), standing.next().map(|at| at.duration_since(begin).as_secs()))
    };
    assert_eq!(stands_at(0), (0, Some(5)));
    assert_eq!(stands_at(-3_600), (0, Some(-3_595)), "an hour back: it stands five seconds from then");
    assert_eq!(stands_at(-3_596), (0, Some(-3_595)));
    assert_eq!(stands_at(-3_595), (1, None));
    assert_eq!(stands_at(-7_200), (1, None), "what stands goes on standing");
}

/// Some objects' data can be older than that of others.
#[test]
fn where_objects_come_apart_any_finding_has_to_stand_until_all_is_known() {
    let cluster = Cluster::all_faults(ClusterSpec::new(5), 1).snapshot();
    let begin = cluster.taken_at;
    let mut standing = Standing::new(SignedDuration::from_secs(5)).apart(true);
    let mut found_at = |now: i64, known: i64| {
        let mut report = check(&cluster, &Options::default());
        let all = report.findings.len();
        let [now, known] = [now, known].map(|seconds| begin + SignedDuration::from_secs(seconds));
        let held = standing.hold_back(&mut report, now, known);
        assert_eq!(held.len() + report.findings.len(), all);
        (report.findings.is_empty(), held.is_empty())
    };
    assert_eq!(found_at(0, -60), (true, false));
    assert_eq!(found_at(9, 4), (true, false), "it is not known whether it has stood for so long");
    assert_eq!(found_at(10, 5), (false, true));
    assert_eq!(found_at(11, 5), (false, true));
}

#[test]
fn a_finding_whose_objects_were_read_again_counts_before_all_is_known() {
    let (_, snapshot) = without_a_handle();
    let at = |seconds: i64| snapshot.taken_at + SignedDuration::from_secs(seconds);
    let mut standing = Standing::new(SignedDuration::from_secs(5)).apart(true);
    let key = check(&snapshot, &Options::default()).findings[0].key();
    let mut counts = |now: i64, read_again: Option<i64>| {
        let is_due = standing.is_due(&key, at(now));
        read_again.into_iter().for_each(|seconds| standing.confirm(&key, at(seconds)));
        let mut report = check(&snapshot, &Options::default());
        standing.hold_back(&mut report, at(now), at(0));
        (is_due, report.findings.len())
    };
    assert_eq!(counts(0, None), (false, 0));
    assert_eq!(counts(4, Some(4)), (false, 0), "it has not stood for long enough");
    assert_eq!(counts(6, None), (true, 0));
    assert_eq!(counts(7, Some(7)), (true, 1));
    assert_eq!(counts(8, None), (false, 1));
}
