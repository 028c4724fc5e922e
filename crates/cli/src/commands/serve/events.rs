//! `serve --events`: new findings as Events of Kubernetes, on the pod or node that they concern, at a pace that floods no one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use calipam_check::{Code, Evidence, Finding, FindingKey, Severity, Subject};
use calipam_datastore::settings::KubernetesSettings;
use calipam_datastore::{Event, Events, Regarding};
use calipam_model::snapshot::{Revision, Snapshot};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::served::{Good, Served};
use crate::console::Console;

/// Time between two rounds.
const PAUSE: Duration = Duration::from_secs(5);
/// After how long there is a round although nothing was checked.
const AGAIN: Duration = Duration::from_mins(1);
/// Findings that are told, the most severe ones first.
const MOST: usize = 500;
/// Events at once.
const TOGETHER: usize = 10;

/// What was told.
pub(super) struct FindingEvents {
    events: Events,
    told: BTreeSet<FindingKey>,
}

impl FindingEvents {
    pub(super) fn new(settings: KubernetesSettings) -> Self {
        Self { events: Events::new(settings, reporter()), told: BTreeSet::new() }
    }

    /// Tells what each check has found, for as long as there are checks.
    pub(super) async fn run(mut self, mut served: watch::Receiver<Arc<Served>>, console: Console) {
        let mut is_failing = false;
        let mut again = Instant::now();
        loop {
            if let Ok(Err(_)) = timeout_at(again, served.changed()).await {
                return;
            }
            again = Instant::now() + AGAIN;
            let Some(good) = served.borrow_and_update().good.clone() else { continue };
            match self.tell(&good).await {
                Ok(has_more) => {
                    is_failing = false;
                    again = if has_more { Instant::now() } else { again };
                }
                Err(error) => {
                    if !is_failing {
                        console
                            .warn(&format!("cannot send findings to the API server: {error}; trying again"));
                    }
                    (is_failing, again) = (true, Instant::now());
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Tells what has come since the last time; true if there is more.
    async fn tell(&mut self, good: &Good) -> Result<bool, calipam_datastore::Error> {
        let there: BTreeSet<(Code, &Subject)> =
            good.report.findings.iter().map(|finding| finding.key_ref()).collect();
        // One that comes again is new.
        self.told.retain(|(code, subject)| there.contains(&(*code, subject)));
        let (events, has_more) = self.new_ones(good);
        for (key, event) in events {
            self.events.tell(&event).await?;
            self.told.insert(key);
        }
        Ok(has_more)
    }

    /// Events of findings that were not told, and whether there are more.
    fn new_ones(&self, good: &Good) -> (Vec<(FindingKey, Event)>, bool) {
        let snapshot = good.snapshot();
        let findings = good.report.findings.iter().take(MOST);
        let untold = findings.map(|finding| (finding.key(), finding));
        let untold = untold.filter(|(key, _)| !self.told.contains(key));
        let mut events = untold.filter_map(|(key, finding)| Some((key, event(finding, &snapshot)?)));
        let first = events.by_ref().take(TOGETHER).collect();
        (first, events.next().is_some())
    }
}

/// The name of the pod, or of the machine, and what no other process has.
fn reporter() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "calipam".to_owned());
    let nanoseconds = jiff::Timestamp::now().as_nanosecond().unsigned_abs();
    format!("{host}_{}_{:x}", std::process::id(), nanoseconds)
}

/// The event of a finding; `None` if it concerns neither a pod nor a node that is there.
fn event(finding: &Finding, snapshot: &Snapshot) -> Option<Event> {
    let of_pods = pods(finding).into_iter().find_map(|name| pod(name, snapshot));
    Some(Event {
        regarding: of_pods.or_else(|| node(finding, snapshot))?,
        is_warning: finding.severity != Severity::Info,
        reason: camel_case(finding.code.name()),
        note: finding.message(),
        identity: finding.subject.to_string(),
    })
}

/// `namespace/name` of the pods that a finding is about.
fn pods(finding: &Finding) -> Vec<&str> {
    let owned = match &finding.evidence {
        Evidence::Address(evidence) => evidence.owners.iter().map(|owner| &**owner).collect(),
        Evidence::Endpoint(owner) => vec![&**owner],
        _ => Vec::new(),
    };
    let named = owned.into_iter().flat_map(|owner| [owner.pod.as_str(), owner.name.as_str()]);
    let subject = match &finding.subject {
        Subject::Endpoint(name) => Some(name.as_str()),
        _ => None,
    };
    named.chain(subject).collect()
}

fn pod(wanted: &str, snapshot: &Snapshot) -> Option<Regarding> {
    let (namespace, name) = wanted.split_once('/')?;
    let pod =
        snapshot.pods.iter().find(|pod| pod.value.namespace() == *namespace && pod.value.name() == *name)?;
    let Revision::Kubernetes(version) = &pod.revision else { return None };
    Some(Regarding::Pod { namespace: namespace.into(), name: name.into(), uid: version.uid.clone() })
}

fn node(finding: &Finding, snapshot: &Snapshot) -> Option<Regarding> {
    let subject = match &finding.subject {
        Subject::Node(name) | Subject::Affinity { node: name, .. } => Some(name),
        _ => None,
    };
    let mut names = subject.into_iter().chain(&finding.nodes);
    let is_there = |name: &&String| snapshot.nodes.iter().any(|node| node.value.name == **name);
    names.find(is_there).map(|name| Regarding::Node(name.clone()))
}

/// `leaked-address` as `LeakedAddress`, which is how reasons of events are written.
fn camel_case(code: &str) -> String {
    let words = code.split('-').map(|word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        first.to_uppercase() + rest
    });
    words.collect()
}
