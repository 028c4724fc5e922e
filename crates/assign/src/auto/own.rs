//! The blocks that a host has.

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use super::Search;
use crate::allocator::{self, RETRIES};
use crate::error::{Error, Result};
use crate::event::{Event, OwnBlock};
use crate::store::{Query, Store};

/// Blocks that are read in one round trip.
const AHEAD: usize = 4;

impl<S: Store> Search<'_, S> {
    /// The next block of the host that has a free address.
    pub(super) async fn own_block(&mut self) -> Result<Option<Versioned<Block>>> {
        while let Some(affinity) = self.remaining.pop_front() {
            let key = affinity.value.key.clone();
            let trace = &self.allocator.trace;
            let looked_at = |found: OwnBlock| trace.tell(|| Event::OwnBlock { key: key.clone(), found });
            if let Some(reserved) = self.reserved.covering(key.cidr) {
                looked_at(OwnBlock::Reserved(reserved));
                continue;
            }

            let mut first = Some((affinity, self.look_ahead(key.cidr).await?));
            for _ in 0..RETRIES {
                let (affinity, block) = match first.take() {
                    Some((affinity, block)) => (Ok(Some(affinity)), block),
                    None => match self.allocator.affinity_and_block(&key).await {
                        Ok((affinity, block)) => (Ok(affinity), Ok(block)),
                        Err(error) => (Err(error), Ok(None)),
                    },
                };
                let loaded = match (affinity, block) {
                    (Ok(Some(affinity)), Ok(block)) => {
                        self.allocator.load_block(affinity, block, self.windows).await
                    }
                    (Ok(None), _) => {
                        looked_at(OwnBlock::Gone);
                        break;
                    }
                    (Err(error), _) | (_, Err(error)) => Err(error),
                };
                match loaded {
                    Ok(block) => match self.free(&block.value) {
                        0 => {
                            trace.tell(|| Event::OwnBlock {
                                key: key.clone(),
                                found: self.full(&block.value),
                            });
                            break;
                        }
                        free => {
                            looked_at(OwnBlock::Free(free));
                            return Ok(Some(block));
                        }
                    },
                    Err(error) if error.is_lost_race() => {}
                    Err(error) if error.is_unavailable() => return Err(error),
                    Err(Error::StaleAffinity(_)) => {
                        looked_at(OwnBlock::Stale);
                        break;
                    }
                    Err(error) => {
                        trace.tell(|| Event::OwnBlock {
                            key: key.clone(),
                            found: OwnBlock::Unusable(error.to_string()),
                        });
                        tracing::warn!(%key, %error, "a block of the node cannot be used");
                        break;
                    }
                }
            }
        }
        Ok(None)
    }

    /// What keeps the addresses of a block that has none to give.
    fn full(&self, block: &Block) -> OwnBlock {
        let cooling = block.allocations().filter(|allocation| allocation.attribute.is_cooling()).count();
        OwnBlock::Full { reserved: block.free().len() as u32, cooling: cooling as u32 }
    }

    /// A block of the host, read together with those that come next.
    async fn look_ahead(&mut self, cidr: IpNet) -> Result<Result<Option<Versioned<Block>>>> {
        if let Some(found) = self.ahead.remove(&cidr) {
            return Ok(found);
        }
        let next = self.remaining.iter().map(|affinity| affinity.value.key.cidr).take(AHEAD - 1);
        let cidrs: Vec<IpNet> = std::iter::once(cidr).chain(next).collect();
        let queries: Vec<Query> = cidrs.iter().map(|cidr| Query::Get(Key::Block(*cidr))).collect();
        let answers = self.allocator.store().read(&queries).await?;
        self.ahead = cidrs.into_iter().zip(answers.into_iter().map(allocator::block)).collect();
        Ok(self.ahead.remove(&cidr).unwrap_or(Ok(None)))
    }
}
