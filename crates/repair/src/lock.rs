//! The datastore lock: `datastoreReady` of ClusterInformation. While it is false, Calico starts and stops
//! no pods.

use std::time::{Duration, Instant};

use bytes::Bytes;
use calipam_datastore::Datastore;
use calipam_datastore::write::{Batch, Change, Consent, Stored, Swap, Writer};
use calipam_model::config::ClusterInformation;
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use serde_json::Value;

use crate::engine::RETRIES;
use crate::error::RepairError;
use crate::journal::{Journal, LockMark};

/// How long restoring is tried while the datastore cannot be reached.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often taking it is tried while answers are lost.
const LOST_ANSWERS: usize = 5;

const PAUSE: Duration = Duration::from_secs(1);

const FIELD: &str = "datastoreReady";

/// The lock, held.
#[derive(Debug)]
pub(crate) struct Held {
    /// What the field was before; `None` where it was absent.
    before: Option<bool>,
    /// The value as it was, and the version that locking made of it. `None` where nothing was written
    /// because others hold the lock.
    replaced: Option<(Stored, Revision)>,
}

impl Held {
    /// The revision that locking made of ClusterInformation; `None` where others hold the lock.
    pub(crate) fn revision(&self) -> Option<String> {
        self.replaced.as_ref().map(|(_, revision)| revision.to_string())
    }
}

pub(crate) fn key() -> Key {
    Key::ClusterInformation("default".into())
}

fn failed(action: &'static str) -> impl Fn(&str) -> RepairError {
    move |reason| RepairError::Lock { action, reason: reason.to_owned() }
}

