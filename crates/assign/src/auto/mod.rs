//! Automatic assignment (facts 3.4): own blocks first, then a new one, then those of others.

mod borrow;
mod claim;
mod own;
mod take;

pub(crate) use self::take::{attribute, check_owner};

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityType};
use calipam_model::block::Block;
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::Versioned;

use self::take::Taken;
use crate::affinity::GiveUp;
use crate::allocator::{self, Allocator, RETRIES, collected};
use crate::beyond::{Further, may_borrow};
use crate::error::{Error, Partly, Result};
use crate::event::Event;
use crate::family::Family;
use crate::handle::Known;
use crate::listed::Listed;
use crate::pools::{self, Asking, NodeSelector, Serving};
use crate::record::Record;
use crate::request::{Assigned, AutoAssign, AutoAssigned, Message};
use crate::reserved::Reserved;
use crate::store::{Entry, Query, Store};

impl<S: Store> Allocator<S> {
    /// Assigns any addresses. Fewer than requested are no error; why there are not more is in the messages.
    ///
    /// # Errors
    /// What was assigned before is in the error and stays assigned.
    pub async fn auto_assign(
        &self,
        request: &AutoAssign,
    ) -> std::result::Result<AutoAssigned, Box<Partly<AutoAssigned>>> {
        let mut done = AutoAssigned::default();
        match self.assign_families(request, &mut done).await {
            Ok(()) => Ok(done),
            Err(error) => Err(Box::new(Partly { done, error })),
        }
    }

    async fn assign_families(&self, request: &AutoAssign, done: &mut AutoAssigned) -> Result<()> {
        let families =
            [(Family::V4, request.v4, &request.pools_v4), (Family::V6, request.v6, &request.pools_v6)];
        let mut look: Option<Look> = None;
        for (family, count, pools) in families.into_iter().filter(|(_, count, _)| *count > 0) {
            if pools.iter().any(|cidr| Family::of(*cidr) != family) {
                return Err(Error::WrongFamily(family));
            }
            let intended_use = request.intended_use.ok_or(Error::UseRequired)?;
            if look.is_none() {
                look = Some(self.look(request, intended_use).await?);
            }
            let Some(look) = &mut look else { continue };

            self.trace.tell(|| Event::Family { family, wanted: count });
            let search = self.search(request, look, family, intended_use, pools).await?;
            let assigned = match family {
                Family::V4 => &mut done.v4,
                Family::V6 => &mut done.v6,
            };
            let windows = reserves_for_windows(request, family);
            let assigned = assigned.insert(Assigned::new(family, count, windows));
            search.run(assigned, &mut look.handle).await?;
        }
        Ok(())
    }

    /// Everything that is known without knowing the blocks, in one round trip for both families.
    async fn look(&self, request: &AutoAssign, intended_use: PoolUse) -> Result<Look> {
        let kind = holder_kind(Some(intended_use));
        let mut queries = vec![Query::Get(Key::IpamConfig), Query::Reservations, Query::Pools];
        let wanted = [(Family::V4, request.v4), (Family::V6, request.v6)];
        for (family, _) in wanted.into_iter().filter(|(_, count)| *count > 0) {
            queries.push(Query::Affinities { kind: kind.clone(), holder: request.host.clone(), family });
        }
        let node_at = (kind == AffinityType::Host).then_some(queries.len());
        if node_at.is_some() {
            queries.push(Query::Get(Key::Node(request.host.clone())));
        }
        let handle_at = request.handle.as_ref().map(|_| queries.len());
        queries.extend(request.handle.iter().map(|id| Query::Get(Key::Handle(id.clone()))));

        let mut answers = self.store().read(&queries).await?;
        let mut take = |at: usize| answers.get_mut(at).map(std::mem::take).unwrap_or_default();
        let config = allocator::config(take(0))?;
        if request.windows && !config.strict_affinity {
            return Err(Error::WindowsNeedsStrictAffinity);
        }
        let node = match node_at {
            Some(at) => allocator::node(take(at))?.ok_or_else(|| Error::NoNode(request.host.clone()))?,
            None => Node::default(),
        };
        let reserved = reserved(take(1));
        let pools = pools::pools(take(2));
        let handle = handle_at.map(|at| allocator::handle(take(at))).transpose()?;
        let affinities = (3..node_at.or(handle_at).unwrap_or(queries.len())).flat_map(take);
        Ok(Look { kind, config, reserved, pools, node, affinities: affinities_of(affinities), handle })
    }

