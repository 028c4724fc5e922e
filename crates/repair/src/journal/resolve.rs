//! Resolves intents whose outcome was not recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use calipam_datastore::Datastore;
use calipam_datastore::write::Stored;
use calipam_model::key::Key;

use super::append::{append, unfinished};
use super::entry::{ChangeRecord, Entry, Intent, Outcome};
use super::read::Recorded;
use crate::error::{RepairError, Result};

/// The outcome of an intent, judged by the state of its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntentOutcome {
    /// All objects are as the intent's write would leave them.
    Written(Outcome),
    /// All objects have the values from before the intent.
    NotWritten,
    /// Other clients have changed the objects with these keys.
    Changed(Vec<String>),
}

/// Reads the objects of open intents to determine their outcomes. This includes intents that are recorded as not
/// written, since writes of a killed run may arrive late. Returns the journal with the certain outcomes added, and the
/// outcome of each open intent by its number.
pub async fn resolve(
    mut recorded: Recorded,
    datastore: &Datastore,
) -> Result<(Recorded, BTreeMap<u64, IntentOutcome>)> {
    let mut found_outcomes = BTreeMap::new();
    let mut awaited = BTreeSet::new();
    for intent in recorded.open() {
        let stored = datastore.stored(&intent.keys()?).await?;
        if may_arrive(intent, &stored) {
            awaited.insert(intent.id);
        }
        found_outcomes.insert(intent.id, intent_outcome(intent, &stored));
    }
    recorded.awaited = awaited;

    for (id, found) in &found_outcomes {
        let outcome = match found {
            IntentOutcome::Written(outcome) => {
                recorded.arrived.insert(*id);
                outcome.clone()
            }
            IntentOutcome::NotWritten => Outcome {
                id: *id,
                written: None,
            },
            IntentOutcome::Changed(_) => continue,
        };
        recorded.outcomes.insert(*id, outcome);
    }

    Ok((recorded, found_outcomes))
}

/// The journals of killed runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Journals whose outcomes are now recorded.
    pub resolved: Vec<PathBuf>,
    /// Journals that could not be resolved, with the reasons. They stay unchanged.
    pub passed_over: Vec<(PathBuf, String)>,
}

/// Resolves the journals of killed runs for `cluster` in a folder. The outcomes are recorded in these journals, because
/// they can no longer be determined once other clients have written to the same objects.
pub async fn resolve_killed(datastore: &Datastore, folder: &Path, cluster: &str) -> Result<Resolved> {
    let mut all = Resolved::default();
    for path in unfinished(folder).unwrap_or_default() {
        match resolve_one(datastore, &path, cluster).await {
            Ok(true) => all.resolved.push(path),
            Ok(false) => {}
            Err(RepairError::Datastore(error)) => return Err(error.into()),
            Err(other) => all.passed_over.push((path, other.to_string())),
        }
    }

    Ok(all)
}

/// Resolves one journal. Returns false if it belongs to another cluster, or has no open intents.
async fn resolve_one(datastore: &Datastore, path: &Path, cluster: &str) -> Result<bool> {
    let recorded = Recorded::read_own(path)?;
    if recorded.header.cluster != cluster || recorded.open_intents().next().is_none() {
        return Ok(false);
    }
    // Each outcome is recorded only once.
    let open: BTreeSet<u64> = recorded.open_intents().map(|intent| intent.id).collect();
    let (recorded, _) = resolve(recorded, datastore).await?;
    let mut entries: Vec<Entry> = Vec::new();
    for id in &open {
        if let Some(outcome) = recorded.outcomes.get(id) {
            entries.push(Entry::Outcome(outcome.clone()));
        }
    }
    append(path, &entries)?;
    Ok(true)
}

/// Parses the path of an object in a journal. Calipam changes only blocks, handles, affinities, pools and the allocator
/// configuration.
pub(crate) fn key_of(path: &str) -> Result<Key> {
    match Key::parse(path) {
        Ok(Some(
            key @ (Key::Block(_) | Key::Handle(_) | Key::Affinity(_) | Key::Pool(_) | Key::IpamConfig),
        )) => Ok(key),
        _ => Err(RepairError::UnexpectedKey {
            path: path.to_owned(),
        }),
    }
}

impl Intent {
    /// Returns the objects that the intent changes, in order.
    pub(crate) fn keys(&self) -> Result<Vec<Key>> {
        self.changes.iter().map(|change| key_of(&change.key)).collect()
    }
}

