//! Automatic assignment (facts 3.4): first from the host's own blocks, then from new ones, then from those of other
//! hosts.

mod borrow;
mod inputs;
mod new_block;
mod own_block;
mod survey;
mod take;
mod vacant;

pub use self::inputs::Inputs;
pub(crate) use self::inputs::affinities_of;
pub(crate) use self::take::{attribute, check_owner};

use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityType};
use calipam_model::block::Block;
use calipam_model::cidr_set::CidrSet;
use calipam_model::config::IpamConfig;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::Versioned;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use self::survey::Survey;
use self::take::TakeOutcome;
use crate::affinity::InUse;
use crate::allocator::{Allocator, RETRIES};
use crate::capacity::ClaimDecision;
use crate::error::{Error, Partly, Result};
use crate::event::Event;
use crate::family::Family;
use crate::full::FullBlocks;
use crate::handle::KnownHandle;
use crate::pools::{self, NamespaceOfRequest, PoolRequest, ServingPools};
use crate::recent::is_recent;
use crate::request::{Assigned, AutoAssign, AutoAssigned, Message};
use crate::store::{Query, Store};
use crate::walk;

impl<S: Store> Allocator<S> {
    /// Assigns as many addresses as requested, whichever are free. If too few are free, this is not an error: the
    /// messages in the result contain the reasons.
    ///
    /// # Errors
    /// The error contains the addresses that were assigned before it. They stay assigned.
    pub async fn auto_assign(&self, request: &AutoAssign) -> Result<AutoAssigned, Box<Partly<AutoAssigned>>> {
        self.assign_families(None, request).await
    }

    /// Assigns like [`Self::auto_assign`], with the inputs that [`Self::read_inputs`] read for the same request,
    /// perhaps before its pools and namespace labels were known. Addresses come first from the blocks that the host had
    /// when the inputs were read. If these do not suffice, the affinities are read again, since another call may have
    /// claimed a block for the host in the meantime. If the affinities have changed, or the inputs are old or cause an
    /// error, all inputs are read again.
    pub async fn auto_assign_after(
        &self,
        inputs: Inputs,
        request: &AutoAssign,
    ) -> Result<AutoAssigned, Box<Partly<AutoAssigned>>> {
        let mut early = None;
        if is_recent(inputs.made_at, self.now()) {
            early = Some(Inputs {
                is_early: true,
                ..inputs
            });
        }
        self.assign_families(early, request).await
    }

    /// Assigns addresses of each family, IPv4 first. If one family fails, the error contains what was assigned before.
    async fn assign_families(
        &self,
        mut inputs: Option<Inputs>,
        request: &AutoAssign,
    ) -> Result<AutoAssigned, Box<Partly<AutoAssigned>>> {
        let mut done = AutoAssigned::default();
        for family in Family::BOTH {
            let assigned = match family {
                Family::V4 => &mut done.v4,
                Family::V6 => &mut done.v6,
            };
            let result = self.assign_family(&mut inputs, request, family, assigned).await;
            if let Err(error) = result {
                return Err(Box::new(Partly { done, error }));
            }
        }
        Ok(done)
    }

    /// Assigns the addresses of a family: first with early inputs, if there are any, then with current ones if needed.
    async fn assign_family(
        &self,
        known: &mut Option<Inputs>,
        request: &AutoAssign,
        family: Family,
        assigned: &mut Option<Assigned>,
    ) -> Result<()> {
        let count = request.count(family);
        if count == 0 {
            return Ok(());
        }
        let is_of_other_family = |cidr: &IpNet| Family::of(*cidr) != family;
        if request.pools(family).iter().any(is_of_other_family) {
            return Err(Error::WrongFamily(family));
        }
        self.trace.record(|| Event::Family {
            family,
            wanted: count,
        });
        let nothing = || Assigned::new(family, count, reserves_for_windows(request, family));

        if let Some(inputs) = known.as_mut().filter(|inputs| inputs.is_early) {
            // An error can be due to outdated inputs, so only the search with current inputs reports it.
            if let Ok(mut search) = self.search(request, inputs, family).await {
                let assigned = assigned.insert(nothing());
                search.take_own(assigned, &mut inputs.handle).await?;
                if assigned.missing() == 0 {
                    return Ok(());
                }
                if search.has_same_affinities(inputs).await? {
                    return search.run(assigned, &mut inputs.handle).await;
                }
            }
            *known = None;
        }
        let inputs = match known {
            Some(inputs) => inputs,
            None => known.insert(self.current_inputs(request).await?),
        };
        let search = self.search(request, inputs, family).await?;
        search
            .run(assigned.get_or_insert_with(nothing), &mut inputs.handle)
            .await
    }

