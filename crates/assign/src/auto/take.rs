//! Taking addresses from a block (facts 3.4.2).

use std::collections::BTreeMap;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::cidr;
use calipam_model::snapshot::Versioned;

use super::Search;
use crate::allocator::Allocator;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::handle::{Increment, KnownHandle};
use crate::record::Record;
use crate::request::Assigned;
use crate::store::Store;

/// The outcome of taking addresses from a block.
pub(super) enum TakeOutcome {
    /// All missing addresses were taken, or as many as were free.
    Done,
    /// The handle is at its limit. The addresses that it already had were added to the result.
    HandleFull,
    /// Another client wrote first.
    LostRace,
    /// The handle is at its limit but has fewer addresses than requested. Contains the error to return if this lasts.
    Wait(Error),
}

/// The outcome of a write whose answer was lost.
enum WriteOutcome {
    Made,
    NotMade,
    /// The write may still be under way, or cannot be distinguished from another client's write.
    Unknown,
}

impl<S: Store> Search<'_, S> {
    /// Takes as many of the missing addresses from a block as are free.
    pub(super) async fn take(
        &self,
        block: &Versioned<Block>,
        assigned: &mut Assigned,
        handle: &mut KnownHandle,
    ) -> Result<TakeOutcome> {
        let cidr = block.value.cidr();
        let count = assigned.missing();
        if !self.config.may_borrow() {
            check_owner(&block.value, &self.holder(cidr).owner())?;
        }

        let record = attribute(self.request.handle.as_deref(), self.request.attributes.as_ref());
        let now = self.allocator.now();
        let mut after = block.value.clone();
        let ordinals = after.update(|update| {
            update.collect_cooled(now, self.config.cooldown());
            update.auto_assign(count as usize, &record, |address| self.reserved.contains(address))
        });
        if ordinals.is_empty() {
            return Ok(TakeOutcome::Done);
        }

        let id = self.request.handle.as_deref();
        if let Some(id) = id {
            // Calico counts all missing addresses in the handle, even if the block has fewer free ones.
            let max = self.request.max_per_handle;
            match self.allocator.increment(id, cidr, count, max, handle).await? {
                Increment::Done => {}
                Increment::Full => return self.take_existing(id, assigned).await,
            }
        }
        let is_made = self
            .allocator
            .write_assignment(block, after, &ordinals, &record)
            .await?;
        if !is_made {
            if let Some(id) = id {
                self.allocator.decrement_or_warn(id, cidr, count, handle).await;
            }
            return Ok(TakeOutcome::LostRace);
        }

        let address = |ordinal: &u32| cidr::address_at(cidr, *ordinal);
        self.allocator.trace.record(|| Event::Assigned {
            block: cidr,
            owner: block.value.owner().cloned(),
            addresses: ordinals.iter().map(address).collect(),
        });
        let net = |ordinal: &u32| IpNet::new(address(ordinal), cidr.prefix_len()).unwrap_or(cidr);
        assigned.addresses.extend(ordinals.iter().map(net));
        Ok(TakeOutcome::Done)
    }

    /// Adds to the result the addresses that a handle at its limit already has. If it has fewer than were requested,
    /// another call is assigning them just now: the outcome is then to wait.
    async fn take_existing(&self, id: &str, assigned: &mut Assigned) -> Result<TakeOutcome> {
        let of_family = self.allocator.held_by(id, self.family).await?;
        let existing = of_family.len();
        let required = assigned.requested;
        if existing < required as usize {
            return Ok(TakeOutcome::Wait(Error::InProgress {
                handle: id.to_owned(),
                existing,
                required,
            }));
        }
        assigned
            .addresses
            .extend(of_family.into_iter().map(IpNet::from).take(required as usize));
        Ok(TakeOutcome::HandleFull)
    }
}

/// The owner record of an assignment.
pub(crate) fn attribute(handle: Option<&str>, attributes: Option<&BTreeMap<String, String>>) -> Attribute {
    Attribute {
        handle: handle.map(str::to_owned),
        owner: attributes.cloned(),
        ..Attribute::default()
    }
}

/// Fails unless `owner` owns the block, as strict affinity requires.
pub(crate) fn check_owner(block: &Block, owner: &BlockOwner) -> Result<()> {
    match block.owner() {
        None => Err(Error::OwnerlessBlock(block.cidr())),
        Some(found) if found != owner => Err(Error::ForeignBlock(block.cidr())),
        Some(_) => Ok(()),
    }
}

impl<S: Store> Allocator<S> {
    /// Writes a block in which `ordinals` have been assigned with the owner record `record`; false if another client
    /// wrote first.
    ///
    /// # Errors
    /// If the datastore gives no answer. The assignment may have been made or may still be made, so the handle must
    /// keep counting it.
    pub(crate) async fn write_assignment(
        &self,
        before: &Versioned<Block>,
        after: Block,
        ordinals: &[u32],
        record: &Attribute,
    ) -> Result<bool> {
        let written = self
            .store()
            .update(&Record::Block(Arc::new(after)), &before.revision)
            .await;
        match written {
            Ok(_) => Ok(true),
            Err(error) if error.is_lost_race() => Ok(false),
            Err(error) => match self.outcome(before, ordinals, record).await {
                WriteOutcome::Made => Ok(true),
                WriteOutcome::NotMade => Ok(false),
                WriteOutcome::Unknown => Err(error.into()),
            },
        }
    }

    /// Finds out whether an assignment was made although the answer to the write was lost, by reading the block again.
    async fn outcome(&self, before: &Versioned<Block>, ordinals: &[u32], record: &Attribute) -> WriteOutcome {
        let Ok(now) = self.block(before.value.cidr()).await else {
            return WriteOutcome::Unknown;
        };
        let Some(now) = now else {
            return WriteOutcome::NotMade;
        };
        if now.revision == before.revision {
            return WriteOutcome::Unknown;
        }

        // Only one client can have assigned addresses at the sequence number that was read.
        let sequence = before.value.sequence();
        for ordinal in ordinals {
            if !is_assigned(&now.value, *ordinal, sequence, record) {
                return WriteOutcome::NotMade;
            }
        }
        if record.handle.is_some() {
            WriteOutcome::Made
        } else {
            // A record without a handle does not show which client wrote it.
            WriteOutcome::Unknown
        }
    }
}

/// True if an address of the block was assigned at this sequence number, with this owner record.
fn is_assigned(block: &Block, ordinal: u32, sequence: u64, record: &Attribute) -> bool {
    let Some(allocation) = block.allocation(ordinal) else {
        return false;
    };
    let stored = allocation.attribute.to_attribute();
    allocation.sequence == sequence
        && stored.handle == record.handle
        && stored.owner.unwrap_or_default() == record.owner.clone().unwrap_or_default()
}
