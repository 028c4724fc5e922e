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

use super::served::{Good, Served};
use crate::console::Console;
use crate::hints::{Reader, cure};

/// The pause between two rounds of sending events.
const PAUSE: Duration = Duration::from_secs(5);
/// The maximum time until the next round if there is no new check.
const AGAIN: Duration = Duration::from_mins(1);
/// The maximum number of findings for which events are sent, the most severe first.
const MOST: usize = 500;
/// The maximum number of events in a round.
const TOGETHER: usize = 10;

/// The sender of events, with the findings that it has sent.
pub(super) struct FindingEvents {
    events: Events,
    sent: BTreeSet<FindingKey>,
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

    /// Sends the new findings of each check until the checks end.
    pub(super) async fn run(mut self, mut served: watch::Receiver<Arc<Served>>, console: Console) {
        let mut is_failing = false;
        let mut again = Instant::now();
        loop {
            if let Ok(Err(_)) = timeout_at(again, served.changed()).await {
                return;
            }
            again = Instant::now() + AGAIN;
            let Some(good) = served.borrow_and_update().good.clone() else {
                continue;
            };
            match self.send(&good).await {
                Ok(has_more) => {
                    is_failing = false;
                    again = if has_more { Instant::now() } else { again };
                }
                Err(error) => {
                    if !is_failing {
                        console.warn(&format!(
                            "cannot send findings to the API server: {error}; trying again"
                        ));
                    }
                    (is_failing, again) = (true, Instant::now());
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Sends the events of one round. Returns true if more events remain.
    async fn send(&mut self, good: &Good) -> Result<bool, calipam_datastore::Error> {
        let there: BTreeSet<(Code, &Subject)> = good
            .report
            .findings
            .iter()
            .map(|finding| finding.key_ref())
            .collect();
        // A finding that disappears and comes back counts as new.
        self.sent
            .retain(|(code, subject)| there.contains(&(*code, subject)));
        let (events, has_more) = self.next_events(good);
        for (key, event) in events {
            self.events.report(&event).await?;
            self.sent.insert(key);
        }
        Ok(has_more)
    }

    /// Returns the events of a round, and true if more events remain.
    fn next_events(&self, good: &Good) -> (Vec<(FindingKey, Event)>, bool) {
        let snapshot = good.snapshot();
        let findings = good.report.findings.iter().take(MOST);
        let unsent = findings.map(|finding| (finding.key(), finding));
        let unsent = unsent.filter(|(key, _)| !self.sent.contains(key));
        let mut events =
            unsent.filter_map(|(key, finding)| Some((key, event(finding, &good.advice, &snapshot)?)));
        let first = events.by_ref().take(TOGETHER).collect();
        (first, events.next().is_some())
    }
}

/// Creates the event of a finding; `None` if neither its pod nor its node exists.
fn event(finding: &Finding, advice: &Advice, snapshot: &Snapshot) -> Option<Event> {
    let cure = advice
        .cure_of(finding)
        .map(|cure| format!("; {}", cure::sentence(cure, Reader::Document)));
    let of_pods = pods(finding).into_iter().find_map(|name| pod(name, snapshot));
    Some(Event {
        regarding: of_pods.or_else(|| node(finding, snapshot))?,
        is_warning: finding.severity != Severity::Info,
        reason: camel_case(finding.code.name()),
        note: finding.message() + &cure.unwrap_or_default(),
        identity: finding.subject.to_string(),
    })
}

/// Returns the names in a finding. They include the pods that the finding is about, as `namespace/name`.
fn pods(finding: &Finding) -> Vec<&str> {
    let owned = match &finding.evidence {
        Evidence::Address(evidence) => evidence.owners.iter().map(|owner| &**owner).collect(),
        Evidence::Endpoint(owner) => vec![&**owner],
        _ => Vec::new(),
    };
    let named = owned
        .into_iter()
        .flat_map(|owner| [owner.pod.as_str(), owner.name.as_str()]);
    let subject = if let Subject::Endpoint(name) = &finding.subject {
        Some(name.as_str())
    } else {
        None
    };
    named.chain(subject).collect()
}

/// The pod with this name, with its UID; `None` if it was not read.
fn pod(wanted: &str, snapshot: &Snapshot) -> Option<Regarding> {
    let (namespace, name) = namespaced(wanted)?;
    let pod = snapshot
        .pods
        .iter()
        .find(|pod| pod.value.namespace() == *namespace && pod.value.name() == *name)?;
    let Revision::Kubernetes(version) = &pod.revision else {
        return None;
    };
    Some(Regarding::Pod {
        namespace: namespace.into(),
        name: name.into(),
        uid: version.uid.clone(),
    })
}

/// The first node of a finding that exists in the cluster.
fn node(finding: &Finding, snapshot: &Snapshot) -> Option<Regarding> {
    let subject = match &finding.subject {
        Subject::Node(name) | Subject::Affinity { node: name, .. } => Some(name),
        _ => None,
    };
    let mut names = subject.into_iter().chain(&finding.nodes);
    let is_there = |name: &&String| snapshot.nodes.iter().any(|node| node.value.name == **name);
    names.find(is_there).map(|name| Regarding::Node(name.clone()))
}

/// Formats `leaked-address` as `LeakedAddress`, the usual form for the reason of an event.
fn camel_case(code: &str) -> String {
    let words = code.split('-').map(|word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        first.to_uppercase() + rest
    });
    words.collect()
}
