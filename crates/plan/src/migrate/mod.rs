//! `migrate`: from one pool to another. A migration has phases, and each of them is a plan of its own: the new pool is
//! created, the old one is disabled, its users move, what is left there is cleaned up, and it is deleted. Which phase is next
//! follows from the datastore alone, so that nothing about a migration is kept anywhere else.
//!
//! Blocks of another size in the new pool are refused before it is created: the affinities of such blocks make nodes go on with
//! them, and Calico assigns addresses twice where blocks overlap (projectcalico/calico issue 10778).

mod capacity;
mod clean_up;
mod differences;
mod refusal;
mod survey;
mod temporary;

use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::cidr::{is_v4, overlap};
use calipam_model::document::Document;
use calipam_model::edit::{Edit, PoolEdit, Step};
use calipam_model::pool::{Pool, PoolUse, TEMPORARY_FOR};
use calipam_model::snapshot::Snapshot;
use serde_json::json;

pub use self::capacity::{NodeCapacity, capacity, capacity_back};
pub use self::clean_up::clean_up;
pub use self::differences::{Difference, differences};
pub use self::refusal::MigrateRefusal;
pub use self::survey::{Left, Phase, Survey, User, UserKind, lying_in, survey};
pub use self::temporary::{Detour, Leg, find};
use crate::plan::{Action, Change, Plan, PlanKind, Verb};
use crate::range;
use crate::split::identify;

/// Where the users of a pool move to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A pool that exists, by its name.
    Pool(String),
    /// The pool of this CIDR. Where there is none, it gets the settings of the old one, and blocks of this size or else of the same.
    Network { cidr: IpNet, block_size: Option<u8> },
    /// The CIDR of the old pool with blocks of another size: there and back, through a temporary pool of the CIDR `via`.
    SameNetwork { block_size: u8, via: Option<IpNet> },
    /// To any enabled pool: how far the migration is follows from the old one.
    Unstated,
}

/// A migration between two pools.
#[derive(Clone, Debug)]
pub struct Migration {
    pub old: Pool,
    /// The new pool as it is, or as it will be created; `None` if none was stated.
    pub new: Option<Pool>,
    /// The new pool is still to be created.
    pub creates: bool,
}

impl Migration {
    /// The migration from `old` to the target.
    ///
    /// # Errors
    /// If it would not be safe, or can never come to its end.
    pub fn of(snapshot: &Snapshot, old: &Pool, target: &Target) -> Result<Self, MigrateRefusal> {
        if old.deleting {
            return Err(MigrateRefusal::BeingDeleted(old.name.clone()));
        }
        overlaps_none(snapshot, old, old.cidr)?;

        let mut pools = snapshot.pools.iter().map(|pool| &pool.value);
        let (new, creates) = match target {
            Target::SameNetwork { block_size, via } => {
                (temporary::made_for(snapshot, old, *block_size, *via)?, true)
            }
            Target::Unstated => return Ok(Self { old: old.clone(), new: None, creates: false }),
            Target::Pool(name) => {
                let found = pools.find(|pool| pool.name == *name);
                (found.cloned().ok_or_else(|| MigrateRefusal::NoSuchPool(name.clone()))?, false)
            }
            Target::Network { cidr, block_size } => {
                match pools.find(|pool| pool.cidr == *cidr && pool.name != old.name) {
                    Some(pool) => (pool.clone(), false),
                    None => (made_of(snapshot, old, *cidr, block_size.unwrap_or(old.block_size))?, true),
                }
            }
        };
        if let (Target::Network { block_size: Some(wanted), .. }, false) = (target, creates)
            && *wanted != new.block_size
        {
            return Err(MigrateRefusal::OtherBlockSize {
                pool: new.name,
                size: new.block_size,
                wanted: *wanted,
            });
        }
        suits(snapshot, old, &new)?;
        Ok(Self { old: old.clone(), new: Some(new), creates })
    }

    /// The new pool is there, and still to be enabled.
    pub fn enables(&self) -> bool {
        !self.creates && self.new.as_ref().is_some_and(|new| new.disabled)
    }
}