    /// Prepares a search in the pools that serve the request. Gives up empty blocks of pools that no longer select the
    /// node.
    async fn search<'r>(
        &'r self,
        request: &'r AutoAssign,
        inputs: &Inputs,
        family: Family,
    ) -> Result<Search<'r, S>> {
        let windows = reserves_for_windows(request, family);
        let pool_request = PoolRequest {
            family,
            host: &request.host,
            node_labels: &inputs.node.labels,
            namespace: NamespaceOfRequest::Labelled(request.namespace_labels.as_ref()),
            requested: request.pools(family),
            intended_use: request.intended_use.ok_or(Error::UseRequired)?,
            windows,
            is_calico: self.is_calico,
        };
        let ServingPools {
            selecting,
            usable: pools,
        } = pool_request.serving(&inputs.pools, &self.trace)?;

        let is_in = |pools: &[Pool], key: &AffinityKey| pools::pool_of(pools, key.cidr.addr()).is_some();
        let mut remaining = VecDeque::new();
        for affinity in &inputs.affinities {
            let key = &affinity.value.key;
            if Family::of(key.cidr) != family {
                continue;
            }
            if is_in(&pools, key) {
                remaining.push_back(affinity.clone());
            } else if !is_in(&selecting, key) {
                self.give_up_unselected(key, inputs, &inputs.node.labels).await?;
            }
        }

        let owned_blocks = if self.is_calico {
            self.store().owned_blocks(&inputs.kind.owner(&request.host))
        } else {
            Vec::new()
        };
        let inputs_hash = walk::hash(&format!(
            "{family:?} {:?} {} {windows} {:?} {:?} {pools:?}",
            inputs.kind, request.host, inputs.config, inputs.reserved
        ));
        Ok(Search {
            allocator: self,
            request,
            kind: inputs.kind.clone(),
            config: inputs.config,
            reserved: inputs.reserved.clone(),
            family,
            windows,
            limit: block_limit(&inputs.config, request.max_blocks_per_host),
            owned: remaining.len() as u32,
            pools,
            remaining,
            ahead: HashMap::new(),
            owned_blocks,
            survey: None,
            overtaken: AtomicBool::new(false),
            began: self.now(),
            known: self.known_full_blocks(family, inputs_hash),
        })
    }

    /// Returns the full blocks that an earlier search with the same inputs noted; none if there was no such search.
    fn known_full_blocks(&self, family: Family, inputs_hash: u64) -> FullBlocks {
        let noted = self.notes.as_ref().and_then(|notes| notes.full_blocks(family));
        if let Some(noted) = noted
            && noted.inputs_hash == inputs_hash
        {
            return noted;
        }
        FullBlocks {
            inputs_hash,
            ..FullBlocks::default()
        }
    }

    /// Gives up an empty block whose pool no longer selects the node with these labels. Does nothing for a block of
    /// another pool.
    async fn give_up_unselected(
        &self,
        key: &AffinityKey,
        inputs: &Inputs,
        labels: &BTreeMap<String, String>,
    ) -> Result<()> {
        let Some(pool) = pools::enabled_pool_of(&inputs.pools, key.cidr.addr()) else {
            return Ok(());
        };
        if !pool.selected_nodes().is_ok_and(|nodes| !nodes.matches(labels)) {
            return Ok(());
        }
        match self.give_up_retrying(key, &inputs.config, InUse::Refuse).await {
            Ok(()) => self.trace.record(|| Event::GaveUp(key.clone())),
            Err(error) if error.is_unavailable() => return Err(error),
            // The block stays, for example because it is in use.
            Err(_) => {}
        }
        Ok(())
    }
}

/// True if new blocks reserve addresses for Windows, which only IPv4 blocks do.
fn reserves_for_windows(request: &AutoAssign, family: Family) -> bool {
    request.windows && family == Family::V4
}

/// The number of a block's free addresses that are not reserved (facts 1.8).
pub(crate) fn assignable(block: &Block, reserved: &CidrSet) -> u32 {
    block.assignable(|address| reserved.contains(address)).count() as u32
}

