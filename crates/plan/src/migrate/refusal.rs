//! Reasons not to migrate a pool.

use calipam_model::IpNet;
use calipam_model::hint::{Call, Hint};

use super::Phase;
use crate::range::RangeRefusal;

/// The result of a part of the plan of a migration.
pub(crate) type Result<T, E = MigrateRefusal> = std::result::Result<T, E>;

/// A reason not to migrate a pool. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigrateRefusal {
    #[error("pool {0} not found")]
    NoSuchPool(String),
    /// No pool is named, no disabled pool has blocks, and no pool is marked by its annotation or name as the
    /// replacement of another.
    #[error("no pool shows that a migration has begun")]
    NoneBegun,
    /// No pool is named, and several could be the old one.
    #[error("several pools are being migrated, or are disabled and have blocks: {}", .0.join(", "))]
    SeveralBegun(Vec<String>),
    #[error("{0} is both the old and the new pool")]
    SamePool(String),
    /// Two pools cannot have the same CIDR, and one pool cannot have blocks of two sizes.
    #[error(
        "{cidr} is the CIDR of the pool {pool} itself: blocks of /{block_size} can only be created there once its present blocks are gone"
    )]
    SameCidr { pool: String, cidr: IpNet, block_size: u8 },
    #[error("the pool {pool} already has blocks of /{size}")]
    SameBlockSize { pool: String, size: u8 },
    /// The migration to another block size in the same CIDR has begun, with another size or another temporary pool.
    #[error(
        "the migration to blocks of /{block_size} in {cidr}, through the temporary pool {temporary}, has already begun"
    )]
    OtherBegun { temporary: String, cidr: IpNet, block_size: u8 },
    /// The pool has users of its own, which would have to move away together with those of the old pool.
    #[error("{cidr} is the CIDR of the pool {pool}, which is not temporary")]
    NotTemporary { pool: String, cidr: IpNet },
    #[error("the pool {pool} has blocks of /{size}, not of /{wanted}")]
    OtherBlockSize { pool: String, size: u8, wanted: u8 },
    #[error("{old} and {new} are from different IP families")]
    OtherFamily { old: IpNet, new: IpNet },
    #[error("Calico does not allow blocks of /{size}, only /{least} to /{most}")]
    NoBlockSize { size: u8, least: u8, most: u8 },
    #[error("{cidr} is smaller than one block of /{block_size}")]
    SmallerThanBlock { cidr: IpNet, block_size: u8 },
    #[error("{cidr} overlaps {other_cidr}, the pool {other}")]
    Overlaps { cidr: IpNet, other: String, other_cidr: IpNet },
    #[error(transparent)]
    Range(#[from] RangeRefusal),
    /// Calico would use blocks of both sizes, and assign addresses twice.
    #[error("the block {block} still exists in {cidr}, where blocks must be /{block_size}")]
    BlockInTheWay { block: IpNet, cidr: IpNet, block_size: u8 },
    #[error("{cidr} is the CIDR of the pool {pool}, not of {wanted}")]
    OtherName { cidr: IpNet, pool: String, wanted: String },
    #[error("{0:?} cannot be a pool name: only lower-case letters, digits, `-` and `.` are allowed")]
    NoName(String),
    #[error("the pool {0} already exists, with another CIDR")]
    NameTaken(String),
    #[error("the new pool {0} is being deleted, or Calico says that nothing can be allocated from it")]
    NewPoolUnusable(String),
    #[error("the pool {0} is being deleted")]
    BeingDeleted(String),
    /// The new pool would have a namespace selector and be usable for tunnels. Calico refuses to create such a pool.
    #[error(
        "the pool {0} has a namespaceSelector and allows the use Tunnel: Calico refuses to create a pool with both"
    )]
    NamespaceSelectorOfTunnels(String),
    /// Without the old pool, some users would get no address.
    #[error(
        "without {pool}, there are no addresses for {missing} of {needed} users, first on {node}: {reason}"
    )]
    NoRoom { pool: String, missing: u32, needed: u32, node: String, reason: String },
    /// The users could move to the temporary pool, but would not all find addresses afterwards.
    #[error(
        "with blocks of /{block_size}, {cidr} has no addresses for {missing} of {needed} users, first on {node}: {reason}"
    )]
    NoRoomBack { cidr: IpNet, block_size: u8, missing: u32, needed: u32, node: String, reason: String },
    /// Without this pool no pod gets an address of its family.
    #[error("without {0}, no pool of its family would be enabled")]
    LastPool(String),
    /// No other enabled pool can take the users.
    #[error("there is no other enabled pool of its family to replace {0}")]
    NoOtherPool(String),
    /// Another program or person has changed pools, blocks or addresses since the plan was shown.
    #[error("{pool} has changed in the meantime: the next phase is {now}, not {phase}")]
    PhaseHasChanged { pool: String, phase: Phase, now: Phase },
    /// The pool was found empty, but is in use again.
    #[error("the pool {0} is no longer empty")]
    NoLongerEmpty(String),
    /// A finalizer requires another program to agree before the pool is deleted.
    #[error(
        "the pool {pool} has the finalizer {finalizer}: Calico itself deletes the pool, after looking for blocks"
    )]
    Finalizer { pool: String, finalizer: String },
    /// Another program would change the pool back.
    #[error("the pool {pool} is managed by {manager}, which reverts changes by others")]
    ManagedBy { pool: String, manager: String },
}

