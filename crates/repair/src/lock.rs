//! The datastore lock: `datastoreReady` of ClusterInformation. While it is false, Calico starts and stops no pods.

use std::time::{Duration, Instant};

use bytes::Bytes;
use calipam_datastore::write::{Batch, Change, Consent, Stored, Swap, Writer};
use calipam_datastore::{Datastore, Retries};
use calipam_model::config::{ClusterInformation, LOCKED_BY};
use calipam_model::document::Document;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Revision};
use serde_json::Value;

use crate::engine::RETRIES;
use crate::error::{LockAction, LockFailure, Result};
use crate::interrupt::Interrupt;
use crate::journal::{Header, Journal, LockMark};

/// The time limit for retries when the lock cannot be restored because the datastore is unreachable.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause before the lock is written again.
const PAUSE: Duration = Duration::from_secs(1);

/// The pauses before the lock is taken again after a lost answer or a temporary server error.
const PAUSES: [Duration; 5] = [PAUSE; 5];

const FIELD: &str = "datastoreReady";

/// Removes the name that a run has written into its lock.
const NO_NAME: Option<&str> = None;

/// Returns the name that a run writes into its lock, such as "`release --leaked` of 2026-05-01T10:00:00Z". It is unique
/// unless two runs of the same command begin at the same moment.
pub(crate) fn name_of(header: &Header) -> String {
    format!("`{}` of {}", header.command, header.started_at)
}

/// Returns true if the lock has the name of this run.
pub(crate) fn has_name(stored: &Stored, name: &str) -> bool {
    let information = ClusterInformation::parse(&stored.raw);
    information.is_ok_and(|information| information.locked_by.as_deref() == Some(name))
}

/// A lock that this run holds.
#[derive(Debug)]
pub(crate) struct HeldLock {
    /// The value of `datastoreReady` before locking; `None` if it was absent.
    before: Option<bool>,
    /// The ClusterInformation before locking.
    original: Stored,
    /// The revision of ClusterInformation after locking.
    pub revision: Revision,
}

pub(crate) fn key() -> Key {
    Key::cluster_information()
}

/// The stored ClusterInformation.
struct Information {
    stored: Stored,
    /// `None` if the field is absent.
    ready: Option<bool>,
}

impl Information {
    /// Reads ClusterInformation for an operation on the lock; `None` if it does not exist.
    async fn read(writer: &Writer, action: LockAction) -> Result<Option<Self>> {
        let Some(stored) = writer.read(&[key()]).await?.pop().flatten() else {
            return Ok(None);
        };
        let ready = ready(&stored).map_err(|reason| action.failed(reason))?;
        Ok(Some(Self { stored, ready }))
    }

    /// Replaces the object with `value`; `None` if another client has changed the object.
    async fn swap(&self, writer: &Writer, value: Bytes) -> calipam_datastore::Result<Option<Revision>> {
        let change = Change::update(key(), self.stored.revision.clone(), value);
        let batch = Batch {
            changes: vec![change],
            evidence: Vec::new(),
        };
        Ok(match writer.commit(&batch).await? {
            Swap::Done(revisions) => revisions.into_iter().next().flatten(),
            Swap::Conflict => None,
        })
    }
}

