//! Watches the changes to a kind's objects after a given version.

use std::borrow::Cow;
use std::time::Duration;

use calipam_files::objects::meta::metadata;
use calipam_files::objects::{Accept, Encoding, ItemReader, name_in_kind};
use calipam_model::snapshot::Source;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::classify::status_failure;
use super::kinds::{self, Kind};
use super::{Answer, KubeClient};
use crate::error::Failure;

/// Seconds until the API server ends a short watch. It sends a bookmark two seconds before the end, which here is after
/// one second. A watch of two seconds would get no bookmark.
pub(crate) const SHORT: u32 = 3;
/// Maximum bytes of one change.
const MAX_CHANGE: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The resource version of the change, which is comparable within the kind.
    pub version: u64,
    /// `namespace/name`, or just the name if the kind has no namespaces.
    pub name: String,
    pub uid: String,
    pub is_deleted: bool,
    /// The object after the change, or before its deletion, in JSON.
    pub object: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchEvent {
    Change(Change),
    /// A bookmark: all changes up to this version were reported.
    Reached(u64),
}

impl WatchEvent {
    /// The version of the change, or the version up to which all changes were reported.
    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::Change(change) => change.version,
            Self::Reached(version) => *version,
        }
    }
}

/// Finds out the newest version of a kind from a list, which never comes from an outdated cache of the server. The list
/// has hardly any objects, so it costs the server almost nothing.
pub(crate) async fn newest(client: &KubeClient, kind: &Kind) -> Result<u64, Failure> {
    let mut answer = client.get(&kind.list_of_one(), Accept::Json).await?;
    let mut list = ItemReader::new(answer.encoding);
    while let Some(piece) = answer.piece().await? {
        list.feed(&piece, &mut |_| {})
            .map_err(|error| Failure::NotKubernetes(error.to_string()))?;
    }
    let metadata = list
        .finish()
        .map_err(|error| Failure::Incomplete(error.to_string()))?;
    number(&metadata.resource_version)
}

/// Parses a version as a number that rises with each change. Kubernetes documents this only since 1.35, but with data
/// in etcd it has always been true.
pub(crate) fn number(version: &str) -> Result<u64, Failure> {
    // Rust would also accept a plus sign.
    let has_only_digits = version.bytes().all(|byte| byte.is_ascii_digit());
    match version.parse() {
        Ok(number) if has_only_digits => Ok(number),
        _ => Err(Failure::Other(format!("the version {version:?} is not a number"))),
    }
}

/// A watch of all objects of a kind.
pub(crate) struct Watch {
    answer: Answer,
    /// The received bytes.
    text: Vec<u8>,
    /// The number of bytes in `text` that have been parsed.
    parsed: usize,
}

impl Watch {
    /// Watches the changes after a version, until the API server ends the watch after `seconds`.
    pub(crate) async fn open(
        client: &KubeClient,
        kind: &Kind,
        after: u64,
        seconds: u32,
    ) -> Result<Self, Failure> {
        let path = format!(
            "{}?watch=1&allowWatchBookmarks=true&resourceVersion={after}&timeoutSeconds={seconds}",
            kind.path
        );
        let answer = client.get(&path, Accept::Json).await?;
        if answer.encoding != Encoding::Json {
            return Err(Failure::NotKubernetes("its answer is not JSON".to_owned()));
        }
        Ok(Self {
            answer: answer.with_duration(Duration::from_secs(seconds.into())),
            text: Vec::new(),
            parsed: 0,
        })
    }

    /// The next event; `None` if the server has ended the watch. [`Failure::Compacted`] if the server no longer has the
    /// changes since the version.
    pub(crate) async fn next(&mut self) -> Result<Option<WatchEvent>, Failure> {
        loop {
            while let Some(line) = self.next_line() {
                if !line.trim_ascii().is_empty() {
                    return parse_event(line).map(Some);
                }
            }
            let has_ended = !self.receive().await?;
            if has_ended {
                return Ok(None);
            }
        }
    }

    /// The next received line that is not parsed yet; `None` if no whole line remains.
    fn next_line(&mut self) -> Option<&[u8]> {
        let unparsed = &self.text[self.parsed..];
        let length = unparsed.iter().position(|byte| *byte == b'\n')?;
        self.parsed += length + 1;
        Some(&unparsed[..length])
    }

    /// Receives more of a line; returns false if the server has ended the watch after a whole line.
    async fn receive(&mut self) -> Result<bool, Failure> {
        self.text.drain(..self.parsed);
        self.parsed = 0;
        if self.text.len() > MAX_CHANGE {
            let reason = "a change is longer than any object can be";
            return Err(Failure::NotKubernetes(reason.to_owned()));
        }
        let Some(piece) = self.answer.piece().await? else {
            if self.text.is_empty() {
                return Ok(false);
            }
            return Err(Failure::Incomplete("a change is cut off".to_owned()));
        };
        self.text.extend_from_slice(&piece);
        Ok(true)
    }
}

