//! `serve --events`: sends new findings as Kubernetes Events about their pod or node, at a limited rate.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use calipam_check::{Code, Evidence, Finding, FindingKey, Severity, Subject};
use calipam_datastore::settings::KubernetesSettings;
use calipam_datastore::{Event, Events, Regarding};
use calipam_model::names::namespaced;
use calipam_model::snapshot::{Revision, Snapshot};
use calipam_plan::advice::Advice;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::served::{Served, Success};
use crate::console::Console;
use crate::hints::{Reader, cure};

/// The pause between two rounds of sending events.
const PAUSE: Duration = Duration::from_secs(5);
/// The maximum time until the next round if there is no new check.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// The maximum number of findings for which events are sent, the most severe first.
const MOST: usize = 500;
/// The maximum number of events in a round.
const TOGETHER: usize = 10;

/// The sender of events, with the findings that it has sent.
pub(super) struct FindingEvents {
    events: Events,
    sent: BTreeSet<FindingKey>,
}

/// The events that are sent next.
#[derive(Default)]
struct Round {
    events: Vec<(FindingKey, Event)>,
    /// True if more events remain.
    has_more: bool,
}

impl FindingEvents {
    /// Creates a writer of events with a name that no other process has.
    pub(super) fn new(settings: KubernetesSettings) -> Self {
        // In a pod, HOSTNAME is the pod's name. The rest of the name is unique to this process.
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "calipam".to_owned());
        let nanoseconds = jiff::Timestamp::now().as_nanosecond().unsigned_abs();
        let reporter = format!("{host}_{}_{nanoseconds:x}", std::process::id());
        Self {
            events: Events::new(settings, reporter),
            sent: BTreeSet::new(),
        }
    }

    /// Sends the new findings of each check as events until the checks end. After a failure, tries again, and warns
    /// only of the first of several failures.
    pub(super) async fn run(mut self, mut served: watch::Receiver<Arc<Served>>, console: Console) {
        let mut is_failing = false;
        let mut next_round = Instant::now();
        loop {
            // Waits for the next check, or for the time of the next round. An error means that there is no other check.
            if let Ok(Err(_)) = timeout_at(next_round, served.changed()).await {
                return;
            }
            next_round = Instant::now() + LONGEST_PAUSE;
            let Some(success) = served.borrow_and_update().success.clone() else {
                continue;
            };
            let result = self.send(&success).await;
            if let Err(error) = &result
                && !is_failing
            {
                console.warn(&format!(
                    "cannot send findings to the API server: {error}; trying again"
                ));
            }
            is_failing = result.is_err();
            // After a failure, the events of this round remain.
            let has_more = result.unwrap_or(true);
            if has_more {
                next_round = Instant::now();
            }
            sleep(PAUSE).await;
        }
    }

    /// Sends the events of one round, and remembers their findings. Returns true if more events remain for another
    /// round.
    async fn send(&mut self, success: &Success) -> Result<bool, calipam_datastore::Error> {
        let current: BTreeSet<(Code, &Subject)> = success
            .report
            .findings
            .iter()
            .map(|finding| finding.key_ref())
            .collect();
        // A finding that disappears and comes back counts as new.
        self.sent
            .retain(|(code, subject)| current.contains(&(*code, subject)));
        let round = self.next_round(success);
        for (key, event) in round.events {
            self.events.report(&event).await?;
            self.sent.insert(key);
        }
        Ok(round.has_more)
    }

    /// Returns the events that are sent next: at most [`TOGETHER`] of the findings that were not sent yet. Only the
    /// first [`MOST`] findings, which are the worst, are sent at all.
    fn next_round(&self, success: &Success) -> Round {
        let snapshot = success.snapshot();
        let mut round = Round::default();
        for finding in success.report.findings.iter().take(MOST) {
            let key = finding.key();
            if self.sent.contains(&key) {
                continue;
            }
            let Some(event) = event(finding, &success.advice, &snapshot) else {
                continue;
            };
            if round.events.len() == TOGETHER {
                round.has_more = true;
                return round;
            }
            round.events.push((key, event));
        }
        round
    }
}

/// Creates the event of a finding, which is about its pod or, if none exists, about its node. `None` if there is
/// neither, since every event of Kubernetes is about an object.
fn event(finding: &Finding, advice: &Advice, snapshot: &Snapshot) -> Option<Event> {
    let cure = advice
        .cure_of(finding)
        .map(|cure| format!("; {}", cure::sentence(cure, Reader::Document)));
    let mut pods = names_with_pods(finding).into_iter();
    let pod = pods.find_map(|name| find_pod(name, snapshot));
    Some(Event {
        regarding: pod.or_else(|| find_node(finding, snapshot))?,
        is_warning: finding.severity != Severity::Info,
        reason: camel_case(finding.code.name()),
        note: finding.message() + &cure.unwrap_or_default(),
        identity: finding.subject.to_string(),
    })
}

/// Returns the names of owners and endpoints in a finding. Those of the pods that the finding is about are among them,
/// as `namespace/name`; the others are no names of pods.
fn names_with_pods(finding: &Finding) -> Vec<&str> {
    let owners = match &finding.evidence {
        Evidence::Address(evidence) => evidence.owners.iter().map(|owner| &**owner).collect(),
        Evidence::Endpoint(owner) => vec![&**owner],
        _ => Vec::new(),
    };
    let mut names = Vec::new();
    for owner in owners {
        names.push(owner.pod.as_str());
        names.push(owner.name.as_str());
    }
    if let Subject::Endpoint(name) = &finding.subject {
        names.push(name.as_str());
    }
    names
}

/// Finds the pod with this `NAMESPACE/NAME`, with its UID; `None` if it was not read.
fn find_pod(full_name: &str, snapshot: &Snapshot) -> Option<Regarding> {
    let (namespace, name) = namespaced(full_name)?;
    let pod = snapshot
        .pods
        .iter()
        .find(|pod| pod.value.namespace() == *namespace && pod.value.name() == *name)?;
    // Only the API server tells the UID, without which an event is not shown at its pod.
    let Revision::Kubernetes(version) = &pod.revision else {
        return None;
    };
    Some(Regarding::Pod {
        namespace: namespace.into(),
        name: name.into(),
        uid: version.uid.clone(),
    })
}

/// Finds the first node of a finding that exists in the cluster; `None` if there is none. The node that the finding is
/// about comes before those in its evidence.
fn find_node(finding: &Finding, snapshot: &Snapshot) -> Option<Regarding> {
    let subject = match &finding.subject {
        Subject::Node(name) | Subject::Affinity { node: name, .. } => Some(name),
        _ => None,
    };
    for name in subject.into_iter().chain(&finding.nodes) {
        if snapshot.nodes.iter().any(|node| node.value.name == *name) {
            return Some(Regarding::Node(name.clone()));
        }
    }
    None
}

/// Formats `leaked-address` as `LeakedAddress`, the usual form for the reason of an event.
fn camel_case(code: &str) -> String {
    let words = code.split('-').map(|word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        first.to_uppercase() + rest
    });
    words.collect()
}
