//! Taking addresses from a block (facts 3.4.2).

use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::cidr;
use calipam_model::snapshot::Versioned;

use super::Search;
use crate::allocator::Allocator;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::family::Family;
use crate::handle::{Increment, Known};
use crate::record::Record;
use crate::request::Assigned;
use crate::store::Store;

/// What became of an attempt to take addresses from a block.
pub(super) enum Taken {
    /// There are as many more as the block had.
    Done,
    /// The handle may have no more addresses; those that it has were taken.
    Held,
    /// Another client was faster.
    LostRace,
    /// The handle has as many addresses as it may, but not those that were asked for. What to say if it stays so.
    Wait(Error),
}

/// What became of a write without an answer.
pub(crate) enum Outcome {
    Made,
    NotMade,
    /// It may still be under way.
    Unknown,
}

impl<S: Store> Search<'_, S> {
    /// Takes what is missing from a block, as far as it goes. `strict` is for blocks that must be the host's.
    pub(super) async fn take(
        &self,
        block: &Versioned<Block>,
        assigned: &mut Assigned,
        strict: bool,
        handle: &mut Known,
    ) -> Result<Taken> {
        let (cidr, count) = (block.value.cidr(), assigned.missing());
        if strict {
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
            return Ok(Taken::Done);
        }

        let id = self.request.handle.as_deref();
        if let Some(id) = id {
            // What was asked for, as Calico counts; the block may have had less.
            let max = self.request.max_per_handle;
            match self.allocator.increment(id, cidr, count, max, handle).await? {
                Increment::Done => {}
                Increment::Full => return self.take_held(id, assigned).await,
            }
        }
        let made = self.allocator.write_assignment(block, after, &ordinals, &record).await;
        if !matches!(made, Ok(true) | Err(_))
            && let Some(id) = id
        {
            self.allocator.decrement_or_warn(id, cidr, count, handle).await;
        }
        if !made? {
            return Ok(Taken::LostRace);
        }
        let address = |ordinal: &u32| cidr::address_at(cidr, *ordinal);
        self.allocator.trace.record(|| Event::Assigned {
            block: cidr,
            owner: block.value.owner().cloned(),
            addresses: ordinals.iter().map(address).collect(),
        });
        let net = |ordinal: &u32| IpNet::new(address(ordinal), cidr.prefix_len()).unwrap_or(cidr);
        assigned.addresses.extend(ordinals.iter().map(net));
        Ok(Taken::Done)
    }

    /// The addresses that a handle has which may have no more.
    async fn take_held(&self, id: &str, assigned: &mut Assigned) -> Result<Taken> {
        let held = match self.allocator.ips_by_handle(id).await {
            Ok(held) => held,
            Err(Error::NoHandle(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        let of_family: Vec<IpNet> = held
            .into_iter()
            .filter(|address| Family::of_address(*address) == self.family)
            .map(IpNet::from)
            .collect();
        let (existing, required) = (of_family.len(), assigned.requested);
        if existing < required as usize {
            return Ok(Taken::Wait(Error::InProgress { handle: id.to_owned(), existing, required }));
        }
        assigned.addresses.extend(of_family.into_iter().take(required as usize));
        Ok(Taken::Held)
    }
}

/// The owner record of an assignment.
pub(crate) fn attribute(
    handle: Option<&str>,
    attributes: Option<&std::collections::BTreeMap<String, String>>,
) -> Attribute {
    Attribute { handle: handle.map(str::to_owned), owner: attributes.cloned(), ..Attribute::default() }
}

/// With strict affinity, addresses come from blocks of the host alone.
pub(crate) fn check_owner(block: &Block, owner: &calipam_model::block::BlockOwner) -> Result<()> {
    match block.owner() {
        None => Err(Error::OwnerlessBlock(block.cidr())),
        Some(found) if found != owner => Err(Error::ForeignBlock(block.cidr())),
        Some(_) => Ok(()),
    }
}

impl<S: Store> Allocator<S> {
    /// Writes a block in which `ordinals` were assigned to `record`; false if another client was faster.
    ///
    /// # Errors
    /// If the datastore gives no answer and the assignment may have been made or may still be made. Then the handle
    /// must go on counting it.
    pub(crate) async fn write_assignment(
        &self,
        before: &Versioned<Block>,
        after: Block,
        ordinals: &[u32],
        record: &Attribute,
    ) -> Result<bool> {
        let written = self.store().update(&Record::Block(Arc::new(after)), &before.revision).await;
        match written {
            Ok(_) => Ok(true),
            Err(error) if error.is_lost_race() => Ok(false),
            Err(error) => match self.outcome(before, ordinals, record).await {
                Outcome::Made => Ok(true),
                Outcome::NotMade => Ok(false),
                Outcome::Unknown => Err(error.into()),
            },
        }
    }

    /// Whether an assignment was made whose answer was lost.
    async fn outcome(&self, before: &Versioned<Block>, ordinals: &[u32], record: &Attribute) -> Outcome {
        let Ok(now) = self.block(before.value.cidr()).await else { return Outcome::Unknown };
        let Some(now) = now else { return Outcome::NotMade };
        if now.revision == before.revision {
            return Outcome::Unknown;
        }
        // The number of the block that was read: one client alone can have written it there.
        let is_made = ordinals.iter().all(|ordinal| {
            now.value.allocation(*ordinal).is_some_and(|found| {
                let of = found.attribute.to_attribute();
                found.sequence == before.value.sequence()
                    && of.handle == record.handle
                    && of.owner.unwrap_or_default() == record.owner.clone().unwrap_or_default()
            })
        });
        match (is_made, &record.handle) {
            (true, Some(_)) => Outcome::Made,
            // Records without a handle do not tell one client from another.
            (true, None) => Outcome::Unknown,
            (false, _) => Outcome::NotMade,
        }
    }

    /// Takes an increment back. A handle that counts too much is harmless, so that a failure is only told.
    pub(crate) async fn decrement_or_warn(&self, id: &str, block: IpNet, by: u32, known: &mut Known) {
        if let Err(error) = self.decrement(id, block, by, known).await {
            tracing::warn!(handle = id, %block, %error, "the handle counts more addresses than it has");
        }
    }
}
