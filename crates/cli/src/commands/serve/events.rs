//! `serve --events`: new findings as Events of Kubernetes, on the pod or node that they concern.

use std::collections::BTreeSet;

use calipam_check::{Code, Evidence, Finding, FindingKey, Severity, Subject};
use calipam_datastore::{Event, Events, Regarding};
use calipam_model::snapshot::{Revision, Snapshot};

use super::served::Good;
use super::telling::{MOST, Tell, Told};

/// Events at once.
const TOGETHER: usize = 10;

/// What was told.
pub(super) struct FindingEvents {
    events: Events,
    told: BTreeSet<FindingKey>,
}

impl FindingEvents {
    pub(super) fn new(events: Events) -> Self {
        Self { events, told: BTreeSet::new() }
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

impl Tell for FindingEvents {
    fn whom(&self) -> String {
        "the API server".to_owned()
    }

    async fn tell(&mut self, good: &Good) -> Result<Told, String> {
        let there: BTreeSet<(Code, &Subject)> =
            good.report.findings.iter().map(|finding| finding.key_ref()).collect();
        // One that comes again is new.
        self.told.retain(|(code, subject)| there.contains(&(*code, subject)));
        let (events, has_more) = self.new_ones(good);
        for (key, event) in events {
            self.events.tell(&event).await.map_err(|error| error.to_string())?;
            self.told.insert(key);
        }
        Ok(if has_more { Told::Some } else { Told::All })
    }
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
