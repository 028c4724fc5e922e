//! The datastore lock: `datastoreReady` of ClusterInformation. While it is false, Calico starts and stops
//! no pods.

use std::time::Duration;

use bytes::Bytes;
use calipam_datastore::write::{Batch, Change, Stored, Swap, Writer};
use calipam_model::config::ClusterInformation;
use calipam_model::key::Key;
use serde_json::Value;

use crate::engine::RETRIES;
use crate::error::RepairError;
use crate::journal::{Journal, LockMark};

/// How often restoring is tried while the datastore cannot be reached, a second apart.
const PATIENCE: usize = 30;

const FIELD: &str = "datastoreReady";

/// The lock, held.
#[derive(Debug)]
pub(crate) struct Held {
    /// What the field was before; `None` where it was absent.
    before: Option<bool>,
    /// The value as it was, and the version that locking made of it. `None` where nothing was written
    /// because the lock was held already.
    replaced: Option<(Stored, calipam_model::snapshot::Revision)>,
}

fn key() -> Key {
    Key::ClusterInformation("default".into())
}

fn failed(action: &'static str) -> impl Fn(&str) -> RepairError {
    move |reason| RepairError::Lock { action, reason: reason.to_owned() }
}

/// Takes the lock. That it is about to be taken, and what the field was, is in the journal before.
pub(crate) async fn take(writer: &Writer, journal: &Journal) -> Result<Held, RepairError> {
    let failed = failed("take");
    for _ in 0..RETRIES {
        let stored = current(writer).await?.ok_or_else(|| failed("there is no ClusterInformation"))?;
        let before = ready(&stored).map_err(|reason| failed(&reason))?;
        if before == Some(false) {
            return Ok(Held { before, replaced: None });
        }
        journal.mark_lock(LockMark::Taking(before)).await?;
        let locked = with_ready(&stored.raw, Some(false)).map_err(|reason| failed(&reason))?;
        if let Some(revision) = swap(writer, &stored, locked).await? {
            return Ok(Held { before, replaced: Some((stored, revision)) });
        }
    }
    Err(failed("others keep changing ClusterInformation"))
}

/// Restores what the field was, also while the datastore is out of reach for a while.
pub(crate) async fn restore(writer: &Writer, journal: &Journal, held: Held) -> Result<(), RepairError> {
    let Some((original, ours)) = held.replaced else { return Ok(()) };
    let mut tries = 0;
    loop {
        let restored = put_back(writer, held.before, Some((&original, &ours))).await;
        match restored {
            Ok(()) => break,
            Err(error) if tries == PATIENCE => return Err(failed("restore")(&error.to_string())),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(journal.mark_lock(LockMark::Restored).await?)
}

/// Puts the field back to `before`. Where ClusterInformation is the very version that locking made, the
/// whole value becomes what it was; else only the field changes, and only if it is still false: somebody
/// who has unlocked the datastore meanwhile meant it.
pub(crate) async fn put_back(
    writer: &Writer,
    before: Option<bool>,
    replaced: Option<(&Stored, &calipam_model::snapshot::Revision)>,
) -> Result<(), RepairError> {
    let failed = failed("restore");
    for _ in 0..RETRIES {
        let Some(stored) = current(writer).await? else { return Ok(()) };
        if ready(&stored).map_err(|reason| failed(&reason))? != Some(false) {
            return Ok(());
        }
        let value = match replaced {
            Some((original, ours)) if *ours == stored.revision => original.raw.clone(),
            _ => with_ready(&stored.raw, before).map_err(|reason| failed(&reason))?,
        };
        if swap(writer, &stored, value).await?.is_some() {
            return Ok(());
        }
    }
    Err(failed("others keep changing ClusterInformation"))
}

async fn current(writer: &Writer) -> Result<Option<Stored>, RepairError> {
    Ok(writer.read(&[key()]).await?.pop().flatten())
}

fn ready(stored: &Stored) -> Result<Option<bool>, String> {
    ClusterInformation::parse(&stored.raw).map(|information| information.datastore_ready)
}

/// The value with the field set, or without it.
fn with_ready(raw: &[u8], ready: Option<bool>) -> Result<Bytes, String> {
    let mut value: Value = serde_json::from_slice(raw).map_err(|e| e.to_string())?;
    let object = value.as_object_mut().ok_or("ClusterInformation is no object")?;
    let spec = object.entry("spec").or_insert_with(|| Value::Object(serde_json::Map::new()));
    let spec = spec.as_object_mut().ok_or("`spec` of ClusterInformation is no object")?;
    match ready {
        Some(ready) => spec.insert(FIELD.into(), ready.into()),
        None => spec.remove(FIELD),
    };
    serde_json::to_vec(&value).map(|json| json.into()).map_err(|e| e.to_string())
}

async fn swap(
    writer: &Writer,
    stored: &Stored,
    value: Bytes,
) -> Result<Option<calipam_model::snapshot::Revision>, RepairError> {
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