/// The kind of holder that owns the blocks from which addresses for a use are assigned.
pub(crate) fn holder_kind(intended_use: Option<PoolUse>) -> AffinityType {
    if intended_use == Some(PoolUse::LoadBalancer) {
        AffinityType::Virtual
    } else {
        AffinityType::Host
    }
}

/// The block limit of a host: the lower of the limits in the configuration and the request, or Calico's default.
fn block_limit(config: &IpamConfig, of_request: u32) -> u32 {
    if of_request == 0 {
        config.block_limit()
    } else if config.max_blocks_per_host > 0 {
        of_request.min(config.block_limit())
    } else {
        of_request
    }
}

/// The duration after which a search that has not found enough addresses reads changed blocks once more.
const LONG: SignedDuration = SignedDuration::from_secs(1);

/// The blocks from which a search takes addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The blocks that the host has or claims.
    BlockOfHost,
    /// All blocks of the pools, of any owner.
    AnyBlock,
}

/// A block as it was read; `None` if it does not exist. An error concerns only this block, which cannot be decoded.
type BlockRead = Result<Option<Versioned<Block>>>;

/// The search for addresses of one family.
struct Search<'r, S> {
    allocator: &'r Allocator<S>,
    request: &'r AutoAssign,
    kind: AffinityType,
    config: IpamConfig,
    reserved: CidrSet,
    family: Family,
    /// True if new blocks reserve addresses for Windows.
    windows: bool,
    /// The pools to take addresses from.
    pools: Vec<Pool>,
    /// The block limit of the host.
    limit: u32,
    /// The number of blocks that the host holds in these pools.
    owned: u32,
    /// The host's affinities for blocks that have not been tried yet.
    remaining: VecDeque<Versioned<Affinity>>,
    /// Blocks that were read ahead.
    ahead: HashMap<IpNet, BlockRead>,
    /// The blocks that the store knows to belong to the host, with or without an affinity, ascending. Empty unless
    /// Calico is predicted.
    owned_blocks: Vec<IpNet>,
    /// The survey of the pools' blocks; `None` until the search finds that there is no place for a new block.
    survey: Option<Survey>,
    /// True if other clients changed or deleted a block before an address was taken from it. In this case, the next
    /// search may find a free address.
    overtaken: AtomicBool,
    began: Timestamp,
    /// The full blocks that an earlier search with the same inputs found.
    known: FullBlocks,
}