    /// A search in the pools that serve the request. Empty blocks of pools that do not select the node any more are
    /// given up by the way.
    async fn search<'r>(
        &'r self,
        request: &'r AutoAssign,
        look: &Look,
        family: Family,
        intended_use: PoolUse,
        requested: &[IpNet],
    ) -> Result<Search<'r, S>> {
        let windows = reserves_for_windows(request, family);
        let asking = Asking {
            family,
            host: &request.host,
            node_labels: &look.node.labels,
            namespace_labels: request.namespace_labels.as_ref(),
            requested,
            intended_use,
            windows,
        };
        let serving = asking.serving(&look.pools, &self.trace)?;
        let own = look.affinities.iter().filter(|affinity| Family::of(affinity.value.key.cidr) == family);
        let lies_in = |pools: &[Pool], key: &AffinityKey| pools::pool_of(pools, key.cidr.addr()).is_some();
        let (usable, others): (Vec<_>, Vec<_>) =
            own.cloned().partition(|affinity| lies_in(&serving.usable, &affinity.value.key));
        for affinity in others.iter().filter(|affinity| !lies_in(&serving.selecting, &affinity.value.key)) {
            self.give_up_unselected(&affinity.value.key, look, &look.node.labels).await?;
        }

        let limit = block_limit(&look.config, request.max_blocks_per_host);
        let Serving { usable: pools, .. } = serving;
        Ok(Search {
            allocator: self,
            request,
            kind: look.kind.clone(),
            config: look.config,
            reserved: look.reserved.clone(),
            family,
            windows,
            limit,
            owned: usable.len() as u32,
            pools,
            remaining: usable.into(),
            ahead: HashMap::new(),
            existing: None,
        })
    }

    /// Gives up a block whose pool does not select the node any more, where the block is empty.
    async fn give_up_unselected(
        &self,
        key: &AffinityKey,
        look: &Look,
        labels: &BTreeMap<String, String>,
    ) -> Result<()> {
        let Some(pool) = pools::enabled_pool_of(&look.pools, key.cidr.addr()) else { return Ok(()) };
        if !NodeSelector::of(pool).is_ok_and(|selector| !selector.selects(labels)) {
            return Ok(());
        }
        for _ in 0..RETRIES {
            let conditions = GiveUp { must_be_empty: true, sequence: None };
            match self.give_up(key, &look.config, conditions).await {
                Ok(()) => {
                    self.trace.tell(|| Event::GaveUp(key.clone()));
                    break;
                }
                Err(error) if error.is_lost_race() => {}
                Err(error) if error.is_unavailable() => return Err(error),
                // In use, or another's: it stays.
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// Whether new blocks of a family reserve addresses for Windows, which IPv4 blocks alone do.
fn reserves_for_windows(request: &AutoAssign, family: Family) -> bool {
    request.windows && family == Family::V4
}

/// The kind of holder that owns blocks for a use.
pub(crate) fn holder_kind(intended_use: Option<PoolUse>) -> AffinityType {
    match intended_use {
        Some(PoolUse::LoadBalancer) => AffinityType::Virtual,
        _ => AffinityType::Host,
    }
}

/// What all reservations of an answer reserve.
pub(crate) fn reserved(found: Vec<Entry>) -> Reserved {
    let reservations: Vec<_> = found
        .into_iter()
        .filter_map(|entry| match entry.record {
            Record::Reservation(reservation) => Some(reservation),
            _ => None,
        })
        .collect();
    Reserved::new(&reservations)
}

/// The affinities of answers, in the order of the paths of etcd, whatever the datastore.
pub(crate) fn affinities_of(found: impl Iterator<Item = Entry>) -> Vec<Versioned<Affinity>> {
    let affinity = |entry: Entry| match entry.record {
        Record::Affinity(value) => Some(Versioned { value, revision: entry.revision }),
        _ => None,
    };
    let mut affinities: Vec<Versioned<Affinity>> = found.filter_map(affinity).collect();
    affinities.sort_by_cached_key(|affinity| Key::Affinity(affinity.value.key.clone()).to_string());
    affinities
}

/// Most blocks that a host may hold: the lower limit of configuration and request, or Calico's default.
fn block_limit(config: &IpamConfig, of_request: u32) -> u32 {
    match (config.max_blocks_per_host > 0, of_request) {
        (_, 0) => config.block_limit(),
        (true, of_request) => of_request.min(config.block_limit()),
        (false, of_request) => of_request,
    }
}

/// What a request looks at first.
struct Look {
    kind: AffinityType,
    config: IpamConfig,
    reserved: Reserved,
    pools: Vec<Pool>,
    node: Node,
    affinities: Vec<Versioned<Affinity>>,
    handle: Known,
}

/// The search for addresses of one family.
struct Search<'r, S> {
    allocator: &'r Allocator<S>,
    request: &'r AutoAssign,
    kind: AffinityType,
    config: IpamConfig,
    reserved: Reserved,
    family: Family,
    /// New blocks reserve addresses for Windows.
    windows: bool,
    /// The pools to take addresses from.
    pools: Vec<Pool>,
    /// Most blocks that the host may hold.
    limit: u32,
    /// Blocks of these pools that it holds.
    owned: u32,
    /// Blocks of the host that were not looked at yet.
    remaining: VecDeque<Versioned<Affinity>>,
    /// Blocks that were read ahead.
    ahead: HashMap<IpNet, Result<Option<Versioned<Block>>>>,
    /// All blocks of the family, as they were listed when there was none to claim.
    existing: Option<Arc<dyn Listed>>,
}

impl<S: Store> Search<'_, S> {
    async fn run(mut self, assigned: &mut Assigned, handle: &mut Known) -> Result<()> {
        while assigned.missing() > 0 {
            let Some(block) = self.find_or_claim(assigned).await? else { break };
            self.take_all(block, assigned, handle).await?;
        }
        if assigned.missing() > 0 {
            match may_borrow(&self.config) {
                true => self.borrow(assigned, handle).await?,
                false => self.allocator.trace.tell(|| Event::NothingBorrowed),
            }
        }
        Ok(())
    }

    /// A block of the host with a free address, which may be a new one; `None` where all blocks are taken.
    async fn find_or_claim(&mut self, assigned: &mut Assigned) -> Result<Option<Versioned<Block>>> {
        if let Some(block) = self.own_block().await? {
            return Ok(Some(block));
        }
        let (held, limit) = (self.owned, self.limit);
        match Further::of(&self.config, limit.saturating_sub(held).into()) {
            Further::BlockLimit => {
                self.allocator.trace.tell(|| Event::BlockLimit { held, limit });
                assigned.note(Message::BlockLimit(limit));
                return Err(Error::BlockLimit);
            }
            Further::NoAutoAllocation => {
                self.allocator.trace.tell(|| Event::NoAutoAllocation);
                return Err(Error::NoAutoAllocation);
            }
            Further::Claim => self.allocator.trace.tell(|| Event::NeedsBlock { held, limit }),
        }
        let found = self.claim().await?;
        match &found {
            Some(_) => self.owned += 1,
            None if !may_borrow(&self.config) => assigned.note(Message::StrictAffinity),
            None => {}
        }
        Ok(found)
    }

    /// Takes what is missing from a block of the host, as far as it goes.
    async fn take_all(
        &mut self,
        mut block: Versioned<Block>,
        assigned: &mut Assigned,
        handle: &mut Known,
    ) -> Result<()> {
        let mut waiting = None;
        for _ in 0..RETRIES {
            match self.take(&block, assigned, self.config.strict_affinity, handle).await {
                Ok(Taken::Done | Taken::Held) => return Ok(()),
                Ok(Taken::LostRace) => {}
                Ok(Taken::Wait(error)) => waiting = Some(error),
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => {
                    tracing::warn!(block = %block.value.cidr(), %error, "nothing can be assigned in a block");
                    assigned.note(Message::BlockFailed);
                    return Ok(());
                }
            }
            match self.allocator.block(block.value.cidr()).await? {
                Some(current) => block = current,
                None => return Ok(()),
            }
        }
        waiting.map_or(Ok(()), Err)
    }

    fn holder(&self, cidr: IpNet) -> AffinityKey {
        AffinityKey { kind: self.kind.clone(), node: self.request.host.clone(), cidr }
    }

    /// Number of addresses of a block that can be given out.
    fn free(&self, block: &Block) -> u32 {
        if self.reserved.covering(block.cidr()).is_some() {
            return 0;
        }
        let block = collected(block, &self.config, self.allocator.now());
        block.assignable(|address| self.reserved.contains(address)).count() as u32
    }
}
