//! Assigns single addresses (facts 3.3, 3.4).

use std::collections::VecDeque;
use std::net::IpAddr;

use calipam_assign::Store;
use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::cidr;
use calipam_model::config::IpamConfig;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Versioned;
use jiff::SignedDuration;

use super::{Calico, Result, Stop, found, key_of, retried};

/// Minimum age at which an empty block can be taken from its owner.
const MIN_RECLAIM_AGE: SignedDuration = SignedDuration::from_mins(1);

/// A request for an address: the host, the handle and the attributes to record.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub host: String,
    pub handle: String,
    pub record: Attribute,
}

/// A request for any address, with what was read first.
struct Search<'c> {
    calico: &'c Calico,
    wanted: &'c Wanted,
    config: IpamConfig,
    pools: Vec<Pool>,
}

impl Calico {
    /// Assigns any address; `None` if there is none.
    pub(crate) async fn auto_assign(&self, wanted: &Wanted) -> Result<Option<IpAddr>> {
        let config = self.config().await?;
        let pools: Vec<Pool> = self.pools().await?.into_iter().filter(Pool::is_enabled).collect();
        let mut own: VecDeque<IpNet> = self.affinities(&wanted.host).await?.into();
        own.retain(|block| pools.iter().any(|pool| pool.cidr.contains(block)));

        let search = Search {
            calico: self,
            wanted,
            config,
            pools,
        };
        loop {
            let block = match search.find_or_claim(&mut own).await {
                Err(Stop::NoFreeBlock) => return search.borrow().await,
                found => found?,
            };
            if let Some(address) = search.take_own(block).await {
                return Ok(Some(address));
            }
        }
    }

    /// Assigns an address from a block; `None` if no address is free. If writing the block fails or gets no answer, the
    /// count in the handle is decremented again.
    async fn take(
        &self,
        block: Versioned<Block>,
        wanted: &Wanted,
        config: &IpamConfig,
    ) -> Result<Option<IpAddr>> {
        let cidr = block.value.cidr();
        let now = self.store.now();
        let mut after = block.value.clone();
        let taken = after.update(|update| {
            update.collect_cooled(now, config.cooldown());
            update.auto_assign(1, &wanted.record, |_| false)
        });
        let Some(ordinal) = taken.first() else {
            return Ok(None);
        };
        self.increment(&wanted.handle, cidr).await?;
        if let Err(stop) = self
            .update_block(Versioned {
                value: after,
                ..block
            })
            .await
        {
            let _ = self.decrement(&wanted.handle, cidr, 1).await;
            return Err(stop);
        }
        Ok(Some(cidr::address_at(cidr, *ordinal)))
    }

    /// Assigns a given address. A lost race leaves a surplus count in the handle.
    pub(crate) async fn assign_ip(&self, wanted: &Wanted, address: IpAddr) -> Result<()> {
        let pools = self.pools().await?;
        let pool = pools
            .iter()
            .filter(|pool| pool.is_enabled())
            .find(|pool| pool.cidr.contains(&address));
        let cidr = pool
            .and_then(|pool| cidr::block_around(address, pool.block_size))
            .ok_or(Stop::Refused)?;
        let ordinal = cidr::ordinal_of(cidr, address).ok_or(Stop::Refused)?;
        let config = self.config().await?;
        retried(async || {
            let block = match found(self.block(cidr).await)? {
                Some(block) => block,
                // Calico treats a block that another host has claimed in the meantime like any other error.
                None => {
                    self.claim(self.pending_affinity(&key_of(&wanted.host, cidr)).await?)
                        .await?
                }
            };
            let mut after = block.value.clone();
            let now = self.store.now();
            let assigned = after.update(|update| {
                update.collect_cooled(now, config.cooldown());
                update.assign(ordinal, &wanted.record)
            });
            assigned.map_err(|_| Stop::Refused)?;
            self.increment(&wanted.handle, cidr).await?;
            let written = self
                .update_block(Versioned {
                    value: after,
                    ..block
                })
                .await;
            if written.as_ref().is_err_and(|stop| *stop != Stop::Conflict) {
                let _ = self.decrement(&wanted.handle, cidr, 1).await;
            }
            written.map(drop)
        })
        .await
    }
}