/// Takes the lock. Before that, the intent and the earlier value of the field are recorded in the journal.
pub(crate) async fn take(writer: &Writer, journal: &Journal, name: &str) -> Result<HeldLock> {
    let failed = |reason| LockAction::Take.failed(reason);
    let mut retries = Retries::new(&PAUSES);
    // True while no answer was lost. If every answer arrived, a write that the server denies was certainly not made.
    let mut is_certain = true;
    // A write whose answer was lost: the object that it replaces, and the new value.
    let mut unanswered: Option<(Information, Bytes)> = None;
    // The earlier value of the field, as last recorded in the journal.
    let mut recorded = None;

    for _ in 0..RETRIES {
        let current = Information::read(writer, LockAction::Take).await?;
        let current = current.ok_or_else(|| failed(LockFailure::NoInformation))?;
        if let Some((original, locked)) = unanswered.take() {
            if original.stored.revision == current.stored.revision {
                // The write may still arrive, even after the next attempt.
                unanswered = Some((original, locked));
            } else if has_name(&current.stored, name)
                || (writer.kind() == DatastoreKind::EtcdV2 && spec(&current.stored.raw) == spec(&locked))
            {
                let Information { stored, ready } = original;
                return Ok(HeldLock {
                    before: ready,
                    original: stored,
                    revision: current.stored.revision,
                });
            }
        }

        // Another run or a person holds the lock, and could release it during this run.
        if current.ready == Some(false) {
            return Err(failed(LockFailure::Taken));
        }

        let locked = with_ready(&current.stored.raw, Some(false), Some(name)).map_err(failed)?;
        // The same value is not recorded twice. If the journal failed now, the run would end, although the write of an
        // earlier attempt may still arrive.
        if recorded != Some(current.ready) {
            journal.mark_lock(LockMark::Taking(current.ready)).await?;
            recorded = Some(current.ready);
        }

        match current.swap(writer, locked.clone()).await {
            Ok(Some(revision)) => {
                return Ok(HeldLock {
                    before: current.ready,
                    original: current.stored,
                    revision,
                });
            }
            Ok(None) => {}
            Err(error) if error.may_pass() && !error.is_given_up() && retries.is_left() => {
                is_certain &= error.is_certainly_unwritten();
                unanswered = Some((current, locked));
                retries.pause().await;
            }
            Err(error) if is_certain && error.is_certainly_unwritten() => {
                journal.mark_lock(LockMark::Restored).await?;
                return Err(error.into());
            }
            Err(error) if error.may_pass() => return Err(failed(LockFailure::Unsure(error))),
            Err(error) => return Err(error.into()),
        }
    }
    Err(failed(LockFailure::Contended))
}

/// Restores the field, even if the datastore cannot be reached for a while. After an interrupt, tries only once.
pub(crate) async fn restore(writer: &Writer, held: &HeldLock, interrupt: &Interrupt) -> Result<()> {
    let begun = Instant::now();
    loop {
        match put_back(writer, held).await {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE || interrupt.is_set() || error.is_given_up() => {
                return Err(LockAction::Restore.failed(LockFailure::GivenUp(error)));
            }
            Err(_) => tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = interrupt.wait() => {}
            },
        }
    }
}

/// Sets the field back. If ClusterInformation has not changed since the lock was taken, restores the earlier object.
/// Otherwise changes only the field, and only if it is still false: the datastore may have been unlocked on purpose.
async fn put_back(writer: &Writer, held: &HeldLock) -> Result<()> {
    let unlocked = |now: Option<&Information>| {
        let Some(now) = now.filter(|now| now.ready == Some(false)) else {
            return Ok(None);
        };
        if now.stored.revision == held.revision {
            return Ok(Some(held.original.raw.clone()));
        }
        with_ready(&now.stored.raw, held.before, NO_NAME).map(Some)
    };
    replace(writer, LockAction::Restore, unlocked).await?;
    Ok(())
}

/// Locks or unlocks the datastore permanently, as `calicoctl datastore migrate` does.
pub async fn set_lock(datastore: &Datastore, consent: Consent, action: LockAction) -> Result<()> {
    // The field is false while the datastore is locked.
    let wanted = Some(action == LockAction::Restore);
    let new_value = |now: Option<&Information>| match now {
        None => Err(LockFailure::NoInformation),
        Some(now) if now.ready == wanted => Ok(None),
        Some(now) => with_ready(&now.stored.raw, wanted, NO_NAME).map(Some),
    };
    let writer = datastore.writer(consent)?;
    replace(&writer, action, new_value).await?;
    Ok(())
}

