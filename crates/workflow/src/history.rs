//! `history`: the history in etcd and in calipam's journals.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use calipam_datastore::Datastore;
use calipam_datastore::read::{Lookup, NameKind, Past, PastSubject};
use calipam_history::timeline::{
    Event, EventKind, HistorySubject, JournaledWrite, Kept, Run, Version, timeline,
};
use calipam_model::snapshot::Snapshot;
use calipam_repair::journal::{ChangeRecord, JournalError, Listed, Outcome, Recorded, list};
use jiff::Timestamp;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::object::{KnownNames, Object, whole_id};
use crate::operator::{Access, Operator};
use crate::read::tell_requests;

/// The history of an object, and the times that it covers.
#[derive(Serialize)]
pub struct History {
    /// The GUID of the cluster; empty if it has none.
    pub guid: String,
    /// The endpoint, the folder of the archive, or the file.
    pub location: String,
    #[serde(flatten)]
    pub about: HistorySubject,
    #[serde(flatten)]
    pub reach: Reach,
    pub events: Vec<Event>,
}

/// The times or revisions that a history covers.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Reach {
    #[serde(rename_all = "camelCase")]
    Etcd {
        /// The oldest and the newest revision, in decimal digits.
        oldest_revision: String,
        newest_revision: String,
        read_at: Timestamp,
    },
    Archive {
        /// The times of the exports that were read, ascending.
        exports: Vec<Timestamp>,
        /// The periods in which every change was recorded, ascending.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        recorded: Vec<Span>,
    },
    /// A single state.
    #[serde(rename_all = "camelCase")]
    State { read_at: Timestamp },
}

/// A period in which every change is known.
#[derive(Serialize)]
pub struct Span {
    pub from: Timestamp,
    pub until: Timestamp,
}

/// Reads the history of an object from etcd. The history includes calipam's writes to this cluster, from the journals
/// in a folder.
pub async fn history(access: Access<'_>, object: Object, journals: Option<&Path>) -> Result<History> {
    access.datastore.require_revisions()?;
    let about = subject(access.datastore, object).await?;
    let of = match &about {
        HistorySubject::Address(address) => PastSubject::Lookup(Lookup::Address(*address)),
        HistorySubject::Handle(id) => PastSubject::Lookup(Lookup::Handle(id.clone())),
        HistorySubject::Block(cidr) => PastSubject::Block(*cidr),
        HistorySubject::Node(node) => PastSubject::Node(node.clone()),
        HistorySubject::Pod(pod) => {
            let (namespace, name) = pod.split_once('/').unwrap_or_default();
            PastSubject::Pod((namespace.to_owned(), name.to_owned()))
        }
    };
    let before = access.datastore.request_count();
    let past = access.datastore.past(&of).await?;
    let requests = access.datastore.request_count() - before;
    tell_requests(past.newest, requests, access.operator);

    let read = |folder| written(folder, &past.guid, Some("etcd"), access.operator);
    let written = journals.map(read).unwrap_or_default();
    let guid = past.guid.clone();
    let location = past.location.clone();
    let kept = kept(past);
    let events = timeline(&kept, &written, &about);
    let reach = Reach::Etcd {
        oldest_revision: kept.oldest.to_string(),
        newest_revision: kept.newest.to_string(),
        read_at: kept.read_at,
    };
    Ok(History {
        guid,
        location,
        about,
        reach,
        events,
    })
}

/// The timeout of [`last_events`].
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns an address's latest events, from the latest versions of its blocks. `snapshot` contains the objects around
/// the address. Journals are not read.
pub async fn last_events(
    datastore: &Datastore,
    snapshot: &Snapshot,
    address: IpAddr,
    most: usize,
) -> Vec<Event> {
    // The state of the address does not depend on its history. An unreadable history is returned as empty.
    let recent = tokio::time::timeout(LAST_EVENTS_TIMEOUT, datastore.recent(snapshot, address)).await;
    let Ok(Ok(Some(past))) = recent else {
        return Vec::new();
    };
    let mut events = timeline(&kept(past), &[], &HistorySubject::Address(address));
    events.retain(|event| event.what != EventKind::Known);
    events.split_off(events.len().saturating_sub(most))
}