/// Returns the outcome of an intent, judged by the present state of its objects.
pub(crate) fn intent_outcome(intent: &Intent, stored: &[Option<Stored>]) -> IntentOutcome {
    let mut changes_and_objects = intent.changes.iter().zip(stored);
    if changes_and_objects.all(|(change, now)| is_after(change, now.as_ref())) {
        let mut revisions = Vec::new();
        for object in stored {
            revisions.push(object.as_ref().map(|object| object.revision.to_string()));
        }
        return IntentOutcome::Written(Outcome {
            id: intent.id,
            written: Some(revisions),
        });
    }

    let mut not_as_before = Vec::new();
    // Objects that are as they were neither before the write nor after it.
    let mut changed_by_others = Vec::new();
    for (change, now) in intent.changes.iter().zip(stored) {
        if is_before(change, now.as_ref()) {
            continue;
        }
        not_as_before.push(change.key.clone());
        if !is_after(change, now.as_ref()) {
            changed_by_others.push(change.key.clone());
        }
    }
    if not_as_before.is_empty() {
        return IntentOutcome::NotWritten;
    }
    if changed_by_others.is_empty() {
        // The write was made, and others have restored some of its objects since.
        return IntentOutcome::Changed(not_as_before);
    }
    IntentOutcome::Changed(changed_by_others)
}

/// Returns true if the object is as the intent's write would leave it, and no longer the version from before the
/// intent. Revisions do not prove that, because etcd reuses revisions after it is restored from a backup.
fn is_after(change: &ChangeRecord, now: Option<&Stored>) -> bool {
    match (&change.after, now) {
        (None, None) => true,
        // On Kubernetes, a deletion has two steps. The first was made.
        (None, Some(now)) => now.is_deleted() && !is_before(change, Some(now)),
        (Some(after), Some(now)) => after.is(&now.raw) && !is_before(change, Some(now)),
        _ => false,
    }
}

/// Returns true if the object has the value from before the intent.
fn is_before(change: &ChangeRecord, now: Option<&Stored>) -> bool {
    match (&change.before, now) {
        (None, None) => true,
        (Some(before), Some(now)) => before.value.is(&now.raw),
        _ => false,
    }
}

/// Returns true if a request to write the intent would still succeed: all objects are the versions that it expects.
fn may_arrive(intent: &Intent, stored: &[Option<Stored>]) -> bool {
    for (change, now) in intent.changes.iter().zip(stored) {
        if !is_before(change, now.as_ref()) {
            return false;
        }
        if let (Some(before), Some(now)) = (&change.before, now)
            && before.revision != now.revision.to_string()
        {
            return false;
        }
    }
    true
}

/// Returns true for objects that are compared only by value. On Kubernetes, controllers write the status of pools,
/// which changes their versions. An allocator configuration with the same values counts as unchanged.
pub(crate) fn compared_by_value(key: impl Into<Option<Key>>) -> bool {
    matches!(key.into(), Some(Key::Pool(_) | Key::IpamConfig))
}

#[cfg(test)]
mod tests {
    use calipam_model::snapshot::Revision;
    use calipam_model::writable::Object;

    use super::*;
    use crate::journal::{Value, Version};

    /// A handle that is stored at a revision, with or without a deletion mark.
    fn stored(deleted: bool, revision: i64) -> Stored {
        let text = format!(r#"{{"handleID":"h","block":{{"10.0.0.0/30":1}},"deleted":{deleted}}}"#);
        let object = Object::parse(&Key::Handle("h".into()), text.as_bytes()).unwrap();
        Stored {
            revision: Revision::Etcd(revision),
            raw: text.into(),
            whole: None,
            object,
            user: None,
        }
    }

    #[test]
    fn a_deletion_with_a_mark_counts_as_written() {
        let version = |of: &Stored| Version {
            revision: of.revision.to_string(),
            value: Value::new(&of.raw),
        };
        let deletes = |before: &Stored| ChangeRecord {
            key: Key::Handle("h".into()).to_string(),
            before: Some(version(before)),
            after: None,
        };
        let change = deletes(&stored(false, 7));
        assert!(is_after(&change, None) && is_after(&change, Some(&stored(true, 8))));
        assert!(!is_after(&change, Some(&stored(false, 7))) && !is_after(&change, Some(&stored(false, 8))));
        let marked = stored(true, 7);
        assert!(
            !is_after(&deletes(&marked), Some(&marked)),
            "it was marked before"
        );
    }
}