impl Search<'_> {
    /// Returns a block of the host with a free address. Claims one if there is none.
    async fn find_or_claim(&self, own: &mut VecDeque<IpNet>) -> Result<Versioned<Block>> {
        let Self { calico, wanted, .. } = self;
        while let Some(cidr) = own.pop_front() {
            let key = key_of(&wanted.host, cidr);
            let found = retried(async || calico.block_of(calico.affinity(&key).await?).await).await;
            if let Ok(block) = found
                && self.has_free(&block.value)
            {
                return Ok(block);
            }
        }
        retried(async || {
            let key = key_of(&wanted.host, self.usable_block().await?);
            match retried(async || calico.block_of(calico.pending_affinity(&key).await?).await).await {
                Ok(block) if self.has_free(&block.value) => Ok(block),
                Ok(_) => Err(Stop::Refused),
                // Another host was faster.
                Err(Stop::NotOurs) => Err(Stop::Conflict),
                Err(stop) => Err(stop),
            }
        })
        .await
    }

    fn has_free(&self, block: &Block) -> bool {
        !self.calico.current(block, &self.config).free().is_empty()
    }

    /// Returns the CIDR of a block to use: the first one that has no block yet, or whose block belongs to the host and
    /// has a free address. If there is none, takes an empty block from another host.
    async fn usable_block(&self) -> Result<IpNet> {
        let blocks = self.calico.blocks().await?;
        let now = self.calico.store.now();
        let mut empty = Vec::new();
        for cidr in self.walk() {
            let Some(block) = blocks
                .iter()
                .map(|found| &found.value)
                .find(|block| block.cidr() == cidr)
            else {
                return Ok(cidr);
            };
            if block.host() == Some(&*self.wanted.host) && self.has_free(block) {
                return Ok(cidr);
            }
            if self.calico.current(block, &self.config).is_empty() {
                empty.push(block);
            }
        }
        for block in empty {
            let age = block.claimed_at().map(|claimed| now.duration_since(claimed));
            let is_young = age.is_some_and(|age| age < MIN_RECLAIM_AGE);
            let Some(owner) = block.host().filter(|_| !is_young) else {
                continue;
            };
            let key = key_of(owner, block.cidr());
            if self
                .calico
                .release(&key, &self.config, Some(block.sequence()))
                .await
                .is_ok()
            {
                return Ok(block.cidr());
            }
        }
        Err(Stop::NoFreeBlock)
    }

    /// Assigns an address from a block of the host. Retries after lost races. On any other error, returns `None`:
    /// Calico logs the error and tries another block.
    async fn take_own(&self, block: Versioned<Block>) -> Option<IpAddr> {
        let cidr = block.value.cidr();
        let mut known = Some(block);
        let taken = retried(async || {
            let block = match known.take() {
                Some(block) => block,
                None => self.calico.block(cidr).await?,
            };
            self.calico.take(block, self.wanted, &self.config).await
        });
        taken.await.ok().flatten()
    }

    async fn borrow(&self) -> Result<Option<IpAddr>> {
        let Self {
            calico,
            wanted,
            config,
            ..
        } = self;
        for cidr in self.walk() {
            let take = async || calico.take(calico.block(cidr).await?, wanted, config).await;
            if let Ok(Some(address)) = retried(take).await {
                return Ok(Some(address));
            }
        }
        Ok(None)
    }

    /// The CIDRs of all possible blocks in order, beginning at one that depends on the host.
    fn walk(&self) -> impl Iterator<Item = IpNet> {
        let start = self.wanted.host.bytes().map(usize::from).sum::<usize>();
        self.pools.iter().flat_map(move |pool| {
            let mut places: Vec<IpNet> = pool.cidr.subnets(pool.block_size).into_iter().flatten().collect();
            let start = start % places.len().max(1);
            places.rotate_left(start);
            places
        })
    }
}
