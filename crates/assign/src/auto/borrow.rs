//! Borrowing addresses from other holders' blocks, unless affinity is strict.

use calipam_model::block::Block;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Versioned;

use super::{Search, Source};
use crate::error::Result;
use crate::event::Event;
use crate::handle::KnownHandle;
use crate::request::{Assigned, Message};
use crate::store::Store;

impl<S: Store> Search<'_, S> {
    /// Takes the addresses that are still missing from any blocks of the pools, including those of other nodes.
    pub(super) async fn borrow(&mut self, assigned: &mut Assigned, handle: &mut KnownHandle) -> Result<()> {
        let Some(mut survey) = self.survey.take() else {
            // A recent search found no free address, so this one has not surveyed the blocks of the pools.
            assigned.note(Message::Exhausted(
                self.pools.iter().map(Pool::stored_cidr).collect(),
            ));
            return Ok(());
        };
        let mut exhausted = Vec::new();
        for (index, pool) in self.pools.iter().enumerate() {
            if assigned.missing() == 0 {
                break;
            }
            let name = &pool.name;
            let blocks = survey.blocks(index);
            self.allocator.trace.record(|| Event::Borrows {
                pool: name.clone(),
                cidr: pool.cidr,
                blocks,
            });
            while assigned.missing() > 0 {
                let Some(block) = survey.next_free(index) else {
                    if survey.unread.front().is_none_or(|place| place.pool != index) {
                        break;
                    }
                    self.read_batch(&mut survey).await?;
                    continue;
                };
                let block = Versioned {
                    value: Block::clone(&block.value),
                    revision: block.revision,
                };
                if !self.take_all(block, assigned, handle, Source::AnyBlock).await? {
                    return Ok(());
                }
            }
            if assigned.missing() > 0 {
                exhausted.push(pool.stored_cidr());
            }
        }
        self.survey = Some(survey);
        if !exhausted.is_empty() {
            assigned.note(Message::Exhausted(exhausted));
        }
        Ok(())
    }
}