impl MigrateRefusal {
    pub fn hint(&self) -> Option<Hint> {
        Some(match self {
            Self::NoSuchPool(_) => Hint::new("{} lists the pools; --to-cidr creates one", [Call::Show]),
            Self::NoneBegun => "name the pool to leave with --from".into(),
            Self::SeveralBegun(_) => "name one of them with --from".into(),
            Self::SameCidr { pool, cidr, block_size } => Hint::new(
                format!(
                    "move its users to a temporary pool and back: {{}}, where OTHER-CIDR is free and has room for all of them; or, if \
                     one half of {cidr} has room, split the pool, and move from half to half (docs/migrate.md)"
                ),
                [Call::MigrateThrough { pool: pool.clone(), block_size: *block_size }],
            ),
            Self::OtherBegun { temporary, .. } => Hint::new(
                "continue with {}; or abandon it, while the old pool still exists: {}",
                [Call::ApplyMigration(temporary.clone()), Call::MigrateBack(temporary.clone())],
            ),
            Self::NotTemporary { .. } => {
                "name a CIDR that no pool has; or move to that pool permanently, with --to".into()
            }
            Self::NoRoomBack { .. } => Hint::new(
                "choose another block size, or fix the problem above; {} continues anyway",
                [Call::Forced],
            ),
            Self::BlockInTheWay { block, .. } => Hint::new(
                format!("Calico assigns addresses twice where blocks overlap; {{}} shows what {block} holds"),
                [Call::ShowBlock(*block)],
            ),
            Self::Range(_) => "name a range that nothing else uses, in this cluster or around it".into(),
            Self::OtherBlockSize { .. } => {
                "a pool has one block size; name another CIDR, or omit --block-size".into()
            }
            Self::NewPoolUnusable(_) => {
                "its condition Allocatable says why; if it was only just enabled, wait a moment, or name another pool".into()
            }
            Self::NoRoom { .. } => {
                Hint::new("name a larger pool; the table shows each node, and {} continues anyway", [Call::Forced])
            }
            Self::LastPool(_) | Self::NoOtherPool(_) => {
                "create or enable another pool first, with --to-cidr or --to".into()
            }
            Self::NoLongerEmpty(pool) | Self::PhaseHasChanged { pool, .. } => {
                Hint::new("{} shows what it contains now", [Call::Migrate(pool.clone())])
            }
            Self::Finalizer { pool, .. } => Hint::new(
                "nothing is left in it: `kubectl delete ippools.projectcalico.org {}` lets Calico delete it",
                [Call::Name(pool.clone())],
            ),
            Self::ManagedBy { .. } => {
                "change spec.calicoNetwork.ipPools in its Installation resource: the operator then changes the pools".into()
            }
            Self::NamespaceSelectorOfTunnels(_) => {
                "set its allowedUses to Workload alone, or remove the namespaceSelector".into()
            }
            Self::OtherName { .. } => "omit --to-name: the pool exists".into(),
            Self::NoName(_) => "name the new pool with --to-name".into(),
            Self::SamePool(_)
            | Self::OtherFamily { .. }
            | Self::NoBlockSize { .. }
            | Self::SameBlockSize { .. }
            | Self::SmallerThanBlock { .. }
            | Self::Overlaps { .. }
            | Self::NameTaken(_)
            | Self::BeingDeleted(_) => return None,
        })
    }
}