/// Returns the subject of a history. Looks up a name, or the beginning of a handle's ID, in the datastore.
async fn subject(datastore: &Datastore, object: Object) -> Result<HistorySubject> {
    match object {
        Object::Handle(id)
            if !datastore
                .lookup(&Lookup::Handle(id.clone()))
                .await?
                .handles
                .is_empty() =>
        {
            Ok(HistorySubject::Handle(id))
        }
        Object::Handle(begin) => Ok(HistorySubject::Handle(whole_id(
            &begin,
            datastore.names(NameKind::Handles, &begin).await?,
        )?)),
        Object::Text(name) => {
            let nodes = datastore.names(NameKind::Nodes, &name).await?;
            let handles = datastore.names(NameKind::Handles, &name).await?;
            about(
                KnownNames {
                    nodes,
                    handles,
                    ..KnownNames::default()
                }
                .find_past(&name)?,
            )
        }
        other => about(other),
    }
}

/// Converts an object to the subject of a history. Fails if objects of this kind have no history.
pub(crate) fn about(object: Object) -> Result<HistorySubject> {
    Ok(match object {
        Object::Address(address) => HistorySubject::Address(address),
        Object::Network(cidr) => HistorySubject::Block(cidr),
        Object::Pod((namespace, name)) => HistorySubject::Pod(format!("{namespace}/{name}")),
        Object::Node(name) => HistorySubject::Node(name),
        Object::Handle(id) => HistorySubject::Handle(id),
        Object::Pool(name) | Object::Text(name) => {
            return Err(Failure::usage(format!("{name:?} has no history")));
        }
    })
}

/// Converts the versions that etcd keeps to texts.
fn kept(past: Past) -> Kept {
    let text = |key: Vec<u8>| String::from_utf8_lossy(&key).into_owned();
    let base = past.base.into_iter().map(|entry| Version {
        path: text(entry.key),
        revision: entry.mod_revision,
        value: Some(entry.value),
    });
    let changes = past.changes.into_iter().map(|change| Version {
        path: text(change.key),
        revision: change.revision,
        value: change.value,
    });

    Kept {
        oldest: past.oldest,
        newest: past.newest,
        read_at: past.read_at,
        base: base.collect(),
        changes: changes.collect(),
    }
}

/// Returns calipam's writes to a cluster, from the journals in a folder. If `datastore` names a kind of datastore,
/// returns only the writes to that kind. Journals that cannot be read are skipped with a warning.
pub(crate) fn written(
    folder: &Path,
    guid: &str,
    datastore: Option<&str>,
    operator: &dyn Operator,
) -> Vec<JournaledWrite> {
    let pass_over = |error: JournalError| {
        operator.warn(format!("{error}: changes by that run are not marked"));
    };
    let listed = match list(folder) {
        Ok(listed) => listed,
        Err(error) => {
            pass_over(error);
            return Vec::new();
        }
    };

    let here = listed.iter().filter(|listed| {
        let header = &listed.header;
        let is_here = datastore.is_none_or(|datastore| header.datastore == datastore);
        !guid.is_empty() && header.cluster == guid && is_here
    });
    let mut all = Vec::new();

    for journal in here {
        match Recorded::read(&journal.path) {
            Ok(recorded) => all.extend(of_journal(journal, &recorded)),
            Err(error) => pass_over(error),
        }
    }

    all
}

/// The writes of a run, by its journal.
fn of_journal(journal: &Listed, recorded: &Recorded) -> Vec<JournaledWrite> {
    let run = Run {
        command: recorded.header.command.clone(),
        started_at: recorded.header.started_at.clone(),
        journal: journal
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    };
    // `outcome` is the written revision, if there is one. It is `None` if the run was killed, so the outcome is
    // unknown.
    let one = |change: &ChangeRecord, outcome: Option<Option<&str>>| JournaledWrite {
        run: run.clone(),
        path: change.key.clone(),
        revision: outcome.flatten().and_then(|revision| revision.parse().ok()),
        replaced: change
            .before
            .as_ref()
            .and_then(|before| before.revision.parse().ok()),
        before: change
            .before
            .as_ref()
            .and_then(|before| before.value.bytes())
            .map(Into::into),
        after: change
            .after
            .as_ref()
            .and_then(|after| after.bytes())
            .map(Into::into),
        is_certain: outcome.is_some(),
    };

    let mut all = Vec::new();
    for intent in &recorded.intents {
        match recorded.outcomes.get(&intent.id) {
            None => all.extend(intent.changes.iter().map(|change| one(change, None))),
            Some(Outcome { written: None, .. }) => {}
            Some(Outcome {
                written: Some(revisions),
                ..
            }) => {
                let changes = intent.changes.iter().zip(revisions);
                all.extend(changes.map(|(change, revision)| one(change, Some(revision.as_deref()))));
            }
        }
    }

    all
}