/// Sets the field back to `before` if `is_still` accepts the stored ClusterInformation. Otherwise changes nothing and
/// returns false.
pub(crate) async fn put_back_if(
    writer: &Writer,
    before: Option<bool>,
    is_still: impl Fn(&Stored) -> bool,
) -> Result<bool> {
    let unlocked = |now: Option<&Information>| match now.filter(|now| is_still(&now.stored)) {
        None => Ok(None),
        Some(now) => with_ready(&now.stored.raw, before, NO_NAME).map(Some),
    };
    replace(writer, LockAction::Restore, unlocked).await
}

/// Replaces ClusterInformation with the result of `new_value`, which gets the stored one, and tries again if another
/// client changes it first. Returns false if there is nothing to change: `new_value` returns `None`.
async fn replace(
    writer: &Writer,
    action: LockAction,
    new_value: impl Fn(Option<&Information>) -> Result<Option<Bytes>, LockFailure>,
) -> Result<bool> {
    for _ in 0..RETRIES {
        let now = Information::read(writer, action).await?;
        let value = new_value(now.as_ref()).map_err(|reason| action.failed(reason))?;
        let (Some(now), Some(value)) = (now, value) else {
            return Ok(false);
        };
        if now.swap(writer, value).await?.is_some() {
            return Ok(true);
        }
    }
    Err(action.failed(LockFailure::Contended))
}

pub(crate) fn ready(stored: &Stored) -> Result<Option<bool>, LockFailure> {
    match ClusterInformation::parse(&stored.raw) {
        Ok(information) => Ok(information.datastore_ready),
        Err(error) => Err(LockFailure::Undecodable(error.to_string())),
    }
}

/// Returns the `spec` of a stored object. Kubernetes adds fields only outside `spec`.
fn spec(raw: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(raw).ok()?.get("spec").cloned()
}

/// Returns an object with the field and the annotation set, or removed where the argument is `None`.
fn with_ready(raw: &[u8], ready: Option<bool>, locked_by: Option<&str>) -> Result<Bytes, LockFailure> {
    let undecodable = |error: serde_json::Error| LockFailure::Undecodable(error.to_string());
    let not_object = |what: &str| LockFailure::Undecodable(format!("{what} is not a JSON object"));
    let mut value: Value = serde_json::from_slice(raw).map_err(undecodable)?;
    let object = value
        .as_object_mut()
        .ok_or_else(|| not_object("ClusterInformation"))?;
    let empty_object = || Value::Object(serde_json::Map::new());

    let spec = object
        .entry("spec")
        .or_insert_with(empty_object)
        .as_object_mut()
        .ok_or_else(|| not_object("ClusterInformation's `spec`"))?;
    match ready {
        Some(ready) => spec.insert(FIELD.into(), ready.into()),
        None => spec.remove(FIELD),
    };

    if locked_by.is_some() {
        object.entry("metadata").or_insert_with(empty_object);
    }
    let mut document = Document::from_fields(std::mem::take(object));
    document.annotate(LOCKED_BY, locked_by.map(str::to_owned));
    serde_json::to_vec(&document)
        .map(Bytes::from)
        .map_err(undecodable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_field_changes() {
        let raw =
            br#"{"kind":"ClusterInformation","spec":{"datastoreReady":true,"big":18446744073709551615}}"#;
        let text = |ready| String::from_utf8(with_ready(raw, ready, None).unwrap().to_vec()).unwrap();
        assert_eq!(
            text(Some(false)),
            r#"{"kind":"ClusterInformation","spec":{"big":18446744073709551615,"datastoreReady":false}}"#
        );
        assert!(!text(None).contains("datastoreReady"));
        let none = with_ready(b"{}", Some(false), None).unwrap();
        assert_eq!(none, br#"{"spec":{"datastoreReady":false}}"#.as_slice());
        let named = with_ready(b"{}", Some(false), Some("n")).unwrap();
        let name =
            br#"{"metadata":{"annotations":{"calipam.io/locked-by":"n"}},"spec":{"datastoreReady":false}}"#;
        assert_eq!(named, name.as_slice());
        assert!(with_ready(b"[]", None, None).is_err() && with_ready(br#"{"spec":1}"#, None, None).is_err());
    }
}
