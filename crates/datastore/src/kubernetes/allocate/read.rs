//! An allocator's reads on Kubernetes.

use std::sync::Arc;

use calipam_assign::{Entry, Family, Record};
use calipam_files::objects::{Accept, Encoding};
use calipam_model::DecodeError;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::block::BlockContent;
use calipam_model::key::Key;
use calipam_model::snapshot::{DefectKind, Revision, Snapshot, Source, StoredBlock, Versioned};
use percent_encoding::utf8_percent_encode;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{Error, Failure, Result};
use crate::kubernetes::again::{incomplete, locate, read_one};
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds::{self, Kind, UNRESERVED};
use crate::kubernetes::client::object::List;
use crate::kubernetes::whole::list::list;
use crate::kubernetes::write::change::{
    SECOND_STEPS, finish_deletion, is_marked, unfinished_deletion, version, without_managed_fields,
    without_strict,
};

#[derive(Default)]
pub(super) struct Answer {
    pub entries: Vec<Entry>,
    /// The object itself, kept so that it can be replaced later.
    pub object: Option<(Key, Value)>,
    /// The resource version of a list, or 0 if it is no number; `None` if the answer is no list.
    pub list_version: Option<u64>,
    /// True if the answer proves that the API group exists.
    pub shows_group: bool,
    /// True if the object or the whole API group is missing.
    pub misses_kind: bool,
}

impl Answer {
    pub(super) fn found(entries: Vec<Entry>) -> Self {
        Self {
            entries,
            shows_group: true,
            ..Self::default()
        }
    }

    pub(super) fn missing() -> Self {
        Self {
            misses_kind: true,
            ..Self::default()
        }
    }

    /// Creates the answer to a list request. "Not found" means that there are no such objects.
    pub(super) fn from_list(read: Result<Vec<Entry>>) -> Result<Self> {
        match read {
            Ok(entries) => Ok(Self::found(entries)),
            Err(Error::Request {
                failure: Failure::NotFound,
                ..
            }) => Ok(Self::missing()),
            Err(error) => Err(error),
        }
    }
}

/// The result of a request; `None` if the server refuses it, for example since it does not understand a page's token.
///
/// # Errors
/// If the same request may succeed later.
pub(super) fn unless_refused<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.may_pass() => Err(error),
        Err(_) => Ok(None),
    }
}

/// Reads one object. If it is marked as deleted, completes the deletion.
pub(super) async fn get(client: &Arc<KubeClient>, key: &Key) -> Result<Answer> {
    let Some((kind, path)) = locate(client, key) else {
        return Ok(Answer::default());
    };
    if kind.known.source == Source::Nodes {
        return node(client, key, &kind, &path).await;
    }

    for _ in 0..SECOND_STEPS {
        let Some((snapshot, body)) = read_one(client, &kind, &path).await? else {
            return Ok(Answer::missing());
        };
        let value: Value = serde_json::from_slice(&body).map_err(|_| incomplete(client, &kind))?;
        let value = without_managed_fields(value);
        if is_marked(&value["spec"]) {
            match finish_deletion(client, &path, &value).await {
                Ok(()) | Err(Failure::NotFound) => return Ok(Answer::found(Vec::new())),
                // Another client has written to the object since the read.
                Err(Failure::Conflict(_)) => continue,
                Err(failure) => return Err(client.write_error(kind.known.plural, failure)),
            }
        }

        let entries = object_entries(key, snapshot, &version(&value));
        return Ok(Answer {
            object: Some((key.clone(), value)),
            ..Answer::found(entries)
        });
    }
    Err(client.write_error(kind.known.plural, unfinished_deletion()))
}

/// Reads only the metadata of a node, since allocators do not need the rest, which is long.
async fn node(client: &KubeClient, key: &Key, kind: &Kind, path: &str) -> Result<Answer> {
    let read = client
        .get_whole(path, Accept::OneMetadata, kind.known.plural)
        .await?;
    let Some((body, _)) = read else {
        return Ok(Answer::default());
    };
    let mut snapshot = Snapshot::default();
    kind.known.add(&mut snapshot, &body, Encoding::Json);
    Ok(Answer {
        entries: entries(snapshot, |found| found == key),
        ..Answer::default()
    })
}

