//! Comparing a report with the ground truth.

use std::collections::BTreeSet;

use calipam_check::{Code, Finding, Options, check};
use calipam_testkit::cluster::{Cluster, Expected};

/// All findings about a cluster.
pub fn findings(cluster: &Cluster) -> Vec<Finding> {
    check(&cluster.snapshot(), &Options::default()).findings
}

/// Fails unless the findings are those of the ground truth, no more and no fewer, with severity and evidence.
pub fn assert_truth(name: &str, cluster: &Cluster) {
    let found = findings(cluster);
    let lines: BTreeSet<String> = found.iter().map(|f| format!("{} {}", f.code, f.subject)).collect();
    let expected: BTreeSet<String> = cluster.truth().lines().into_iter().collect();
    let missing: Vec<_> = expected.difference(&lines).collect();
    let extra: Vec<String> = found
        .iter()
        .filter(|f| !expected.contains(&format!("{} {}", f.code, f.subject)))
        .map(describe)
        .collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{name}: not found: {missing:#?}\nnot expected: {extra:#?}"
    );
    assert_eq!(found.len(), lines.len(), "{name}: one subject and code gave several findings");
    for expected in cluster.truth().iter() {
        let matching =
            |f: &&Finding| f.code.name() == expected.code && f.subject.to_string() == expected.subject;
        let finding = found.iter().find(matching).expect("it was found above");
        assert_finding(name, &expected, finding);
    }
}

fn assert_finding(name: &str, expected: &Expected, finding: &Finding) {
    let code: Code = expected.code.parse().expect("the ground truth knows the codes");
    let severity = expected.severity.clone().unwrap_or_else(|| code.severity().to_string());
    assert_eq!(finding.severity.to_string(), severity, "{name}: {}", describe(finding));
    let evidence = serde_json::to_string(&finding.evidence).expect("evidence serialises");
    for detail in &expected.details {
        assert!(evidence.contains(&format!("\"{detail}\"")), "{name}: no {detail} in {}", describe(finding));
    }
}

fn describe(finding: &Finding) -> String {
    let evidence = serde_json::to_string(&finding.evidence).expect("evidence serialises");
    format!("{} {} {}: {} {evidence}", finding.severity, finding.code, finding.subject, finding.message)
}
