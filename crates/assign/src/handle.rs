//! The address counts of handles (facts 3.8).

use std::mem::take;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::handle::{Handle, clean_id};
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use crate::allocator::{Allocator, RETRIES};
use crate::error::{Error, Result, unless_lost};
use crate::family::Family;
use crate::record::Record;
use crate::store::{Entry, Store, StoreError};

/// A handle as it was last read or written.
#[derive(Debug, Default)]
pub(crate) enum KnownHandle {
    /// It must be read.
    #[default]
    Unread,
    /// It does not exist.
    Missing,
    Stored(Versioned<Handle>),
}

impl From<Option<Versioned<Handle>>> for KnownHandle {
    fn from(stored: Option<Versioned<Handle>>) -> Self {
        match stored {
            Some(handle) => Self::Stored(handle),
            None => Self::Missing,
        }
    }
}

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
        known: &mut KnownHandle,
    ) -> Result<Increment> {
        for _ in 0..RETRIES {
            let stored = self.latest(id, known).await?;
            let mut handle = stored
                .as_ref()
                .map_or_else(|| Handle::new(id), |stored| stored.value.clone());
            let counted = total(&handle, Family::of(block)).saturating_add(by.into());
            if max > 0 && counted > i64::from(max) {
                *known = stored.into();
                return Ok(Increment::Full);
            }

            handle.set_count(block, handle.count(block).saturating_add(by.into()));
            let record = Record::Handle(handle.clone());
            let written = match &stored {
                Some(stored) => self.store().update(&record, &stored.revision).await,
                None => self.store().create(&record).await,
            };
            if let Some(revision) = unless_lost(written)? {
                *known = KnownHandle::Stored(Versioned {
                    value: handle,
                    revision,
                });
                return Ok(Increment::Done);
            }
        }
        Err(Error::TooManyConflicts)
    }

    /// Counts `by` fewer addresses of the handle in `block`, and deletes the handle once it counts none. `known` is the
    /// handle as it was before the addresses left the block, or as the increment wrote it. Changes nothing if it counts
    /// fewer than `by` addresses in the block, or does not exist.
    ///
    /// If another client has written the handle since, it may have removed these counts already, and those that the
    /// handle has now may be of others. In this case, the block decides ([`Self::recount`]).
    pub(crate) async fn decrement(
        &self,
        id: &str,
        block: IpNet,
        by: u32,
        known: &mut KnownHandle,
    ) -> Result<()> {
        match take(known) {
            // Nothing is known about its counts, so the block decides.
            KnownHandle::Unread => {}
            KnownHandle::Missing => return Ok(()),
            KnownHandle::Stored(stored) => {
                let count = stored.value.count(block);
                if count < i64::from(by) {
                    return Ok(());
                }
                let lower = count - i64::from(by);
                if self.set_count(stored, block, lower, known).await? {
                    return Ok(());
                }
            }
        }
        self.recount(id, block, known).await.map(drop)
    }

    /// Lowers a handle's count for a block to the number of addresses that the block records under the handle. Returns
    /// this number, or 0 if the handle does not count the block.
    ///
    /// Before a count is lowered, the block is written unchanged. An allocation that has incremented the handle, but
    /// has not written the block yet, then has to start again.
    pub(crate) async fn recount(&self, id: &str, cidr: IpNet, known: &mut KnownHandle) -> Result<usize> {
        for _ in 0..RETRIES {
            let Some(stored) = self.latest(id, known).await? else {
                *known = KnownHandle::Missing;
                return Ok(0);
            };
            let count = stored.value.count(cidr);
            if count == 0 {
                *known = KnownHandle::Stored(stored);
                return Ok(0);
            }

            let block = self.block(cidr).await?;
            let recorded = block
                .as_ref()
                .map_or(0, |block| ordinals_of(&block.value, id).len());
            if recorded > 0 && count <= recorded as i64 {
                *known = KnownHandle::Stored(stored);
                return Ok(recorded);
            }
            if let Some(mut block) = block {
                block.value.update(|update| update.touch());
                let record = Record::Block(Arc::new(block.value));
                if unless_lost(self.store().update(&record, &block.revision).await)?.is_none() {
                    *known = KnownHandle::Stored(stored);
                    continue;
                }
            }
            if self.set_count(stored, cidr, recorded as i64, known).await? {
                return Ok(recorded);
            }
        }
        Err(Error::TooManyConflicts)
    }

    /// Decrements a handle. A failure is only logged, since a handle that counts too many addresses is harmless.
    pub(crate) async fn decrement_or_warn(&self, id: &str, block: IpNet, by: u32, known: &mut KnownHandle) {
        if let Err(error) = self.decrement(id, block, by, known).await {
            tracing::warn!(handle = id, %block, %error, "the handle counts more addresses than it has");
        }
    }

    /// Takes the handle out of `known`, or reads it if `known` does not contain it.
    pub(crate) async fn latest(
        &self,
        id: &str,
        known: &mut KnownHandle,
    ) -> Result<Option<Versioned<Handle>>> {
        match take(known) {
            KnownHandle::Unread => self.get(Key::Handle(id.to_owned())).await,
            KnownHandle::Missing => Ok(None),
            KnownHandle::Stored(stored) => Ok(Some(stored)),
        }
    }

    /// Writes a new count for `block`, or deletes the handle if no count remains, and notes the result in `known`.
    /// Returns false if another client wrote first.
    async fn set_count(
        &self,
        stored: Versioned<Handle>,
        block: IpNet,
        count: i64,
        known: &mut KnownHandle,
    ) -> Result<bool> {
        let mut handle = stored.value.clone();
        handle.set_count(block, count);
        let written = if handle.blocks().next().is_none() {
            let entry = Entry {
                record: Record::Handle(stored.value),
                revision: stored.revision,
            };
            let deleted = self.store().delete(&entry).await;
            deleted.map(|()| KnownHandle::Missing)
        } else {
            let record = Record::Handle(handle.clone());
            let updated = self.store().update(&record, &stored.revision).await;
            updated.map(|revision| {
                KnownHandle::Stored(Versioned {
                    value: handle,
                    revision,
                })
            })
        };
        match written {
            Ok(handle_after) => {
                *known = handle_after;
                Ok(true)
            }
            // The handle is gone, and so are its counts.
            Err(StoreError::NotFound(_)) => {
                *known = KnownHandle::Missing;
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

/// The ordinals that are recorded under a handle. Ignores the part of a recorded ID after a carriage return.
pub(crate) fn ordinals_of(block: &Block, id: &str) -> Vec<u32> {
    block
        .handles()
        .filter(|(_, recorded)| clean_id(&recorded.to_string()) == id)
        .map(|(ordinal, _)| ordinal)
        .collect()
}
