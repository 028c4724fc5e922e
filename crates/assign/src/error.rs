//! Errors of the allocator. Errors that Calico's allocator also returns have the same messages as in Calico, since
//! runtimes and scripts match on them.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::affinity::AffinityKey;
use calipam_model::key::Key;
use calipam_model::pool::PoolUse;
use calipam_model::selector::SelectorError;

use crate::family::Family;
use crate::store::StoreError;

/// The last words of a program in Go that gets no memory.
pub(crate) const OUT_OF_MEMORY: &str = "fatal error: runtime: out of memory";

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error in the middle of an operation. Changes that were already made are not undone.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Partly<T: std::fmt::Debug> {
    pub done: T,
    #[source]
    pub error: Error,
}

/// The reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request for automatic assignment has no intended use.
    #[error("must specify the intended use when assigning an IP")]
    UseRequired,
    /// A pool that a request names belongs to the other family.
    #[error("provided IPv{} IPPools list contains one or more IPv{} IPPools", .0.number(), 10 - .0.number())]
    WrongFamily(Family),
    #[error("resource does not exist: Node({0}) with error: <nil>")]
    NoNode(String),
    #[error("resource does not exist: IPAMHandleKey(id={0}) with error: <nil>")]
    NoHandle(String),
    #[error("resource does not exist: BlockKey(cidr={0}) with error: <nil>")]
    NoBlock(IpNet),
    /// A holder has no affinity for a block.
    #[error("resource does not exist: {0} with error: <nil>")]
    NoAffinity(Key),
    /// The affinity for a block was marked deleted.
    #[error(
        "resource does not exist: BlockAffinityKey(cidr={}, host={}, affinityType={}) with error: Resource was deleted",
        .0.cidr, .0.node, .0.kind
    )]
    DeletedAffinity(AffinityKey),
    /// No pool of the family is enabled, or none has blocks that are large enough.
    #[error("cannot find a qualified ippool")]
    NoQualifiedPool,
    /// None of the pools that are requested, or that select the node and namespace, allows this use.
    #[error("cannot find a qualified ippool, no pools match the required use ({})", .0.name())]
    NoPoolForUse(PoolUse),
    /// No pool with automatic assignment selects the node and namespace.
    #[error("no configured Calico pools for node {0}")]
    NoPoolForNode(String),
    /// A requested pool is missing or disabled, or has blocks that are too small.
    #[error("the given pool ({0}) does not exist, or is not enabled")]
    PoolNotEnabled(IpNet),
    /// A selector of a pool does not parse. Calico does not say which pool's.
    #[error("{reason}")]
    Selector { pool: String, reason: SelectorError },
    /// The node is at its block limit.
    #[error("cannot allocate new block due to per host block limit")]
    BlockLimit,
    /// Nodes may not claim blocks.
    #[error("failed to find or claim a block")]
    NoAutoAllocation,
    /// A block that was just claimed has too few free addresses.
    #[error("Block '{block}' has {free} free ips which is less than {wanted} ips required.")]
    NoRoom { block: IpNet, free: u32, wanted: u32 },
    /// Calico's allocator makes a block of 2^32 addresses for a pool whose blocks are impossible. No node has the memory for
    /// that, so the program dies.
    #[error("{OUT_OF_MEMORY}")]
    OutOfMemory { pool: String, block_size: u8 },
    /// Calico's allocator reserves more addresses for Windows than a new block has, and the program dies. `last` is the
    /// block's last address.
    #[error("panic: runtime error: slice bounds out of range [3:{last}]")]
    TooSmallForWindows { last: u32 },
    /// An entry of this reservation is no CIDR. Calico's program dies when it prints that it ignores the entry.
    #[error(
        "panic: value method github.com/projectcalico/calico/libcalico-go/lib/net.IPNet.String called using nil *IPNet pointer"
    )]
    MalformedReservation(String),
    #[error("global strict affinity should not be false for Windows node")]
    WindowsNeedsStrictAffinity,
    /// A handle is at its limit but does not have the requested addresses yet: another client is assigning them.
    #[error(
        "handle {handle} has {existing} IPs allocated but requires {required} (concurrent operation in progress)"
    )]
    InProgress {
        handle: String,
        existing: usize,
        required: u32,
    },

    /// A requested address is in no enabled pool. The message ends with a line break, as in Calico.
    #[error("The provided IP address is not in a configured pool\n")]
    AddressOutsidePools(IpAddr),
    /// An assigned address is in no enabled pool.
    #[error("the provided IP address {0} is not in a configured pool")]
    OwnerOutsidePools(IpAddr),
    /// The pool of an address does not allow this use.
    #[error(
        "IP address {address} is in IP pool \"{pool}\", which is not allowed for use \"{}\" (allowedUses: [{}])",
        .wanted.name(), use_names(.allowed)
    )]
    UseNotAllowed {
        address: IpAddr,
        pool: String,
        wanted: PoolUse,
        allowed: Vec<PoolUse>,
    },
    /// The address is allocated, cooling or reserved for Windows.
    #[error("resource already exists: {0} with error: Address already assigned in block")]
    AlreadyAssigned(IpAddr),
    /// The block belongs to another holder, and affinity is strict.
    #[error("Block host affinity does not match")]
    ForeignBlock(IpNet),
    /// The block has no owner, and affinity is strict.
    #[error("Attempt to assign from block {0} with no affinity")]
    OwnerlessBlock(IpNet),
    /// The handle is at its limit with addresses other than the requested one.
    #[error(
        "handle {handle} already has IP(s) allocated, cannot assign additional IP {address} (maxAllocPerIPVersion={max})"
    )]
    HandleIsFull {
        handle: String,
        address: IpAddr,
        max: u32,
    },
    /// A new block would share addresses with an existing one. Calico would create the block, and could then assign
    /// addresses twice.
    #[error(
        "block {block} cannot be created: it overlaps block {existing}, which dates from before the pool's block size was changed"
    )]
    Overlap { block: IpNet, existing: IpNet },
    #[error("{0} cannot be a block: Calico does not allow blocks of that size")]
    BlockSize(IpNet),

    #[error("resource does not exist: {0} with error: IP is unassigned")]
    NotAssigned(IpAddr),
    #[error("resource does not exist: {0} with error: No valid IPPool")]
    NoPoolOf(IpAddr),
    /// The address was released recently and is still in cooldown.
    #[error("address {0} is in cooldown")]
    InCooldown(IpAddr),
    #[error("IP {address} is not assigned to handle {handle}")]
    NotOfHandle { address: IpAddr, handle: String },
    /// The address has a different handle, sequence number or owner than the request expects. Its block is unchanged.
    #[error("update conflict: {0}")]
    Changed(IpAddr),

    #[error("The requested CIDR ({0}) is not within any configured pools.")]
    CidrOutsidePools(IpNet),
    #[error("The requested CIDR ({0}) is smaller than the minimum.")]
    CidrTooSmall(IpNet),
    #[error("block '{0}' is not empty")]
    NotEmpty(IpNet),
    #[error("block '{0}' is claimed by another host")]
    ClaimedByOther(IpNet),
    /// The block of an affinity has another owner or none. The affinity has been deleted.
    #[error("affinity for block '{0}' is stale")]
    StaleAffinity(IpNet),
    #[error("IPAM block updated since we last read it")]
    BlockChanged(IpNet),

    #[error("{} cannot be decoded: {reason}", key.named())]
    Undecodable { key: Key, reason: String },
    /// Other clients wrote first in each of 100 attempts.
    #[error("Max retries hit - excessive concurrent IPAM requests")]
    TooManyConflicts,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Error {
    /// True if another client wrote first.
    pub(crate) fn is_lost_race(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_lost_race())
    }

    /// True if a handle is missing or cannot be decoded.
    pub(crate) fn is_lost_handle(&self) -> bool {
        matches!(
            self,
            Self::NoHandle(_)
                | Self::Undecodable {
                    key: Key::Handle(_),
                    ..
                }
        )
    }

    /// True if the datastore gave no answer. It is unknown whether a write was made.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unavailable(_)))
    }

    /// True if Calico's program dies instead of failing.
    pub(crate) fn is_crash(&self) -> bool {
        matches!(
            self,
            Self::OutOfMemory { .. } | Self::TooSmallForWindows { .. } | Self::MalformedReservation(_)
        )
    }
}

fn use_names(uses: &[PoolUse]) -> String {
    let names: Vec<&str> = uses.iter().map(|wanted| wanted.name()).collect();
    names.join(" ")
}

/// The result of a write, or `None` if another client wrote first.
pub(crate) fn unless_lost<T>(written: Result<T, impl Into<Error>>) -> Result<Option<T>> {
    match written.map_err(Into::<Error>::into) {
        Ok(written) => Ok(Some(written)),
        Err(error) if error.is_lost_race() => Ok(None),
        Err(error) => Err(error),
    }
}