impl<S: Store> Search<'_, S> {
    /// Assigns the addresses of one family. If some are missing after a long search, searches a second time without the
    /// notes about full blocks.
    async fn run(mut self, assigned: &mut Assigned, handle: &mut KnownHandle) -> Result<()> {
        self.take_any(assigned, handle).await?;
        if assigned.missing() > 0
            && self.allocator.notes.is_some()
            && self.allocator.now().duration_since(self.began) > LONG
            && let Some(survey) = self.survey.take()
        {
            // Addresses may have been released while thousands of blocks were read.
            self.known = FullBlocks {
                blocks: survey.full,
                exhausted_at: None,
                ..self.known
            };
            self.began = self.allocator.now();
            self.take_any(assigned, handle).await?;
        }
        self.note_full_blocks(assigned.missing() > 0);
        Ok(())
    }

    /// Takes missing addresses from the host's blocks, from new blocks, and from other holders' blocks.
    async fn take_any(&mut self, assigned: &mut Assigned, handle: &mut KnownHandle) -> Result<()> {
        while assigned.missing() > 0 {
            let Some(block) = self.find_or_claim(assigned).await? else {
                break;
            };
            self.take_all(block, assigned, handle, Source::BlockOfHost)
                .await?;
        }
        if assigned.missing() > 0 {
            if self.config.may_borrow() {
                self.borrow(assigned, handle).await?;
            } else {
                self.allocator.trace.record(|| Event::NothingBorrowed);
            }
        }
        Ok(())
    }

    /// Keeps full blocks for the next search.
    fn note_full_blocks(self, found_nothing: bool) {
        let Some(notes) = &self.allocator.notes else {
            return;
        };
        // Without a survey, the search has not gone through the blocks of the pools.
        let Some(survey) = self.survey else {
            return;
        };
        // The next search should not read the full blocks again if there were many, or nothing else.
        if !found_nothing && survey.batches <= 1 {
            return;
        }

        let was_overtaken = self.overtaken.into_inner();
        let exhausted_at = if found_nothing && !was_overtaken {
            Some(self.began)
        } else {
            None
        };
        let full = FullBlocks {
            exhausted_at,
            blocks: survey.full,
            inputs_hash: self.known.inputs_hash,
        };
        notes.keep_full_blocks(self.family, &full);
    }

    /// True if the host still has the same affinities as in `inputs`. Then no other call has claimed a block for the
    /// host since they were read.
    async fn has_same_affinities(&self, inputs: &Inputs) -> Result<bool> {
        let kind = self.kind.clone();
        let holder = self.request.host.clone();
        let family = self.family;
        let [found] = self
            .allocator
            .read([Query::Affinities { kind, holder, family }])
            .await?;
        let earlier = inputs
            .affinities
            .iter()
            .filter(|affinity| Family::of(affinity.value.key.cidr) == family);
        Ok(affinities_of(found.into_iter()).iter().eq(earlier))
    }

    /// Takes missing addresses from the existing blocks of the host.
    async fn take_own(&mut self, assigned: &mut Assigned, handle: &mut KnownHandle) -> Result<()> {
        while assigned.missing() > 0 {
            let Some(block) = self.own_block().await? else {
                break;
            };
            self.take_all(block, assigned, handle, Source::BlockOfHost)
                .await?;
        }
        Ok(())
    }

    /// Finds a block of the host with a free address, or claims a block; `None` if there is no block to claim.
    ///
    /// # Errors
    /// If the host needs another block, but is at its block limit or may not claim blocks.
    async fn find_or_claim(&mut self, assigned: &mut Assigned) -> Result<Option<Versioned<Block>>> {
        if let Some(block) = self.own_block().await? {
            return Ok(Some(block));
        }
        let held = self.owned;
        let limit = self.limit;
        match ClaimDecision::of(&self.config, limit.saturating_sub(held).into()) {
            ClaimDecision::BlockLimit => {
                self.allocator.trace.record(|| Event::BlockLimit { held, limit });
                assigned.note(Message::BlockLimit(limit));
                return Err(Error::BlockLimit);
            }
            ClaimDecision::NoAutoAllocation => {
                self.allocator.trace.record(|| Event::NoAutoAllocation);
                return Err(Error::NoAutoAllocation);
            }
            ClaimDecision::Claim => self.allocator.trace.record(|| Event::NeedsBlock { held, limit }),
        }
        let found = if self.known.was_exhausted(self.began) {
            None
        } else {
            self.claim().await?
        };
        if found.is_some() {
            self.owned += 1;
        } else if !self.config.may_borrow() {
            assigned.note(Message::StrictAffinity);
        }
        Ok(found)
    }

    /// Takes as many of the missing addresses from a block as are free. Returns false if the handle is at its limit.
    ///
    /// # Errors
    /// If the datastore fails, or if the handle is at its limit but other calls have not assigned all its addresses
    /// yet.
    async fn take_all(
        &self,
        mut block: Versioned<Block>,
        assigned: &mut Assigned,
        handle: &mut KnownHandle,
        source: Source,
    ) -> Result<bool> {
        let mut waiting = None;
        for _ in 0..RETRIES {
            match self.take(&block, assigned, handle).await {
                Ok(TakeOutcome::Done) => return Ok(true),
                Ok(TakeOutcome::HandleFull) => return Ok(false),
                Ok(TakeOutcome::LostRace) => {}
                Ok(TakeOutcome::Wait(error)) => waiting = Some(error),
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => {
                    tracing::warn!(block = %block.value.cidr(), %error, "nothing can be assigned in a block");
                    if source == Source::BlockOfHost {
                        assigned.note(Message::BlockFailed);
                    }
                    return Ok(true);
                }
            }
            match self.allocator.block(block.value.cidr()).await? {
                Some(current) => block = current,
                None => {
                    waiting = None;
                    break;
                }
            }
        }
        // Others kept writing the block, or deleted it, so that the search may have missed free addresses.
        self.overtaken.store(true, Ordering::Relaxed);
        match waiting {
            Some(error) => Err(error),
            None => Ok(true),
        }
    }

    /// The key of the host's affinity for a block.
    fn holder(&self, cidr: IpNet) -> AffinityKey {
        AffinityKey {
            kind: self.kind.clone(),
            node: self.request.host.clone(),
            cidr,
        }
    }

    /// The number of addresses that can be assigned in a block.
    fn free(&self, block: &Block) -> u32 {
        assignable(
            &block.without_cooled(self.allocator.now(), self.config.cooldown()),
            &self.reserved,
        )
    }
}
