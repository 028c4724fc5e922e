use std::io::Cursor;

use calipam_model::snapshot::WhySkipped;
use serde_json::json;

use super::*;
use crate::finding::{Evidence, HandleEvidence};
use crate::{Options, Report, check};

/// A report with findings about handles.
fn report(findings: &[(Code, &str)]) -> Report {
    let mut report = check(&crate::test_cluster::Cluster::new().0, &Options::default());
    let finding = |(code, handle): &(Code, &str)| {
        let subject = Subject::Handle((*handle).to_owned());
        Finding::new(*code, subject, "", Evidence::Configuration(BTreeMap::new()))
    };
    report.findings = findings.iter().map(finding).collect();
    report
}

/// The report as it is written to JSON.
fn written(report: &Report) -> Value {
    let mut value = serde_json::to_value(report).unwrap();
    value["apiVersion"] = API_VERSION.into();
    value["kind"] = "CheckReport".into();
    value["findings"] = serde_json::to_value(&report.findings).unwrap();
    value
}

fn earlier(report: &Report) -> EarlierReport {
    EarlierReport::decode(&written(report)).unwrap()
}

fn since(earlier: EarlierReport, report: &Report, dropped: &[Finding]) -> Changes {
    Changes::since(earlier, &report.coverage, &report.findings, dropped)
}

fn names(findings: &[EarlierFinding]) -> Vec<&str> {
    findings
        .iter()
        .map(|finding| finding.subject.name.as_str())
        .collect()
}

#[test]
fn code_and_subject_identify_a_finding() {
    let before = report(&[
        (Code::OrphanHandle, "a"),
        (Code::OrphanHandle, "b"),
        (Code::HandleCount, "c"),
    ]);
    let mut now = report(&[
        (Code::OrphanHandle, "a"),
        (Code::HandleCount, "b"),
        (Code::HandleCount, "c"),
    ]);
    now.findings[0].evidence = Evidence::Handle(Box::new(HandleEvidence {
        revision: Some("8".into()),
        ..HandleEvidence::default()
    }));
    now.findings[2].severity = Severity::Critical;
    let changes = since(earlier(&before), &now, &[]);
    let of: Vec<Change> = now.findings.iter().map(|finding| changes.of(finding)).collect();
    assert_eq!(of, [Change::Stays, Change::New, Change::Worse]);
    assert_eq!(names(&changes.gone), ["b"]);
    assert_eq!(
        changes.worst_new_or_worse(&now.findings),
        Some(Severity::Critical)
    );
    let counts: Vec<usize> = changes.counts(&now.findings).into_values().collect();
    assert_eq!(counts, [1, 1, 1]);
    assert_eq!(
        (changes.not_checked.len(), changes.since),
        (0, before.cluster.taken_at)
    );
}

#[test]
fn findings_that_were_not_checked_again_are_not_gone() {
    let before = report(&[(Code::LeakedAddress, "users"), (Code::OrphanHandle, "own")]);
    let mut now = report(&[]);
    let unread = |now: &mut Report, source| {
        now.coverage
            .insert(source, Coverage::Skipped(WhySkipped::NoKubeconfig));
    };
    let mut then = before.clone();
    then.coverage.insert(Source::Pods, Coverage::Read);
    unread(&mut now, Source::Pods);
    let changes = since(earlier(&then), &now, &[]);
    assert_eq!(
        (names(&changes.gone), names(&changes.not_checked)),
        (vec!["own"], vec!["users"])
    );
    let expected = (&[Source::Pods][..], &[][..]);
    assert_eq!(
        (changes.not_read_now.as_slice(), changes.not_read_then.as_slice()),
        expected
    );
    let changes = since(earlier(&now), &then, &[]);
    assert_eq!(changes.not_read_then, [Source::Pods]);

    unread(&mut now, Source::Blocks);
    let changes = since(earlier(&then), &now, &[]);
    assert_eq!((names(&changes.gone), changes.not_checked.len()), (vec![], 2));

    let dropped = report(&[(Code::OrphanHandle, "own")]).findings;
    let changes = since(earlier(&before), &report(&[]), &dropped);
    assert_eq!(
        (names(&changes.gone), names(&changes.not_checked)),
        (vec!["users"], vec!["own"])
    );
}

#[test]
fn findings_of_unknown_rules_are_not_checked_and_filters_apply() {
    let mut value = written(&report(&[(Code::OrphanHandle, "a"), (Code::HandleCount, "b")]));
    value["findings"][0]["code"] = "weather".into();
    value["findings"][0]["severity"] = "fatal".into();
    value["coverage"]["clouds"] = "read".into();
    let earlier = EarlierReport::decode(&value).unwrap();
    assert_eq!(earlier.findings[0].severity, None);
    let mut changes = since(earlier, &report(&[]), &[]);
    assert_eq!(
        (names(&changes.gone), names(&changes.not_checked)),
        (vec!["b"], vec!["a"])
    );
    changes.narrow(&Filter {
        rules: vec![Code::OrphanHandle],
        ..Filter::default()
    });
    assert_eq!((changes.gone.len(), changes.not_checked.len()), (0, 0));
}

#[test]
fn unchanged_findings_are_neither_new_nor_worse() {
    assert_eq!(
        [Change::New, Change::Worse, Change::Stays].map(Change::is_new_or_worse),
        [true, true, false]
    );
}

#[test]
fn other_documents_are_refused_and_missing_coverage_is_accepted() {
    let whole = written(&report(&[(Code::OrphanHandle, "a")]));
    let decode = EarlierReport::decode;
    for (field, value) in [
        ("kind", json!("PoolList")),
        ("apiVersion", json!("calipam/v2")),
        ("cluster", json!({"guid": "g"})),
        ("findings", json!(null)),
        ("findings", json!([7])),
        ("findings", json!([{"code": "orphan-handle"}])),
        ("findings", json!([{"subject": {"kind": "handle", "name": "a"}}])),
    ] {
        let mut bad = whole.clone();
        bad[field] = value.clone();
        assert!(decode(&bad).is_err(), "{field}: {value}");
    }
    assert!(decode(&whole).is_ok());
    let mut older = whole;
    older.as_object_mut().unwrap().remove("coverage");
    let changes = since(
        decode(&older).unwrap(),
        &report(&[(Code::OrphanHandle, "a")]),
        &[],
    );
    assert_eq!(
        (
            changes.not_read_now.len(),
            changes.not_read_then.len(),
            changes.gone.len()
        ),
        (0, 0, 0)
    );
    let parses = |text: &str| read_document::<Value>(Cursor::new(text.to_owned())).is_ok();
    assert_eq!(["a: 1", "{}", "{"].map(parses), [true, true, false]);
}