/// Waits until a block is written after a version. Every assignment and release writes a block.
pub(crate) async fn next_change(client: &KubeClient, after: u64) -> Result<(), Failure> {
    let kind = kinds::find(client.api(), Source::Blocks)
        .map_err(|(_, reason)| Failure::Other(format!("blocks are not watched: {reason}")))?;
    let mut known_version = after;
    loop {
        let mut watch = match Watch::open(client, &kind, known_version, SHORT).await {
            // The changes are unknown, but there were some.
            Err(Failure::Compacted) => return Ok(()),
            opened => opened?,
        };
        loop {
            match watch.next().await {
                Ok(Some(WatchEvent::Change(_))) | Err(Failure::Compacted) => return Ok(()),
                Ok(Some(WatchEvent::Reached(version))) => known_version = version,
                Ok(None) => break,
                Err(failure) => return Err(failure),
            }
        }
        // The server has ended the watch after `SHORT`, or a proxy has ended it at once: the next one begins after the
        // last known version.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Parses a line of a watch: a change, or the version that the watch has reached.
fn parse_event(line: &[u8]) -> Result<WatchEvent, Failure> {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let no_change = |reason: String| {
        Failure::NotKubernetes(format!("it reports something other than a change: {reason}"))
    };
    let event: Event<'_> = serde_json::from_slice(line).map_err(|error| no_change(error.to_string()))?;
    let object = event.object.get().as_bytes();
    if event.kind == "ERROR" {
        return Err(refusal(object));
    }
    let Some(meta) = metadata(object, Encoding::Json) else {
        return Err(no_change("an object has no metadata".into()));
    };
    let version = number(&meta.resource_version)?;
    let is_deleted = match &*event.kind {
        "BOOKMARK" => return Ok(WatchEvent::Reached(version)),
        "ADDED" | "MODIFIED" => false,
        "DELETED" => true,
        other => return Err(no_change(format!("{other:?}"))),
    };
    Ok(WatchEvent::Change(Change {
        version,
        name: name_in_kind(&meta.namespace, &meta.name),
        uid: meta.uid.to_string(),
        is_deleted,
        object: object.to_vec(),
    }))
}

/// Converts a status, which the watch reports instead of a change, to a failure.
fn refusal(status: &[u8]) -> Failure {
    #[derive(Default, Deserialize)]
    struct Status {
        #[serde(default)]
        code: u16,
    }
    let Status { code } = serde_json::from_slice(status).unwrap_or_default();
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    status_failure(code, status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(kind: &str, object: &serde_json::Value) -> Result<WatchEvent, Failure> {
        parse_event(json!({"type": kind, "object": object}).to_string().as_bytes())
    }

    #[test]
    fn watch_events_are_parsed() {
        let pod = json!({"metadata": {"namespace": "a", "name": "b", "uid": "u", "resourceVersion": "12"}});
        let change = Change {
            version: 12,
            name: "a/b".into(),
            uid: "u".into(),
            is_deleted: false,
            object: pod.to_string().into_bytes(),
        };
        assert_eq!(report("ADDED", &pod), Ok(WatchEvent::Change(change.clone())));
        assert_eq!(report("MODIFIED", &pod), Ok(WatchEvent::Change(change.clone())));
        assert_eq!(
            report("DELETED", &pod),
            Ok(WatchEvent::Change(Change {
                is_deleted: true,
                ..change
            }))
        );
        assert_eq!(report("BOOKMARK", &pod), Ok(WatchEvent::Reached(12)));
        let gone = json!({"kind": "Status", "code": 410, "message": "too old resource version: 1 (9)"});
        assert_eq!(report("ERROR", &gone), Err(Failure::Compacted));
    }

    #[test]
    fn events_that_are_not_understood_are_errors() {
        let pod = json!({"metadata": {"name": "b", "resourceVersion": "12"}});
        assert!(report("RENAMED", &pod).is_err());
        for version in ["", "x", "-1", "+1", "1.5", "99999999999999999999999"] {
            let pod = json!({"metadata": {"name": "b", "resourceVersion": version}});
            assert!(report("ADDED", &pod).is_err(), "{version}");
        }
        for object in [json!(null), json!({}), json!({"metadata": 7})] {
            assert!(report("ADDED", &object).is_err(), "{object}");
            assert!(report("ERROR", &object).is_err(), "{object}");
        }
        for line in ["", "x", "[]", r#"{"type":"ADDED"}"#] {
            assert!(parse_event(line.as_bytes()).is_err(), "{line}");
        }
    }
}
