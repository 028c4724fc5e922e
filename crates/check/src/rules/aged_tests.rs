//! Findings that appear merely because time passes.

use std::collections::HashSet;

use calipam_model::pod::{Pod, PodParts};
use calipam_model::service::Service;
use calipam_model::snapshot::{Snapshot, Source};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::kubernetes_tests::{running, versioned};
use super::service_tests::{add_service, web};
use crate::test_cluster::{Cluster, pod};
use crate::{Code, Context, Finding, Options, Subject, check};

/// Checks the entire snapshot a day later, and compares its new findings with the aged ones. Returns the codes of the
/// new findings.
pub(super) fn assert_aged(snapshot: &Snapshot, name: &str) -> HashSet<Code> {
    let options = Options::default();
    let own: HashSet<(Code, Subject)> = subjects(snapshot, &options);
    let mut later = snapshot.clone();
    later.taken_at += SignedDuration::from_hours(24);
    let expected: HashSet<(Code, Subject)> = &subjects(&later, &options) - &own;

    let aged = |codes: &HashSet<Code>| {
        let aged = Context::new(snapshot, &options).aged(later.taken_at, codes);
        &aged - &own
    };
    assert_eq!(aged(&Code::ALL.iter().copied().collect()), expected, "{name}");
    let codes: HashSet<Code> = expected.iter().map(|(code, _)| *code).collect();
    for code in &codes {
        let found = aged(&HashSet::from([*code]));
        let of_code = |all: &HashSet<(Code, Subject)>| {
            all.iter()
                .filter(|(own, _)| own == code)
                .cloned()
                .collect::<HashSet<_>>()
        };
        assert_eq!(of_code(&found), of_code(&expected), "{name}: {code} alone");
    }
    codes
}

fn subjects(snapshot: &Snapshot, options: &Options) -> HashSet<(Code, Subject)> {
    check(snapshot, options)
        .findings
        .into_iter()
        .map(|finding| (finding.code, finding.subject))
        .collect()
}

/// A pod's record, one minute old.
fn young(name: &str) -> Value {
    let mut record = pod("node-1", name);
    record["secondary"]["timestamp"] = "2026-05-01 11:59:00 +0000 UTC".into();
    record
}

fn with(records: impl IntoIterator<Item = Value>) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.block("10.244.1.0/30", "host:node-1", records);
    cluster.0.nodes[0].value.tunnels.clear();
    cluster
}

#[test]
fn each_kind_of_finding_that_appears_only_with_time() {
    let leak = with([young("web-0"), pod("node-1", "old")]);
    assert_eq!(assert_aged(&leak.0, "leak"), HashSet::from([Code::LeakedAddress]));

    let mut mismatch = with([young("web-0")]);
    mismatch.endpoint("node-1", "other", &["10.244.1.0/32"]);
    assert_eq!(
        assert_aged(&mismatch.0, "mismatch"),
        HashSet::from([Code::OwnerMismatch])
    );

    // The release time comes from a clock that is ahead. The block is not fully checked until that time has passed.
    let mut future = with([
        json!({"releasedAt": "2026-05-01T18:00:00Z"}),
        pod("node-1", "old"),
    ]);
    future.endpoint("node-1", "web-0", &["10.244.1.2/32"]);
    let codes = HashSet::from([Code::LeakedAddress, Code::UnallocatedInUse, Code::MissingHandle]);
    assert_eq!(assert_aged(&future.0, "future"), codes);

    let mut finished = with([]);
    finished.endpoint("node-1", "job", &[]);
    let ended = "2026-05-01T11:59:30Z".parse().ok();
    let parts = PodParts {
        phase: "Succeeded",
        ended_at: ended,
        ..running("job", "")
    };
    finished.0.pods.push(versioned(Pod::new(&parts).0));
    finished.0.mark_read([Source::Pods]);
    assert_eq!(
        assert_aged(&finished.0, "finished"),
        HashSet::from([Code::EndpointWithoutPod])
    );

    let mut service = with([]);
    let created = "2026-05-01T11:59:00Z".parse().ok();
    add_service(&mut service, Service { created, ..web() });
    assert_eq!(
        assert_aged(&service.0, "service"),
        HashSet::from([Code::ServiceWithoutAddress])
    );
    let at_once = Options {
        grace: Some(SignedDuration::ZERO),
        ..Options::default()
    };
    let told: Vec<String> = check(&service.0, &at_once)
        .findings
        .iter()
        .map(Finding::message)
        .collect();
    assert_eq!(told, ["default/web is a LoadBalancer service without an address"]);
}

#[test]
fn nothing_ages_without_ipam() {
    let mut cluster = Cluster::new();
    cluster.endpoint("node-1", "job", &[]);
    assert_eq!(assert_aged(&cluster.0, "without"), HashSet::new());
}
