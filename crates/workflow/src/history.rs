//! `history`: the history in etcd and in calipam's journals.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use calipam_datastore::Datastore;
use calipam_datastore::read::{Lookup, NameKind, Past, PastSubject};
use calipam_history::timeline::{
    Event, EventKind, HistorySubject, JournaledWrite, Kept, Run, Version, timeline,
};
use calipam_model::snapshot::{DatastoreKind, Snapshot};
use calipam_repair::journal::{ChangeRecord, JournalError, Listed, Recorded, list};
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
    let before = access.datastore.request_count();
    let past = access.datastore.past(&past_subject(&about)).await?;
    let requests = access.datastore.request_count() - before;
    tell_requests(past.newest, requests, access.operator);

    let writes = match journals {
        Some(folder) => journaled_writes(folder, &past.guid, Some(DatastoreKind::Etcd), access.operator),
        None => Vec::new(),
    };
    let guid = past.guid.clone();
    let location = past.location.clone();
    let kept = to_kept(past);
    let events = timeline(&kept, &writes, &about);
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

/// Converts the subject of a history to what etcd is asked for.
fn past_subject(about: &HistorySubject) -> PastSubject {
    match about {
        HistorySubject::Address(address) => PastSubject::Lookup(Lookup::Address(*address)),
        HistorySubject::Handle(id) => PastSubject::Lookup(Lookup::Handle(id.clone())),
        HistorySubject::Block(cidr) => PastSubject::Block(*cidr),
        HistorySubject::Node(node) => PastSubject::Node(node.clone()),
        HistorySubject::Pod(pod) => {
            let (namespace, name) = pod.split_once('/').unwrap_or_default();
            PastSubject::Pod((namespace.to_owned(), name.to_owned()))
        }
    }
}

/// The timeout of [`last_events`].
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns an address's latest events, but at most `limit`, from the latest versions of its blocks. `snapshot` contains
/// the objects around the address. Journals are not read.
pub async fn last_events(
    datastore: &Datastore,
    snapshot: &Snapshot,
    address: IpAddr,
    limit: usize,
) -> Vec<Event> {
    // The state of the address does not depend on its history. An unreadable history is returned as empty.
    let recent = tokio::time::timeout(LAST_EVENTS_TIMEOUT, datastore.recent(snapshot, address)).await;
    let Ok(Ok(Some(past))) = recent else {
        return Vec::new();
    };
    let no_writes = [];
    let mut events = timeline(&to_kept(past), &no_writes, &HistorySubject::Address(address));
    // What is only known from the oldest version did not happen then.
    events.retain(|event| event.what != EventKind::Known);
    events.split_off(events.len().saturating_sub(limit))
}

/// Returns the subject of a history. Looks up a name, or the beginning of a handle's ID, in the datastore.
async fn subject(datastore: &Datastore, object: Object) -> Result<HistorySubject> {
    match object {
        Object::Handle(begin) => {
            let snapshot = datastore.lookup(&Lookup::Handle(begin.clone())).await?;
            if !snapshot.handles.is_empty() {
                return Ok(HistorySubject::Handle(begin));
            }
            let ids = datastore.names(NameKind::Handles, &begin).await?;
            Ok(HistorySubject::Handle(whole_id(&begin, ids)?))
        }
        Object::Text(name) => {
            let known_names = KnownNames {
                nodes: datastore.names(NameKind::Nodes, &name).await?,
                handles: datastore.names(NameKind::Handles, &name).await?,
                ..KnownNames::default()
            };
            about(known_names.find_past(&name)?)
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
fn to_kept(past: Past) -> Kept {
    let to_text = |key: Vec<u8>| String::from_utf8_lossy(&key).into_owned();
    let mut base = Vec::new();
    for entry in past.base {
        base.push(Version {
            path: to_text(entry.key),
            revision: entry.mod_revision,
            value: Some(entry.value),
        });
    }
    let mut changes = Vec::new();
    for change in past.changes {
        changes.push(Version {
            path: to_text(change.key),
            revision: change.revision,
            value: change.value,
        });
    }

    Kept {
        oldest: past.oldest,
        newest: past.newest,
        read_at: past.read_at,
        base,
        changes,
    }
}

/// Returns calipam's writes to a cluster, from the journals in a folder. If `datastore` names a kind of datastore,
/// returns only the writes to that kind. Journals that cannot be read are skipped with a warning.
pub(crate) fn journaled_writes(
    folder: &Path,
    guid: &str,
    datastore: Option<DatastoreKind>,
    operator: &dyn Operator,
) -> Vec<JournaledWrite> {
    let warn_of_unread = |error: JournalError| {
        operator.warn(format!("{error}: changes by that run are not marked"));
    };
    let journals = match list(folder) {
        Ok(journals) => journals,
        Err(error) => {
            warn_of_unread(error);
            return Vec::new();
        }
    };
    // Without a GUID, no journal can be assigned to the cluster.
    if guid.is_empty() {
        return Vec::new();
    }

    let mut writes = Vec::new();
    for journal in &journals {
        if journal.header.cluster != guid || datastore.is_some_and(|kind| journal.header.datastore != kind) {
            continue;
        }
        match Recorded::read(&journal.path) {
            Ok(recorded) => writes.extend(writes_of_run(journal, &recorded)),
            Err(error) => warn_of_unread(error),
        }
    }
    writes
}

/// Returns the writes of a run, by its journal.
fn writes_of_run(journal: &Listed, recorded: &Recorded) -> Vec<JournaledWrite> {
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
    let mut writes = Vec::new();
    for intent in &recorded.intents {
        let Some(outcome) = recorded.outcomes.get(&intent.id) else {
            // The run was killed, so it is not certain that it wrote this.
            for change in &intent.changes {
                writes.push(uncertain_write(&run, change));
            }
            continue;
        };
        let Some(revisions) = &outcome.written else {
            // Nothing was written.
            continue;
        };
        for (change, revision) in intent.changes.iter().zip(revisions) {
            let mut write = uncertain_write(&run, change);
            write.is_certain = true;
            if let Some(revision) = revision {
                write.revision = revision.parse().ok();
            }
            writes.push(write);
        }
    }
    writes
}

/// Returns the write of a change that a run intended, without its outcome.
fn uncertain_write(run: &Run, change: &ChangeRecord) -> JournaledWrite {
    let mut write = JournaledWrite {
        run: run.clone(),
        path: change.key.clone(),
        revision: None,
        replaced: None,
        before: None,
        after: None,
        is_certain: false,
    };
    if let Some(before) = &change.before {
        write.replaced = before.revision.parse().ok();
        write.before = before.value.bytes().map(Into::into);
    }
    if let Some(after) = &change.after {
        write.after = after.bytes().map(Into::into);
    }
    write
}