/// The pool that is created: the old one with another name, CIDR and block size.
fn made_of(snapshot: &Snapshot, old: &Pool, cidr: IpNet, block_size: u8) -> Result<Pool, MigrateRefusal> {
    if cidr == old.cidr {
        return Err(MigrateRefusal::SameCidr { pool: old.name.clone(), cidr, block_size });
    }
    takes_blocks(cidr, block_size)?;
    if !old.namespace_selector.is_empty() && old.allows(PoolUse::Tunnel) {
        return Err(MigrateRefusal::NamespaceSelectorOfTunnels(old.name.clone()));
    }

    let name = match &old.temporary_for {
        Some(successor) if successor.cidr == cidr => successor.name.clone(),
        _ => name_of(&old.name, cidr),
    };
    if snapshot.pools.iter().any(|pool| pool.value.name == name) {
        return Err(MigrateRefusal::NameTaken(name));
    }
    let (created, temporary_for) = (None, None);
    Ok(Pool {
        name,
        cidr,
        block_size,
        disabled: false,
        allocatable: true,
        created,
        temporary_for,
        ..old.clone()
    })
}

/// Calico takes blocks of this size (facts section 8), and one fits into the CIDR.
fn takes_blocks(cidr: IpNet, size: u8) -> Result<(), MigrateRefusal> {
    let sizes = if is_v4(cidr) { 20..=32 } else { 116..=128 };
    if !sizes.contains(&size) {
        return Err(MigrateRefusal::NoBlockSize { size, least: *sizes.start(), most: *sizes.end() });
    }
    if size < cidr.prefix_len() {
        return Err(MigrateRefusal::SmallerThanBlock { cidr, block_size: size });
    }
    Ok(())
}

/// `<old pool>-10-9-0-0-16`. Names have at most 253 characters.
fn name_of(old: &str, cidr: IpNet) -> String {
    let network = cidr.to_string().replace(['.', ':', '/'], "-");
    let room = 252usize.saturating_sub(network.len());
    format!("{}-{network}", old.get(..room).unwrap_or(old))
}

/// The new pool can take what the old one has: it is of the same family, and nothing overlaps it.
fn suits(snapshot: &Snapshot, old: &Pool, new: &Pool) -> Result<(), MigrateRefusal> {
    if new.name == old.name {
        return Err(MigrateRefusal::SamePool(old.name.clone()));
    }
    if is_v4(new.cidr) != is_v4(old.cidr) {
        return Err(MigrateRefusal::OtherFamily { old: old.cidr, new: new.cidr });
    }
    // Of a disabled pool Calico says that nothing can be allocated there, too.
    if !new.is_enabled() && (new.deleting || !new.disabled) {
        return Err(MigrateRefusal::NewPoolUnusable(new.name.clone()));
    }
    if new.is_smaller_than_block() {
        return Err(MigrateRefusal::SmallerThanBlock { cidr: new.cidr, block_size: new.block_size });
    }
    overlaps_none(snapshot, new, new.cidr)?;
    range::is_free(snapshot, new.cidr)?;

    let blocks = snapshot.blocks.iter().map(|block| block.value.key);
    let hidden = snapshot.defects.iter().filter_map(|defect| defect.hidden_block());
    let claimed = snapshot.affinities.iter().map(|affinity| affinity.value.key.cidr);
    let is_other = |block: &IpNet| overlap(*block, new.cidr) && block.prefix_len() != new.block_size;
    match blocks.chain(hidden).chain(claimed).find(is_other) {
        Some(block) => {
            Err(MigrateRefusal::BlockInTheWay { block, cidr: new.cidr, block_size: new.block_size })
        }
        None => Ok(()),
    }
}

/// No other pool has an address of `pool`.
fn overlaps_none(snapshot: &Snapshot, pool: &Pool, cidr: IpNet) -> Result<(), MigrateRefusal> {
    let mut others = snapshot.pools.iter().map(|other| &other.value).filter(|other| other.name != pool.name);
    match others.find(|other| overlap(other.cidr, cidr)) {
        Some(other) => {
            Err(MigrateRefusal::Overlaps { cidr, other: other.name.clone(), other_cidr: other.cidr })
        }
        None => Ok(()),
    }
}

