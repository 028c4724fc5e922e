//! Affinities, handles and workload endpoints, revision by revision.

use calipam_check::Subject;
use calipam_model::affinity::Affinity;
use calipam_model::endpoint::Endpoint;
use calipam_model::handle::Handle;
use calipam_model::key::Key;

use super::event::What;
use super::when::Recorded;
use super::{About, Raw, Version, raw};

/// What a version of such an object says, in words, with the time of its creation; an error where it cannot be decoded.
type Said = Result<(String, Option<jiff::Timestamp>), String>;

/// The events of an object other than a block.
pub(crate) fn events(key: &Key, base: Option<&Version>, changes: &[&Version], about: &About) -> Vec<Raw> {
    let Some((subject, created, changed, gone)) = kinds(key, about) else { return Vec::new() };
    let mut found = Vec::new();
    let mut last: Option<String> = None;
    if let Some(version) = base
        && let Some(value) = &version.value
    {
        let (detail, what) = match say(key, value) {
            Ok((said, _)) => (said, What::Known),
            Err(reason) => (reason, What::Undecodable),
        };
        last = Some(detail.clone());
        found.push(raw(version.revision, what, subject.clone(), [None, None], detail, None));
    }
    for version in changes {
        let said = version.value.as_deref().map(|value| say(key, value));
        let (what, detail, time) = match said {
            None => (gone, String::new(), None),
            Some(Err(reason)) => (What::Undecodable, reason, None),
            Some(Ok((said, time))) if last.is_none() => (created, said, time),
            // Endpoints are written for many reasons that have nothing to do with addresses.
            Some(Ok((said, _))) if last.as_deref() == Some(said.as_str()) => continue,
            Some(Ok((said, _))) => (changed, said, None),
        };
        last = (what != gone).then(|| detail.clone());
        let time = time.map(Recorded::Time);
        found.push(raw(version.revision, what, subject.clone(), [None, None], detail, time));
    }
    found
}

/// What the events of an object are about and are called: when it is created, changed, and gone.
fn kinds(key: &Key, about: &About) -> Option<(Subject, What, What, What)> {
    match key {
        Key::Affinity(affinity) => {
            let subject = Subject::affinity(affinity);
            Some((subject, What::AffinityChanged, What::AffinityChanged, What::AffinityGone))
        }
        Key::Handle(id) if matches!(about, About::Handle(_)) => {
            Some((Subject::Handle(id.clone()), What::HandleChanged, What::HandleChanged, What::HandleGone))
        }
        Key::Endpoint { namespace, name } => {
            let subject = Subject::Endpoint(format!("{namespace}/{name}"));
            Some((subject, What::EndpointCreated, What::EndpointChanged, What::EndpointGone))
        }
        _ => None,
    }
}

fn say(key: &Key, value: &[u8]) -> Said {
    match key {
        Key::Affinity(affinity) => {
            Affinity::parse(affinity.clone(), value).map(|affinity| (affinity.state.to_string(), None))
        }
        Key::Handle(id) => {
            let handle = Handle::parse(id, value)?;
            let blocks: Vec<String> =
                handle.blocks().map(|(cidr, count)| format!("{count} in {cidr}")).collect();
            Ok((blocks.join(", "), None))
        }
        Key::Endpoint { namespace, name } => {
            let parsed = Endpoint::parse(namespace, name, value)?;
            let addresses: Vec<String> =
                parsed.value.addresses().map(|address| address.to_string()).collect();
            let addresses = if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") };
            Ok((format!("{addresses} on {}", parsed.value.node()), parsed.created))
        }
        _ => Ok((String::new(), None)),
    }
}
