//! The address counts of handles (facts 3.8).

use calipam_model::IpNet;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use crate::allocator::{Allocator, RETRIES};
use crate::error::{Error, Result, unless_lost};
use crate::family::Family;
use crate::record::Record;
use crate::store::{Entry, Store, StoreError};

/// A handle as it was last read or written. `Some(None)` if it does not exist, `None` if it must be read.
pub(crate) type Known = Option<Option<Versioned<Handle>>>;

pub(crate) enum Increment {
    Done,
    /// The handle is at its address limit in the family.
    Full,
}

impl<S: Store> Allocator<S> {
    /// Counts `by` more addresses of the handle in `block`. `max` is the handle's address limit in the block's family;
    /// 0 for no limit. If `known` contains the handle, it is not read again. `known` is updated.
    ///
    /// # Errors
    /// If other clients keep writing first, or the datastore gives no answer. In the latter case, the increment may
    /// have been made. The handle then counts too many addresses, which is harmless, but it never counts too few.
    pub(crate) async fn increment(
        &self,
        id: &str,
        block: IpNet,
        by: u32,
        max: u32,
        known: &mut Known,
    ) -> Result<Increment> {
        for _ in 0..RETRIES {
            let stored = self.latest(id, known).await?;
            let mut handle = stored.as_ref().map_or_else(|| Handle::new(id), |stored| stored.value.clone());
            if max > 0 && total(&handle, Family::of(block)) + i64::from(by) > i64::from(max) {
                *known = Some(stored);
                return Ok(Increment::Full);
            }

            handle.set_count(block, handle.count(block).saturating_add(by.into()));
            let record = Record::Handle(handle.clone());
            let written = match &stored {
                Some(stored) => self.store().update(&record, &stored.revision).await,
                None => self.store().create(&record).await,
            };
            if let Some(revision) = unless_lost(written)? {
                *known = Some(Some(Versioned { value: handle, revision }));
                return Ok(Increment::Done);
            }
        }
        Err(Error::TooManyConflicts)
    }

    /// Counts `by` fewer addresses of the handle in `block`, and deletes the handle once it counts none. Changes
    /// nothing if the handle counts fewer than `by` addresses in the block, or does not exist.
    pub(crate) async fn decrement(&self, id: &str, block: IpNet, by: u32, known: &mut Known) -> Result<()> {
        for _ in 0..RETRIES {
            let Some(stored) = self.latest(id, known).await? else { return Ok(()) };
            let count = stored.value.count(block);
            if count < i64::from(by) {
                return Ok(());
            }
            if self.set_count(stored, block, count - i64::from(by), known).await? {
                return Ok(());
            }
        }
        Err(Error::TooManyConflicts)
    }

    /// Takes the handle out of `known`, or reads it if `known` does not contain it.
    pub(crate) async fn latest(&self, id: &str, known: &mut Known) -> Result<Option<Versioned<Handle>>> {
        match known.take() {
            Some(stored) => Ok(stored),
            None => self.get(Key::Handle(id.to_owned())).await,
        }
    }

    /// Writes a new count for `block`, or deletes the handle if no count remains; false if another client wrote first.
    pub(crate) async fn set_count(
        &self,
        stored: Versioned<Handle>,
        block: IpNet,
        count: i64,
        known: &mut Known,
    ) -> Result<bool> {
        let mut handle = stored.value.clone();
        handle.set_count(block, count);
        let written = if handle.blocks().next().is_none() {
            let entry = Entry { record: Record::Handle(stored.value), revision: stored.revision };
            self.store().delete(&entry).await.map(|()| None)
        } else {
            let written = self.store().update(&Record::Handle(handle.clone()), &stored.revision).await;
            written.map(|revision| Some(Versioned { value: handle, revision }))
        };
        match written {
            Ok(stored) => {
                *known = Some(stored);
                Ok(true)
            }
            // The handle is gone, and so are its counts.
            Err(StoreError::NotFound(_)) => {
                *known = Some(None);
                Ok(true)
            }
            Err(error) if error.is_lost_race() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The number of addresses of a family that a handle counts.
fn total(handle: &Handle, family: Family) -> i64 {
    let counts = handle.blocks().filter(|(block, _)| Family::of(*block) == family);
    counts.map(|(_, count)| count).fold(0, i64::saturating_add)
}