/// Pools as they are stored.
#[derive(Clone, Debug)]
pub struct StoredPools {
    pub old: Document,
    /// `None` if it is still to be created, or none was stated.
    pub new: Option<Document>,
}

/// The plan of a phase that writes nothing but a pool, and of the one that writes nothing.
///
/// # Errors
/// If the pool is not calipam's to write.
pub fn plan_pools(
    snapshot: &Snapshot,
    migration: &Migration,
    stored: &StoredPools,
    phase: Phase,
) -> Result<Plan, MigrateRefusal> {
    let Migration { old, new, .. } = migration;
    let action = match (phase, new, &stored.new) {
        (Phase::Create, Some(new), None) => {
            is_free(old, &stored.old)?;
            create(snapshot, old, new, &stored.old)
        }
        (Phase::Create, Some(new), Some(stored)) => {
            is_free(new, stored)?;
            let edit = PoolEdit::Enable(stored.clone());
            action(old, new, edit, Verb::EnablePool, "it exists, and is disabled".to_owned())
        }
        (Phase::Disable, ..) => {
            is_free(old, &stored.old)?;
            let why = "addresses that are in use stay, and no new ones come from it".to_owned();
            action(old, old, PoolEdit::Disable(stored.old.clone()), Verb::DisablePool, why)
        }
        (Phase::Delete, ..) => {
            is_free(old, &stored.old)?;
            if let Some(finalizer) = stored.old.finalizers().first() {
                let finalizer = (*finalizer).to_owned();
                return Err(MigrateRefusal::Finalizer { pool: old.name.clone(), finalizer });
            }
            let why = "no block, affinity or address in use is left in it".to_owned();
            action(old, old, PoolEdit::Delete(stored.old.clone()), Verb::DeletePool, why)
        }
        _ => return Ok(Plan::nothing(PlanKind::Migrate, snapshot)),
    };
    Ok(Plan::new(PlanKind::Migrate, snapshot, vec![action]))
}

/// The label by which pools say that a program keeps them as it wants them.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Tigera's operator, which writes the pools of its resource Installation.
const OPERATOR: &str = "tigera-operator";

/// No program would bring back what it finds changed.
fn is_free(pool: &Pool, stored: &Document) -> Result<(), MigrateRefusal> {
    match stored.label(MANAGED_BY).filter(|manager| *manager == OPERATOR) {
        Some(manager) => {
            Err(MigrateRefusal::ManagedBy { pool: pool.name.clone(), manager: manager.to_owned() })
        }
        None => Ok(()),
    }
}

fn create(snapshot: &Snapshot, old: &Pool, new: &Pool, stored: &Document) -> Action {
    let fields = [
        ("cidr", new.cidr.to_string().into()),
        ("blockSize", new.block_size.into()),
        ("disabled", false.into()),
    ];
    let mut pool = stored.child(&new.name, fields);
    pool.annotate(TEMPORARY_FOR, new.temporary_for.as_ref().map(|successor| json!(successor).to_string()));
    identify(&mut pool, snapshot, &new.name);
    let temporary = if new.temporary_for.is_some() { "temporary, " } else { "" };
    let settings = format!("with the settings of {}, enabled, blocks of /{}", old.name, new.block_size);
    action(old, new, PoolEdit::Create(pool), Verb::CreatePool, format!("{temporary}{settings}"))
}

fn action(old: &Pool, pool: &Pool, edit: PoolEdit, verb: Verb, why: String) -> Action {
    let mut step = Step::new(format!("migration from pool {}", old.name));
    step.whole().edits.push(Edit::Pool(pool.name.clone(), edit));
    let subject = Subject::Pool(pool.cidr);
    // Details of pools begin with the name.
    let separator = if verb == Verb::CreatePool { ", " } else { ": " };
    let detail = format!("{}{separator}{why}", pool.name);
    Action { step, changes: vec![Change { action: verb, subject, detail, repairs: Vec::new() }] }
}