/// The record in a Calico object; [`Record::Undecodable`] if it belongs to another key or cannot be decoded.
pub(super) fn object_entries(key: &Key, mut snapshot: Snapshot, revision: &Revision) -> Vec<Entry> {
    if let (Key::IpamConfig, Some(config)) = (key, snapshot.ipam_config.take()) {
        return vec![Entry {
            record: Record::Config(config),
            revision: revision.clone(),
        }];
    }
    let mut entries = entries(snapshot, |found| found == key);
    if entries.is_empty() {
        let reason = "the object with that name is a different one, or cannot be decoded";
        return vec![Entry {
            record: Record::Undecodable {
                key: key.clone(),
                reason: reason.to_owned(),
            },
            revision: revision.clone(),
        }];
    }
    for entry in &mut entries {
        entry.revision = revision.clone();
    }
    entries
}

/// Lists a kind, not older than the resource version `since`, and returns the records whose keys `is_wanted` accepts.
pub(super) async fn listed(
    client: &Arc<KubeClient>,
    source: Source,
    since: Option<&str>,
    is_wanted: impl Fn(&Key) -> bool,
) -> Result<Answer> {
    let Ok(mut kind) = kinds::find(client.api(), source) else {
        return Ok(Answer::default());
    };
    if let Some(since) = since {
        kind.path = format!("{}?{}", kind.path, not_older_than(since));
    }

    let listed = list::<Snapshot>(client, &kind).await;
    let list = listed.map(|listed| ShortList {
        version: listed.resource_version,
        snapshot: listed.taken,
    });
    list_answer(list, is_wanted)
}

/// Finds affinities by their labels, in one request, in a state that is not older than the resource version `since`.
pub(super) async fn affinities_with_labels(
    client: &Arc<KubeClient>,
    label_selector: &str,
    since: Option<&str>,
    is_wanted: impl Fn(&Key) -> bool,
) -> Result<Answer> {
    let Ok(kind) = kinds::find(client.api(), Source::Affinities) else {
        // A server without the kind has no affinities.
        return Ok(Answer::default());
    };
    let encoded_selector = utf8_percent_encode(label_selector, UNRESERVED);
    let mut path = format!("{}?labelSelector={encoded_selector}", kind.path);
    if let Some(since) = since {
        path.push('&');
        path.push_str(&not_older_than(since));
    }
    list_answer(short_list(client, &kind, &path).await, is_wanted)
}

/// Creates the answer to a list request, with the records whose keys `is_wanted` accepts.
fn list_answer(list: Result<ShortList>, is_wanted: impl Fn(&Key) -> bool) -> Result<Answer> {
    match list {
        Ok(list) => Ok(Answer {
            list_version: Some(list.version.parse().unwrap_or(0)),
            ..Answer::found(entries(list.snapshot, is_wanted))
        }),
        Err(error) => Answer::from_list(Err(error)),
    }
}

/// The parameters of a list that the server may answer from its cache, as soon as the cache has reached a version. The
/// cache of a quiet kind lags behind the newest write to any other kind for up to a tenth of a second, for which lists
/// of the current state wait.
fn not_older_than(version: &str) -> String {
    let version = utf8_percent_encode(version, UNRESERVED);
    format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan")
}

/// A label selector for a holder's affinities in one family.
pub(super) fn selector(kind: &AffinityType, holder: &str, family: Family) -> String {
    let any_block = match family {
        Family::V4 => calipam_model::IpNet::V4(Default::default()),
        Family::V6 => calipam_model::IpNet::V6(Default::default()),
    };
    let key = AffinityKey {
        kind: kind.clone(),
        node: holder.to_owned(),
        cidr: any_block,
    };
    key.labels()
        .map(|(name, value)| format!("{name}={value}"))
        .join(",")
}

