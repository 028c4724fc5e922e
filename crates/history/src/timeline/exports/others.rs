//! Affinities, handles, workload endpoints and pods, export by export.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::handle::clean_id;
use calipam_model::key::Key;
use calipam_model::names::EndpointName;
use calipam_model::snapshot::{DefectKind, Snapshot, Source};
use jiff::Timestamp;

use super::{at_first, bounded, covers};
use crate::timeline::event::{Event, What};
use crate::timeline::others::{Said, Words, say_affinity, say_endpoint, say_handle, say_pod, words};
use crate::timeline::{About, raw};

/// What the exports so far say.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// What each object said in the last export that holds its source, and when that was; `None` if it was gone.
    last: BTreeMap<(Source, Subject), (Timestamp, Option<Said>)>,
    /// The last export that holds a source.
    covered: BTreeMap<Source, Timestamp>,
}

type Found = BTreeMap<(Source, Subject), Said>;

impl Others {
    /// Takes the affinities of some blocks, and the handle that the history is about.
    pub(super) fn take_records(
        &mut self,
        snapshot: &Snapshot,
        about: &About,
        blocks: &BTreeSet<IpNet>,
    ) -> Vec<Event> {
        let concerns = |node: &str, cidr: IpNet| match about {
            About::Node(own) => node == own,
            About::Handle(_) => false,
            About::Address(_) | About::Block(_) => blocks.contains(&cidr),
        };
        let is_own = |id: &str| matches!(about, About::Handle(own) if clean_id(own) == clean_id(id));
        let mut found = Found::new();
        for affinity in snapshot.affinities.iter().map(|affinity| &affinity.value) {
            if !affinity.deleted && concerns(&affinity.key.node, affinity.key.cidr) {
                let subject = Subject::affinity(&affinity.key);
                found.insert((Source::Affinities, subject), Ok(say_affinity(affinity)));
            }
        }
        for handle in snapshot.handles.iter().map(|handle| &handle.value) {
            let id = handle.id().to_string();
            if !handle.is_deleted() && is_own(&id) {
                found.insert((Source::Handles, Subject::Handle(id)), Ok(say_handle(handle)));
            }
        }
        add_hidden(snapshot, &mut found, |key| match key {
            Key::Affinity(key) if concerns(&key.node, key.cidr) => {
                Some((Source::Affinities, Subject::affinity(key)))
            }
            Key::Handle(id) if is_own(id) => Some((Source::Handles, Subject::Handle(id.clone()))),
            _ => None,
        });
        self.take(snapshot, found, &[Source::Affinities, Source::Handles])
    }

    /// Takes the pods of some names, and their workload endpoints.
    pub(super) fn take_users(
        &mut self,
        snapshot: &Snapshot,
        pods: &BTreeSet<(String, String)>,
    ) -> Vec<Event> {
        let is_named = |namespace: &str, pod: &str| pods.contains(&(namespace.to_owned(), pod.to_owned()));
        let subject = |namespace: &str, name: &str| Subject::Endpoint(format!("{namespace}/{name}"));
        let mut found = Found::new();
        for endpoint in snapshot.endpoints.iter().map(|endpoint| &endpoint.value) {
            let namespace = endpoint.namespace().to_string();
            if is_named(&namespace, &endpoint.pod().to_string()) {
                let subject = subject(&namespace, &endpoint.name());
                found.insert((Source::Endpoints, subject), Ok(say_endpoint(endpoint)));
            }
        }
        for pod in snapshot.pods.iter().map(|pod| &pod.value) {
            let (namespace, name) = (pod.namespace().to_string(), pod.name().to_string());
            if is_named(&namespace, &name) {
                found.insert((Source::Pods, subject(&namespace, &name)), Ok(say_pod(pod)));
            }
        }
        add_hidden(snapshot, &mut found, |key| match key {
            Key::Endpoint { namespace, name } => {
                let pod = EndpointName::parse(name)?.workload;
                is_named(namespace, &pod).then(|| (Source::Endpoints, subject(namespace, name)))
            }
            Key::Pod { namespace, name } => {
                is_named(namespace, name).then(|| (Source::Pods, subject(namespace, name)))
            }
            _ => None,
        });
        self.take(snapshot, found, &[Source::Endpoints, Source::Pods])
    }

    /// All of it was so until this time.
    pub(super) fn stand_until(&mut self, time: Timestamp) {
        self.last.values_mut().for_each(|(at, _)| *at = time);
        self.covered.values_mut().for_each(|at| *at = time);
    }

    /// Compares with what was said before. Of a source that the export does not hold, it says nothing.
    fn take(&mut self, snapshot: &Snapshot, mut found: Found, sources: &[Source]) -> Vec<Event> {
        let now = snapshot.taken_at;
        let mut events = Vec::new();
        for source in sources.iter().copied().filter(|source| covers(snapshot, *source)) {
            let words = words(source);
            let before = self.covered.insert(source, now);
            let known = self.last.keys().chain(found.keys()).filter(|(own, _)| *own == source);
            let known: BTreeSet<(Source, Subject)> = known.cloned().collect();
            for object in known {
                let said = found.remove(&object);
                let last = self.last.get(&object).cloned().or_else(|| before.map(|before| (before, None)));
                events.extend(event(&object.1, &words, last.as_ref(), said.as_ref(), now));
                self.last.insert(object, (now, said));
            }
        }
        events
    }
}

/// What differs between what an object said when it was last read, and what it says now.
fn event(
    subject: &Subject,
    words: &Words,
    last: Option<&(Timestamp, Option<Said>)>,
    said: Option<&Said>,
    now: Timestamp,
) -> Option<Event> {
    let make =
        |what: What, detail: &str| raw(0, what, subject.clone(), [None, None], detail.to_owned(), None);
    let what = |usual: What| match said {
        Some(Err(reason)) => make(What::Undecodable, reason),
        Some(Ok(text)) => make(usual, text),
        None => make(words.gone, ""),
    };
    match (last, said) {
        (None, None) => None,
        (None, Some(_)) => Some(at_first(what(What::Known), now)),
        (Some((_, before)), said) if before.as_ref() == said => None,
        (Some((at, before)), _) => {
            let usual = if before.is_none() { words.created } else { words.changed };
            Some(bounded(what(usual), *at, now))
        }
    }
}

/// Adds objects that are stored and cannot be decoded: they are not gone.
fn add_hidden(snapshot: &Snapshot, found: &mut Found, object: impl Fn(&Key) -> Option<(Source, Subject)>) {
    for defect in &snapshot.defects {
        if let (Some(key), DefectKind::Key(reason) | DefectKind::Value(reason)) = (&defect.key, &defect.kind)
            && let Some(object) = object(key)
        {
            found.entry(object).or_insert_with(|| Err(reason.clone()));
        }
    }
}
