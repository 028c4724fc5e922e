//! Affinities, handles and workload endpoints, revision by revision.

use calipam_check::Subject;
use calipam_model::affinity::Affinity;
use calipam_model::endpoint::Endpoint;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::pod::Pod;
use calipam_model::snapshot::Source;

use super::event::What;
use super::when::Recorded;
use super::{About, Raw, Version, raw};

/// What a version of such an object says, in words; an error if it cannot be decoded.
pub(crate) type Said = Result<String, String>;

/// What the events of an object are called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    pub created: What,
    pub changed: What,
    pub gone: What,
}

/// What the events of objects of a source are called.
pub(crate) fn words(source: Source) -> Words {
    let [created, changed, gone] = match source {
        Source::Affinities => [What::AffinityChanged, What::AffinityChanged, What::AffinityGone],
        Source::Handles => [What::HandleChanged, What::HandleChanged, What::HandleGone],
        Source::Pods => [What::PodCreated, What::PodChanged, What::PodGone],
        _ => [What::EndpointCreated, What::EndpointChanged, What::EndpointGone],
    };
    Words { created, changed, gone }
}

/// The events of an object other than a block.
pub(crate) fn events(key: &Key, base: Option<&Version>, changes: &[&Version], about: &About) -> Vec<Raw> {
    let Some((subject, words)) = subject(key, about) else { return Vec::new() };
    let mut found = Vec::new();
    let mut last: Option<Said> = None;
    if let Some(version) = base
        && let Some(value) = &version.value
    {
        let said = say(key, value).map(|(said, _)| said);
        let (what, detail) = match &said {
            Ok(said) => (What::Known, said),
            Err(reason) => (What::Undecodable, reason),
        };
        found.push(raw(version.revision, what, subject.clone(), [None, None], detail.clone(), None));
        last = Some(said);
    }
    for version in changes {
        let said = version.value.as_deref().map(|value| say(key, value));
        let time = said.as_ref().and_then(|said| said.as_ref().ok()?.1).filter(|_| last.is_none());
        let said = said.map(|said| said.map(|(said, _)| said));
        // Endpoints are written for many reasons that have nothing to do with addresses.
        if said == last {
            continue;
        }
        let (what, detail) = match &said {
            None => (words.gone, ""),
            Some(Err(reason)) => (What::Undecodable, reason.as_str()),
            Some(Ok(said)) if last.is_none() => (words.created, said.as_str()),
            Some(Ok(said)) => (words.changed, said.as_str()),
        };
        let time = time.map(Recorded::Time);
        let detail = detail.to_owned();
        found.push(raw(version.revision, what, subject.clone(), [None, None], detail, time));
        last = said;
    }
    found
}

/// What the events of an object are about, and what they are called.
fn subject(key: &Key, about: &About) -> Option<(Subject, Words)> {
    match key {
        Key::Affinity(affinity) => Some((Subject::affinity(affinity), words(Source::Affinities))),
        Key::Handle(id) if matches!(about, About::Handle(_)) => {
            Some((Subject::Handle(id.clone()), words(Source::Handles)))
        }
        Key::Endpoint { namespace, name } => {
            Some((Subject::Endpoint(format!("{namespace}/{name}")), words(Source::Endpoints)))
        }
        _ => None,
    }
}

/// What a stored value says, with the time of its creation.
fn say(key: &Key, value: &[u8]) -> Result<(String, Option<jiff::Timestamp>), String> {
    let said = match key {
        Key::Affinity(affinity) => {
            Affinity::parse(affinity.clone(), value).map(|affinity| (say_affinity(&affinity), None))
        }
        Key::Handle(id) => Handle::parse(id, value).map(|handle| (say_handle(&handle), None)),
        Key::Endpoint { namespace, name } => Endpoint::parse(namespace, name, value)
            .map(|parsed| (say_endpoint(&parsed.value), parsed.created)),
        _ => Ok((String::new(), None)),
    };
    said.map_err(|error| error.to_string())
}

pub(crate) fn say_affinity(affinity: &Affinity) -> String {
    affinity.state.to_string()
}

pub(crate) fn say_handle(handle: &Handle) -> String {
    let blocks: Vec<String> = handle.blocks().map(|(cidr, count)| format!("{count} in {cidr}")).collect();
    blocks.join(", ")
}

pub(crate) fn say_endpoint(endpoint: &Endpoint) -> String {
    on_node(endpoint.addresses().map(|address| address.to_string()), &endpoint.node().to_string())
}

pub(crate) fn say_pod(pod: &Pod) -> String {
    let said = on_node(pod.addresses().map(|address| address.to_string()), &pod.node().to_string());
    if pod.finished { format!("{said}, finished") } else { said }
}

/// `10.0.0.3 on node-1`
fn on_node(addresses: impl Iterator<Item = String>, node: &str) -> String {
    let addresses: Vec<String> = addresses.collect();
    let addresses = if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") };
    if node.is_empty() { addresses } else { format!("{addresses} on {node}") }
}