/// Takes the lock. That it is about to be taken, and what the field was, is in the journal before.
pub(crate) async fn take(writer: &Writer, journal: &Journal) -> Result<Held, RepairError> {
    let failed = failed("take");
    let mut lost_answers = 0;
    // A write whose answer was lost: what it was to replace, and what it was to write.
    let mut unsure: Option<(Stored, Bytes)> = None;
    for _ in 0..RETRIES {
        let stored = current(writer).await?.ok_or_else(|| failed("there is no ClusterInformation"))?;
        let before = ready(&stored).map_err(|reason| failed(&reason))?;
        if let Some((original, locked)) = unsure.take()
            && original.revision != stored.revision
            && spec(&stored.raw) == spec(&locked)
        {
            let before = ready(&original).map_err(|reason| failed(&reason))?;
            return Ok(Held { before, replaced: Some((original, stored.revision)) });
        }
        // Whoever holds it may restore it while this run goes on.
        if before == Some(false) {
            return Err(failed("it is locked already, by another run or by a person"));
        }

        let locked = with_ready(&stored.raw, Some(false)).map_err(|reason| failed(&reason))?;
        journal.mark_lock(LockMark::Taking(before)).await?;
        match swap(writer, &stored, locked.clone()).await {
            Ok(Some(revision)) => return Ok(Held { before, replaced: Some((stored, revision)) }),
            Ok(None) => {}
            Err(error) if error.may_pass() && lost_answers < LOST_ANSWERS => {
                lost_answers += 1;
                unsure = Some((stored, locked));
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) if error.may_pass() => {
                return Err(failed(&format!("whether it is locked now is not known: {error}")));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(failed("others keep changing ClusterInformation"))
}

/// Restores what the field was, also while the datastore is out of reach for a while.
pub(crate) async fn restore(writer: &Writer, held: &Held) -> Result<(), RepairError> {
    let Some((original, ours)) = &held.replaced else { return Ok(()) };
    let begun = Instant::now();
    loop {
        match put_back(writer, held.before, original, ours).await {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE => return Err(failed("restore")(&error.to_string())),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Puts the field back to `before`. Where ClusterInformation is the very version that locking made, the
/// whole value becomes what it was; else only the field changes, and only if it is still false: whoever
/// has unlocked the datastore meanwhile meant it.
async fn put_back(
    writer: &Writer,
    before: Option<bool>,
    original: &Stored,
    ours: &Revision,
) -> Result<(), RepairError> {
    let failed = failed("restore");
    for _ in 0..RETRIES {
        let Some(stored) = current(writer).await? else { return Ok(()) };
        if ready(&stored).map_err(|reason| failed(&reason))? != Some(false) {
            return Ok(());
        }
        let value = match *ours == stored.revision {
            true => original.raw.clone(),
            false => with_ready(&stored.raw, before).map_err(|reason| failed(&reason))?,
        };
        if swap(writer, &stored, value).await?.is_some() {
            return Ok(());
        }
    }
    Err(failed("others keep changing ClusterInformation"))
}

/// Locks or unlocks the datastore until others change that, as `calicoctl datastore migrate lock` does.
pub async fn set_locked(datastore: &Datastore, consent: Consent, locked: bool) -> Result<(), RepairError> {
    let action = if locked { "take" } else { "restore" };
    let writer = datastore.writer(consent)?;
    for _ in 0..RETRIES {
        let stored =
            current(&writer).await?.ok_or_else(|| failed(action)("there is no ClusterInformation"))?;
        let before = ready(&stored).map_err(|reason| failed(action)(&reason))?;
        if before == Some(!locked) {
            return Ok(());
        }
        let value = with_ready(&stored.raw, Some(!locked)).map_err(|reason| failed(action)(&reason))?;
        if swap(&writer, &stored, value).await?.is_some() {
            return Ok(());
        }
    }
    Err(failed(action)("others keep changing ClusterInformation"))
}

/// Puts the field back to `before` where ClusterInformation is still at `revision`; false where it is not.
pub(crate) async fn put_back_at(
    writer: &Writer,
    before: Option<bool>,
    revision: &str,
) -> Result<bool, RepairError> {
    let stored = current(writer).await?.filter(|stored| stored.revision.to_string() == revision);
    let Some(stored) = stored else { return Ok(false) };
    let value = with_ready(&stored.raw, before).map_err(|reason| failed("restore")(&reason))?;
    Ok(swap(writer, &stored, value).await?.is_some())
}

async fn current(writer: &Writer) -> calipam_datastore::Result<Option<Stored>> {
    Ok(writer.read(&[key()]).await?.pop().flatten())
}

pub(crate) fn ready(stored: &Stored) -> Result<Option<bool>, String> {
    ClusterInformation::parse(&stored.raw).map(|information| information.datastore_ready)
}

/// What Kubernetes adds to a value lies outside of `spec`.
fn spec(raw: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(raw).ok()?.get("spec").cloned()
}

/// The value with the field set, or without it.
fn with_ready(raw: &[u8], ready: Option<bool>) -> Result<Bytes, String> {
    let mut value: Value = serde_json::from_slice(raw).map_err(|e| e.to_string())?;
    let object = value.as_object_mut().ok_or("ClusterInformation is not a JSON object")?;
    let spec = object.entry("spec").or_insert_with(|| Value::Object(serde_json::Map::new()));
    let spec = spec.as_object_mut().ok_or("`spec` of ClusterInformation is not a JSON object")?;
    match ready {
        Some(ready) => spec.insert(FIELD.into(), ready.into()),
        None => spec.remove(FIELD),
    };
    serde_json::to_vec(&value).map(Bytes::from).map_err(|e| e.to_string())
}

async fn swap(writer: &Writer, stored: &Stored, value: Bytes) -> calipam_datastore::Result<Option<Revision>> {
    let change = Change::update(key(), stored.revision.clone(), value);
    let batch = Batch { changes: vec![change], evidence: Vec::new() };
    Ok(match writer.commit(&batch).await? {
        Swap::Done(revisions) => revisions.into_iter().next().flatten(),
        Swap::Lost => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_field_changes() {
        let raw =
            br#"{"kind":"ClusterInformation","spec":{"datastoreReady":true,"big":18446744073709551615}}"#;
        let text = |ready| String::from_utf8(with_ready(raw, ready).unwrap().to_vec()).unwrap();
        assert_eq!(
            text(Some(false)),
            r#"{"kind":"ClusterInformation","spec":{"big":18446744073709551615,"datastoreReady":false}}"#
        );
        assert!(!text(None).contains("datastoreReady"));
        let none = with_ready(b"{}", Some(false)).unwrap();
        assert_eq!(none, br#"{"spec":{"datastoreReady":false}}"#.as_slice());
        assert!(with_ready(b"[]", None).is_err() && with_ready(br#"{"spec":1}"#, None).is_err());
    }
}
