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

use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::cidr::{is_v4, overlap};
use calipam_model::document::Document;
use calipam_model::edit::{Edit, PoolEdit, Step};
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::Snapshot;

pub use self::capacity::{NodeCapacity, capacity};
pub use self::clean_up::clean_up;
pub use self::differences::{Difference, differences};
pub use self::refusal::MigrateRefusal;
pub use self::survey::{Left, Phase, Survey, User, UserKind, survey};
use crate::plan::{Action, Change, Plan, PlanKind, Verb};
use crate::split::identify;

/// Where the users of a pool move to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A pool that exists, by its name.
    Pool(String),
    /// The pool of this CIDR. Where there is none, it gets the settings of the old one, and blocks of this size or else of the same.
    Network { cidr: IpNet, block_size: Option<u8> },
    /// The CIDR of the old pool with blocks of another size. That takes another pool in between.
    SameNetwork { block_size: u8 },
    /// To any enabled pool: how far the migration is follows from the old one.
    Unstated,
}

/// A migration between two pools.
#[derive(Clone, Debug)]
pub struct Migration {
    pub old: Pool,
    /// The new pool as it is, or as it will be created; `None` where none was stated.
    pub new: Option<Pool>,
    /// The new pool is still to be created.
    pub creates: bool,
}

impl Migration {
    /// The migration from `old` to the target.
    ///
    /// # Errors
    /// Where it would not be safe, or can never come to its end.
    pub fn of(snapshot: &Snapshot, old: &Pool, target: &Target) -> Result<Self, MigrateRefusal> {
        if old.deleting {
            return Err(MigrateRefusal::BeingDeleted(old.name.clone()));
        }
        overlaps_none(snapshot, old, old.cidr)?;

        let mut pools = snapshot.pools.iter().map(|pool| &pool.value);
        let (new, creates) = match target {
            Target::SameNetwork { block_size } => {
                let (pool, block_size) = (old.name.clone(), *block_size);
                return Err(MigrateRefusal::SameCidr { pool, cidr: old.cidr, block_size });
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
}

/// The pool that is created: the old one with another name, CIDR and block size.
fn made_of(snapshot: &Snapshot, old: &Pool, cidr: IpNet, block_size: u8) -> Result<Pool, MigrateRefusal> {
    if cidr == old.cidr {
        return Err(MigrateRefusal::SameCidr { pool: old.name.clone(), cidr, block_size });
    }
    // The sizes that Calico takes (facts section 8).
    let sizes = if is_v4(cidr) { 20..=32 } else { 116..=128 };
    if !sizes.contains(&block_size) {
        return Err(MigrateRefusal::NoBlockSize {
            size: block_size,
            least: *sizes.start(),
            most: *sizes.end(),
        });
    }
    if block_size < cidr.prefix_len() {
        return Err(MigrateRefusal::SmallerThanBlock { cidr, block_size });
    }
    if !old.namespace_selector.is_empty() && old.allows(PoolUse::Tunnel) {
        return Err(MigrateRefusal::NamespaceSelectorOfTunnels(old.name.clone()));
    }

    let name = name_of(&old.name, cidr);
    if snapshot.pools.iter().any(|pool| pool.value.name == name) {
        return Err(MigrateRefusal::NameTaken(name));
    }
    Ok(Pool { name, cidr, block_size, disabled: false, allocatable: true, ..old.clone() })
}

/// `<old pool>-10-9-0-0-16`. Names have at most 253 characters.
fn name_of(old: &str, cidr: IpNet) -> String {
    let network = cidr.to_string().replace(['.', ':', '/'], "-");
    let room = 252usize.saturating_sub(network.len());
    format!("{}-{network}", old.get(..room).unwrap_or(old))
}

/// The new pool takes what the old one has: of the same family, enabled, and without anything that overlaps.
fn suits(snapshot: &Snapshot, old: &Pool, new: &Pool) -> Result<(), MigrateRefusal> {
    if new.name == old.name {
        return Err(MigrateRefusal::SamePool(old.name.clone()));
    }
    if is_v4(new.cidr) != is_v4(old.cidr) {
        return Err(MigrateRefusal::OtherFamily { old: old.cidr, new: new.cidr });
    }
    if !new.is_enabled() {
        return Err(MigrateRefusal::NewPoolDisabled(new.name.clone()));
    }
    if new.is_smaller_than_block() {
        return Err(MigrateRefusal::SmallerThanBlock { cidr: new.cidr, block_size: new.block_size });
    }
    overlaps_none(snapshot, new, new.cidr)?;

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

/// The plan of a phase that writes nothing but a pool, and of the one that writes nothing. `stored` is the old pool as it is stored.
pub fn plan_pools(
    snapshot: &Snapshot,
    migration: &Migration,
    stored: &Document,
    phase: Phase,
) -> Result<Plan, MigrateRefusal> {
    let Migration { old, new, .. } = migration;
    // The operator would bring back what it finds changed.
    let manager = stored.label(MANAGED_BY).filter(|manager| *manager == OPERATOR);
    if let Some(manager) = manager.filter(|_| phase != Phase::Move) {
        return Err(MigrateRefusal::ManagedBy { pool: old.name.clone(), manager: manager.to_owned() });
    }

    let action = match (phase, new) {
        (Phase::Create, Some(new)) => {
            let fields = [
                ("cidr", new.cidr.to_string().into()),
                ("blockSize", new.block_size.into()),
                ("disabled", false.into()),
            ];
            let mut pool = stored.child(&new.name, fields);
            identify(&mut pool, snapshot, &new.name);
            let detail = format!(
                "{}, with the settings of {}, enabled, blocks of /{}",
                new.name, old.name, new.block_size
            );
            action(
                old,
                Edit::Pool(new.name.clone(), PoolEdit::Create(pool)),
                Verb::CreatePool,
                new.cidr,
                detail,
            )
        }
        (Phase::Disable, _) => {
            let detail =
                format!("{}: addresses that are in use stay, and no new ones come from it", old.name);
            let edit = Edit::Pool(old.name.clone(), PoolEdit::Disable(stored.clone()));
            action(old, edit, Verb::DisablePool, old.cidr, detail)
        }
        (Phase::Delete, _) => {
            if let Some(finalizer) = stored.finalizers().first() {
                let finalizer = (*finalizer).to_owned();
                return Err(MigrateRefusal::Finalizer { pool: old.name.clone(), finalizer });
            }
            let detail = format!("{}: no block, affinity or address in use is left in it", old.name);
            let edit = Edit::Pool(old.name.clone(), PoolEdit::Delete(stored.clone()));
            action(old, edit, Verb::DeletePool, old.cidr, detail)
        }
        _ => return Ok(Plan::nothing(PlanKind::Migrate, snapshot)),
    };
    Ok(Plan::new(PlanKind::Migrate, snapshot, vec![action]))
}

/// The label by which pools say that a program keeps them as it wants them.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Tigera's operator, which writes the pools of its resource Installation.
const OPERATOR: &str = "tigera-operator";

fn action(old: &Pool, edit: Edit, verb: Verb, cidr: IpNet, detail: String) -> Action {
    let mut step = Step::new(format!("migration from pool {}", old.name));
    step.whole().edits.push(edit);
    let changes = vec![Change { action: verb, subject: Subject::Pool(cidr), detail, repairs: Vec::new() }];
    Action { step, changes }
}
