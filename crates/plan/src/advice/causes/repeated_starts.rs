//! Workloads whose address leaks at each start: several leaked records of one pod or controller on one node.

use std::collections::BTreeMap;

use calipam_check::claim::Claim;
use calipam_check::{Code, Evidence, Finding, short};
use calipam_model::names::RANDOM_SUFFIX;
use calipam_model::words::count;
use jiff::Timestamp;

use super::{Facts, Found};

/// The number of leaked addresses from which on they have one cause.
const REPEATED: usize = 3;

/// The leaked records of a workload on a node.
#[derive(Default)]
struct Starts<'r> {
    findings: Vec<(usize, &'r Finding)>,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

/// Finds workloads that leave an address behind on a node at each start.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let mut workloads: BTreeMap<(String, String), Starts<'_>> = BTreeMap::new();
    for (position, finding) in facts.open(&[Code::LeakedAddress]) {
        let Some(record) = record_of(finding) else {
            continue;
        };
        let starts = workloads.entry((record.workload, record.node)).or_default();
        starts.findings.push((position, finding));
        starts.first = starts.first.into_iter().chain(record.allocated_at).min();
        starts.last = starts.last.into_iter().chain(record.allocated_at).max();
    }

    let mut causes = Vec::new();
    for ((workload, node), starts) in workloads {
        // Several addresses of one start are recorded at the same time.
        let are_several_starts = starts.first < starts.last;
        if starts.findings.len() < REPEATED || !are_several_starts {
            continue;
        }
        let first = starts.first.unwrap_or_default();
        let last = starts.last.unwrap_or_default();
        let says = format!(
            "{} on {} leaves an address behind at each start: {} since {first:.0}, the last at {last:.0}",
            short(&workload),
            short(&node),
            count(starts.findings.len(), "address", "addresses"),
        );
        causes.push(Found::with_own_remedies(says, starts.findings));
    }
    causes
}

/// The parts of the record of a leaked address that tell the start of a workload.
struct StartRecord {
    /// The namespace, and the pod's name or its controller's.
    workload: String,
    node: String,
    allocated_at: Option<Timestamp>,
}

/// Reads the record of a leaked address; `None` if it names no pod and node.
fn record_of(finding: &Finding) -> Option<StartRecord> {
    let Evidence::Address(evidence) = &finding.evidence else {
        return None;
    };
    let record = evidence.records.first()?.record.as_ref();
    let Claim::Pod {
        namespace,
        pod,
        node: Some(node),
    } = Claim::of(&record)
    else {
        return None;
    };
    Some(StartRecord {
        workload: format!("{namespace}/{}", controller_of(&pod.to_string())),
        node: node.to_string(),
        allocated_at: record.allocated_at(),
    })
}

/// The name of the controller by the form of a pod's name: without the random end, and without the hash of a
/// Deployment's template. A name of another form, as of a StatefulSet's pod, stays.
fn controller_of(pod: &str) -> &str {
    // Kubernetes leaves out letters and digits that could form words.
    let is_random = |part: &str| {
        part.bytes()
            .all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte))
    };

    let Some((name, suffix)) = pod.rsplit_once('-') else {
        return pod;
    };
    if suffix.len() != RANDOM_SUFFIX || !is_random(suffix) {
        return pod;
    }

    let Some((deployment, hash)) = name.rsplit_once('-') else {
        return name;
    };
    let is_template_hash = (8..=10).contains(&hash.len()) && is_random(hash);
    if is_template_hash { deployment } else { name }
}

#[cfg(test)]
mod tests {
    use super::controller_of;

    #[test]
    fn controllers_are_known_by_the_form_of_names() {
        assert_eq!(controller_of("web-6799fc88d8-2ssxf"), "web");
        assert_eq!(controller_of("node-exporter-2ssxf"), "node-exporter");
        assert_eq!(controller_of("db-0"), "db-0");
        assert_eq!(controller_of("static-node-1"), "static-node-1");
        assert_eq!(controller_of("one"), "one");
    }
}