/// A list that was read in one piece.
struct ShortList {
    version: String,
    snapshot: Snapshot,
}

/// Reads a short list in one request, without pages.
async fn short_list(client: &Arc<KubeClient>, kind: &Kind, path: &str) -> Result<ShortList> {
    let read = client.get_whole(path, Accept::Json, kind.known.plural).await?;
    let (body, _) = read.ok_or_else(|| client.error(kind.known.plural, Failure::NotFound))?;
    let list: List<&RawValue> = client.decode(&body, kind.known.plural)?;
    let mut snapshot = Snapshot::default();
    for item in &list.items {
        kind.known
            .add(&mut snapshot, item.get().as_bytes(), Encoding::Json);
    }
    Ok(ShortList {
        version: list.metadata.resource_version,
        snapshot,
    })
}

/// A node's affinities in both families, with and without labels.
pub(super) async fn affinities_of(client: &Arc<KubeClient>, node: &str) -> Result<Vec<Entry>> {
    let is_of_node =
        |key: &Key| matches!(key, Key::Affinity(key) if key.kind == AffinityType::Host && key.node == node);
    let current_state = None;
    Ok(listed(client, Source::Affinities, current_state, is_of_node)
        .await?
        .entries)
}

/// The wanted records in a snapshot. Affinities that are marked as deleted are omitted.
fn entries(snapshot: Snapshot, is_wanted: impl Fn(&Key) -> bool) -> Vec<Entry> {
    let mut entries = Vec::new();
    entries.extend(snapshot.blocks.into_iter().map(block_entry));
    let mut affinities = snapshot.affinities;
    affinities.retain(|affinity| !affinity.value.deleted);
    add_entries(&mut entries, affinities, Record::Affinity);
    add_entries(&mut entries, snapshot.handles, Record::Handle);
    add_entries(&mut entries, snapshot.pools, Record::Pool);
    add_entries(&mut entries, snapshot.reservations, Record::Reservation);
    add_entries(&mut entries, snapshot.nodes, Record::Node);
    for defect in snapshot.defects {
        if let (Some(key), DefectKind::Value(reason)) = (defect.key, defect.kind) {
            entries.push(Entry {
                record: Record::Undecodable { key, reason },
                // No write matches an empty version.
                revision: Revision::Kubernetes(Box::default()),
            });
        }
    }
    entries.retain(|entry| is_wanted(&entry.record.key()));
    entries
}

/// The record of a stored block. A block that cannot be used, or that is another one, becomes an undecodable record.
fn block_entry(stored: Versioned<StoredBlock>) -> Entry {
    let Versioned { value, revision } = stored;
    let undecodable = |error: DecodeError| Record::Undecodable {
        key: Key::Block(value.key),
        reason: error.to_string(),
    };
    let usable = value.content.into_usable();
    let record = match usable.map(|block| without_strict(BlockContent::Sound(block))) {
        Ok(BlockContent::Sound(block)) if block.cidr() == value.key => Record::Block(Arc::from(block)),
        // The object with the block's name holds another block.
        Ok(other_block) => undecodable(DecodeError::another_block(other_block.cidr())),
        Err(error) => undecodable(error),
    };
    Entry { record, revision }
}

/// Adds stored objects of one kind to the entries, as records.
fn add_entries<T>(entries: &mut Vec<Entry>, objects: Vec<Versioned<T>>, to_record: fn(T) -> Record) {
    for Versioned { value, revision } in objects {
        let record = to_record(value);
        entries.push(Entry { record, revision });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selector_has_the_labels_of_the_facts() {
        assert_eq!(
            selector(&AffinityType::Host, "node-1", Family::V4),
            "projectcalico.org/affinity-type=host,\
             projectcalico.org/hostname-hash=A3XPYDATRKB7Q4SM2O5FN4RXIHBFIL2PITFX26BAIP5XAB2X74CA,\
             projectcalico.org/ip-version=4"
        );
        assert!(selector(&AffinityType::Host, "node-1", Family::V6).ends_with("ip-version=6"));
    }
}
