//! Addresses from the blocks of others, where affinity is not strict.

use std::sync::Arc;

use calipam_model::block::Block;
use calipam_model::snapshot::Versioned;

use super::Search;
use super::take::Taken;
use crate::allocator::RETRIES;
use crate::error::Result;
use crate::event::Event;
use crate::handle::Known;
use crate::request::{Assigned, Message};
use crate::store::Store;
use crate::walk::Walk;

/// What came of borrowing from a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Borrowed {
    /// What it had free, which may be nothing.
    Free,
    /// The handle may have no more addresses and has as many as are asked for, wherever those are.
    Held,
}

impl<S: Store> Search<'_, S> {
    /// Takes what is missing from any blocks of the pools.
    pub(super) async fn borrow(&mut self, assigned: &mut Assigned, handle: &mut Known) -> Result<()> {
        let listed = match self.existing.take() {
            Some(listed) => listed,
            None => self.allocator.store().blocks(self.family).await?,
        };
        let mut exhausted = Vec::new();
        for pool in &self.pools {
            if assigned.missing() == 0 {
                break;
            }
            let walk = Walk::new(pool, &self.request.host, self.moment());
            let mut in_pool: Vec<(u128, &Versioned<Arc<Block>>)> = listed
                .sound()
                .filter_map(|block| Some((walk.distance(block.value.cidr())?, block)))
                .collect();
            in_pool.sort_by_key(|(distance, _)| *distance);
            let (name, blocks) = (&pool.name, in_pool.len());
            self.allocator.trace.tell(|| Event::Borrows { pool: name.clone(), cidr: pool.cidr, blocks });
            for (_, block) in in_pool {
                if assigned.missing() > 0 && self.free(&block.value) > 0 {
                    let block =
                        Versioned { value: Block::clone(&block.value), revision: block.revision.clone() };
                    if self.borrow_from(block, assigned, handle).await? == Borrowed::Held {
                        return Ok(());
                    }
                }
            }
            if assigned.missing() > 0 {
                exhausted.push(pool.cidr);
            }
        }
        if !exhausted.is_empty() {
            assigned.note(Message::Exhausted(exhausted));
        }
        Ok(())
    }

    async fn borrow_from(
        &self,
        mut block: Versioned<Block>,
        assigned: &mut Assigned,
        handle: &mut Known,
    ) -> Result<Borrowed> {
        let cidr = block.value.cidr();
        let mut waiting = None;
        for _ in 0..RETRIES {
            match self.take(&block, assigned, false, handle).await {
                Ok(Taken::Done) => return Ok(Borrowed::Free),
                Ok(Taken::Held) => return Ok(Borrowed::Held),
                Ok(Taken::LostRace) => {}
                Ok(Taken::Wait(error)) => waiting = Some(error),
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => {
                    tracing::warn!(block = %cidr, %error, "nothing can be borrowed from a block");
                    return Ok(Borrowed::Free);
                }
            }
            match self.allocator.block(cidr).await? {
                Some(current) => block = current,
                None => return Ok(Borrowed::Free),
            }
        }
        waiting.map_or(Ok(Borrowed::Free), Err)
    }
}
