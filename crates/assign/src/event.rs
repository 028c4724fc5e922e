//! The allocator's decisions, which explain why a node does or does not get an address.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::affinity::AffinityKey;
use calipam_model::block::BlockOwner;
use calipam_model::pool::{Pool, PoolUse};

use crate::family::Family;

/// One decision of the allocator. Events are in the order of the decisions. If another client changes the data
/// meanwhile, the allocator decides again, and can report a further event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The search for addresses of a family begins.
    Family { family: Family, wanted: u32 },
    /// A pool serves the request.
    PoolServes { pool: String, cidr: IpNet },
    /// A pool does not serve the request.
    PoolPassedOver {
        pool: String,
        cidr: IpNet,
        why: PoolPassedOver,
    },
    /// An empty block of the holder was given up, since its pool no longer selects the node.
    GaveUp(AffinityKey),
    /// A block of the holder was tried.
    OwnBlock { key: AffinityKey, found: OwnBlock },
    /// No block of the holder has a free address. The holder has `held` of `limit` blocks in the pools.
    NeedsBlock { held: u32, limit: u32 },
    /// The holder is at its block limit.
    BlockLimit { held: u32, limit: u32 },
    /// Nodes may not claim blocks.
    NoAutoAllocation,
    /// A pool was searched for a block to claim.
    Searched {
        pool: String,
        cidr: IpNet,
        passed: Passed,
    },
    /// An empty block of another holder was not taken over.
    NotReclaimed {
        block: IpNet,
        owner: Option<BlockOwner>,
        why: NotReclaimed,
    },
    /// An empty block was taken from another holder.
    Reclaimed(AffinityKey),
    /// A block was claimed.
    Claimed(AffinityKey),
    /// No pool has a block to claim.
    NothingToClaim,
    /// Affinity is strict, so addresses come only from the holder's blocks.
    NothingBorrowed,
    /// A pool with `blocks` blocks is searched for addresses to borrow.
    Borrows {
        pool: String,
        cidr: IpNet,
        blocks: usize,
    },
    /// A requested address is in this block.
    BlockOfAddress {
        address: IpAddr,
        block: IpNet,
        owner: Option<BlockOwner>,
    },
    /// The block of a requested address does not exist, so it is claimed.
    NoBlockOfAddress { address: IpAddr, block: IpNet },
    /// Addresses were assigned in a block.
    Assigned {
        block: IpNet,
        owner: Option<BlockOwner>,
        addresses: Vec<IpAddr>,
    },
}

/// The reason why a pool does not serve a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolPassedOver {
    #[error("it is disabled")]
    Disabled,
    /// The pool has a deletion timestamp.
    #[error("it is being deleted")]
    Deleting,
    /// The pool's status says that it is not allocatable, for this reason, which can be empty.
    #[error("its status says that it is not allocatable{}{}", if .0.is_empty() { "" } else { ": " }, .0)]
    NotAllocatable(String),
    #[error("it is for the other IP family")]
    OtherFamily,
    /// The pool's blocks have no addresses besides those reserved for Windows.
    #[error("its blocks are too small for the addresses that Windows reserves")]
    BlocksTooSmall,
    /// The prefix length of the pool's blocks is longer than an address.
    #[error("its blocks would be /{0}, which is longer than an address")]
    ImpossibleBlocks(u8),
    /// Other pools were requested.
    #[error("other pools were requested")]
    NotRequested,
    /// The pool's assignment mode is manual, so the pool must be requested by name.
    #[error("its assignmentMode is Manual: it must be requested by name")]
    Manual,
    /// The pool's node selector does not select the node.
    #[error("its nodeSelector does not select the node: {0}")]
    NodeSelector(String),
    /// The pool's namespace selector does not select the namespace.
    #[error("its namespaceSelector does not select the namespace: {0}")]
    NamespaceSelector(String),
    /// The pool's `allowedUses` do not include the intended use.
    #[error("its allowedUses do not include {0:?}")]
    Use(PoolUse),
}

/// The state of a block of the holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnBlock {
    /// The block has free addresses. Contains the number of those that are not reserved.
    Free(u32),
    /// The block has no address to assign. Contains the number of free addresses that are reserved, and the number of
    /// addresses in cooldown.
    Full { reserved: u32, cooling: u32 },
    /// This reservation covers the block.
    Reserved(IpNet),
    /// The block belongs to another holder or to none. The affinity was deleted.
    Stale,
    /// The affinity no longer exists.
    Gone,
    /// The block cannot be used, for this reason.
    Unusable(String),
}

/// The numbers of blocks that a search passed over, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Blocks that are completely reserved. A reservation that covers several blocks counts once.
    pub reserved: usize,
    /// Blocks that overlap a block of another size.
    pub other_size: usize,
    /// Blocks that cannot be decoded.
    pub undecodable: usize,
    /// Blocks without an address to assign.
    pub full: usize,
    /// Blocks with free addresses that belong to the holder or are in use.
    pub in_use: usize,
    /// Empty blocks of other holders, and blocks that were deleted during the search.
    pub empty: usize,
    /// Blocks that were not read.
    pub unread: usize,
}

/// The reason why an empty block was not taken from its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReclaimed {
    /// The block was claimed less than a minute ago.
    Young,
    /// The block has no owner that could give it up.
    NoOwner,
    /// The block could not be taken from its owner, for this reason.
    Failed(String),
}

impl PoolPassedOver {
    /// The reason why a pool serves no request at all; `None` if the pool is enabled.
    pub fn of_state(pool: &Pool) -> Option<Self> {
        if pool.disabled {
            return Some(Self::Disabled);
        }
        if pool.deleting {
            return Some(Self::Deleting);
        }
        pool.not_allocatable.clone().map(Self::NotAllocatable)
    }

    /// The reason why the blocks of an enabled pool have too few addresses for a request.
    pub fn of_block_size(pool: &Pool) -> Self {
        if pool.has_impossible_blocks() {
            Self::ImpossibleBlocks(pool.block_size)
        } else {
            Self::BlocksTooSmall
        }
    }
}

/// Receives the decisions of an allocator.
pub type Observer = Arc<dyn Fn(Event) + Send + Sync>;

/// Passes decisions to an observer, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Trace(pub Option<Observer>);

impl Trace {
    /// Reports a decision. `event` is called only if there is an observer.
    pub(crate) fn record(&self, event: impl FnOnce() -> Event) {
        if let Some(observer) = &self.0 {
            observer(event());
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Trace(observed)"
        } else {
            "Trace"
        })
    }
}
