//! Plans of `migrate`, which moves users from one pool to another. A migration has phases, each with its own plan: the
//! new pool is created, the old one is disabled, its users move, its leftovers are cleaned up, and it is deleted. The
//! next phase follows from the content of the datastore: nothing about a migration is stored elsewhere.
//!
//! A new pool is refused if its CIDR contains blocks of another size. Nodes with affinities for such blocks would keep
//! using them, and Calico assigns addresses twice where blocks overlap (projectcalico/calico issue 10778).

mod capacity;
mod clean_up;
mod differences;
mod new_pool;
mod objects;
mod pools;
mod survey;
mod temporary;
mod users;

use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::document::Document;
use calipam_model::edit::{Edit, PoolEdit, Precondition};
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::pool::{Pool, TEMPORARY_FOR};
use calipam_model::snapshot::Snapshot;
use calipam_model::writable::Object;
use serde::Serialize;
use serde_json::json;

pub use self::capacity::{NodeCapacity, capacity, capacity_back, capacity_in, require_room};
pub use self::clean_up::clean_up;
pub use self::differences::{Difference, differences};
use self::new_pool::{made_of, require_no_overlap, require_suitable};
use self::pools::{OTHER_POOL_FIRST, serves};
pub use self::pools::{check_pools, leaving};
pub use self::survey::{Leftovers, Survey, survey};
pub use self::temporary::{Detour, Leg, find};
pub use self::users::{User, UserKind};
use crate::plan::{Action, Change, Plan, PlanKind, Verb};
use crate::refusal::{Refused, Result};
use crate::split::identify;

/// A phase of a migration; the variants are in chronological order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The new pool is created, or enabled if it exists.
    Create,
    /// The old pool is disabled.
    Disable,
    /// Users of the old pool get other addresses. The plan of this phase is empty: the workloads have to be restarted.
    Move,
    /// Leaked addresses of the old pool are released; its blocks and affinities are deleted.
    CleanUp,
    /// The old pool is deleted.
    Delete,
}

impl Phase {
    pub const ALL: [Self; 5] = [
        Self::Create,
        Self::Disable,
        Self::Move,
        Self::CleanUp,
        Self::Delete,
    ];
}

calipam_model::display_serialized!(Phase);

/// The destination of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A pool that exists, by its name.
    Pool(String),
    /// The pool with this CIDR. If there is none, it is created with the settings of the old pool. Unless stated, the
    /// block size is that of the old pool, and the name is derived from the old pool.
    Network {
        cidr: IpNet,
        block_size: Option<u8>,
        name: Option<String>,
    },
    /// The same CIDR as the old pool, with another block size. Users first move to a temporary pool with the CIDR
    /// `via`.
    SameNetwork { block_size: u8, via: Option<IpNet> },
    /// No pool is stated: users move to any other enabled pool.
    Unstated,
}

/// A migration between two pools.
#[derive(Clone, Debug)]
pub struct Migration {
    pub old: Pool,
    /// The new pool as it is, or as it will be created; `None` if none was stated.
    pub new: Option<Pool>,
    /// True if the new pool still has to be created.
    pub creates: bool,
}

impl Migration {
    /// Returns the migration from `old` to the target.
    ///
    /// # Errors
    /// If the target does not exist or does not suit the old pool, or if the migration would not be safe or could never
    /// finish.
    pub fn of(snapshot: &Snapshot, old: &Pool, target: &Target) -> Result<Self> {
        if old.deleting {
            return Err(Refused::new(format!("the pool {} is being deleted", old.name)));
        }
        require_no_overlap(snapshot, old, old.cidr)?;

        let mut pools = snapshot.pools.iter().map(|pool| &pool.value);
        let (new, creates) = match target {
            Target::SameNetwork { block_size, via } => {
                (temporary::made_for(snapshot, old, *block_size, *via)?, true)
            }
            Target::Unstated => {
                return Ok(Self {
                    old: old.clone(),
                    new: None,
                    creates: false,
                });
            }
            Target::Pool(name) => {
                let Some(found) = pools.find(|pool| pool.name == *name) else {
                    let hint = Hint::new("{} lists the pools; --to-cidr creates one", [Call::to(["show"])]);
                    return Err(Refused::new(format!("pool {name} not found")).hint(hint));
                };
                (found.clone(), false)
            }
            Target::Network {
                cidr,
                block_size,
                name,
            } => {
                let found = pools.find(|pool| pool.cidr == *cidr && pool.name != old.name);
                if let Some(pool) = found {
                    require_stated_name(pool, name.as_deref())?;
                    (pool.clone(), false)
                } else {
                    let block_size = block_size.unwrap_or(old.block_size);
                    (made_of(snapshot, old, *cidr, block_size, name.as_deref())?, true)
                }
            }
        };
        if !creates {
            require_stated_block_size(&new, target)?;
        }
        require_suitable(snapshot, old, &new)?;
        Ok(Self {
            old: old.clone(),
            new: Some(new),
            creates,
        })
    }

    /// Returns true if the new pool exists, but has to be enabled.
    pub fn enables(&self) -> bool {
        !self.creates && self.new.as_ref().is_some_and(|new| new.disabled)
    }
}

/// Refuses a pool that exists with another name than the operator states.
fn require_stated_name(pool: &Pool, stated: Option<&str>) -> Result<()> {
    let Some(wanted) = stated.filter(|stated| *stated != pool.name) else {
        return Ok(());
    };
    let message = format!(
        "{} is the CIDR of the pool {}, not of {wanted}",
        pool.cidr, pool.name
    );
    Err(Refused::new(message).hint("omit --to-name: the pool exists"))
}

/// Refuses a pool that exists with another block size than the operator states.
fn require_stated_block_size(pool: &Pool, target: &Target) -> Result<()> {
    let Target::Network {
        block_size: Some(wanted),
        ..
    } = target
    else {
        return Ok(());
    };
    if *wanted == pool.block_size {
        return Ok(());
    }
    let message = format!(
        "the pool {} has blocks of /{}, not of /{wanted}",
        pool.name, pool.block_size
    );
    let hint = "a pool has one block size; name another CIDR, or omit --block-size";
    Err(Refused::new(message).hint(hint))
}

/// The documents of the two pools.
#[derive(Clone, Debug)]
pub struct StoredPools {
    pub old: Document,
    /// `None` if the new pool still has to be created, or none was stated.
    pub new: Option<Document>,
}

/// Plans a phase that writes a pool. For other phases, the plan is empty.
///
/// # Errors
/// If the pool must not be changed, or there is no new pool to create.
pub fn plan_pools(
    snapshot: &Snapshot,
    migration: &Migration,
    stored: &StoredPools,
    phase: Phase,
) -> Result<Plan> {
    let Migration { old, new, .. } = migration;
    check_pools(snapshot, &pools_after(snapshot, migration, phase))?;
    let action = match (phase, new, &stored.new) {
        (Phase::Create, None, _) => {
            let message = format!(
                "there is no other enabled pool of its family to replace {}",
                old.name
            );
            return Err(Refused::new(message).hint(OTHER_POOL_FIRST));
        }
        (Phase::Create, Some(new), None) => {
            refuse_managed(old, &stored.old)?;
            create(snapshot, old, new, &stored.old)
        }
        (Phase::Create, Some(new), Some(stored_new)) => {
            refuse_managed(new, stored_new)?;
            let why = "it exists, but is disabled".to_owned();
            let enable = Edit::Pool(new.name.clone(), PoolEdit::SetDisabled(stored_new.clone(), false));
            action(old, new, enable, Verb::EnablePool, why)
        }
        (Phase::Disable, ..) => {
            refuse_managed(old, &stored.old)?;
            let why = "addresses that are in use stay, but no new ones are assigned from it".to_owned();
            let disable = Edit::Pool(old.name.clone(), PoolEdit::SetDisabled(stored.old.clone(), true));
            let disabling = action(old, old, disable, Verb::DisablePool, why);
            requiring_pools(snapshot, migration, disabling)
        }
        (Phase::Delete, ..) => {
            refuse_managed(old, &stored.old)?;
            if let Some(finalizer) = stored.old.finalizers().first() {
                let message = format!(
                    "the pool {} has the finalizer {finalizer}: Calico itself deletes the pool, after looking for blocks",
                    old.name
                );
                let delete = Call::kubectl(["delete", "ippools.projectcalico.org", &old.name]);
                let hint = "nothing is left in it: {} lets Calico delete it";
                return Err(Refused::new(message).hint(Hint::new(hint, [delete])));
            }
            let why = "no block, affinity or address in use is left in it".to_owned();
            let delete = Edit::Pool(old.name.clone(), PoolEdit::Delete(stored.old.clone()));
            let deletion = action(old, old, delete, Verb::DeletePool, why);
            requiring_pools(snapshot, migration, deletion)
        }
        (Phase::Move | Phase::CleanUp, ..) => {
            return Ok(Plan::new(PlanKind::Migrate, snapshot, Vec::new()));
        }
    };
    Ok(Plan::new(PlanKind::Migrate, snapshot, vec![action]))
}

/// Returns the pools after a phase.
fn pools_after(snapshot: &Snapshot, migration: &Migration, phase: Phase) -> Vec<Pool> {
    let Migration { old, new, .. } = migration;
    let mut pools: Vec<Pool> = snapshot.pools.iter().map(|pool| pool.value.clone()).collect();
    match phase {
        // Without a new pool, pods move to the other pools, which stay as they are.
        Phase::Create => {
            if let Some(new) = new {
                pools.retain(|pool| pool.name != new.name);
                pools.push(Pool {
                    disabled: false,
                    ..new.clone()
                });
            }
        }
        Phase::Disable => {
            for pool in &mut pools {
                pool.disabled |= pool.name == old.name;
            }
        }
        Phase::Delete => pools.retain(|pool| pool.name != old.name),
        Phase::Move | Phase::CleanUp => {}
    }
    pools
}

/// The largest number of pools that a run requires to be unchanged, since one write can compare only so many objects.
/// Clusters have few pools.
pub const MOST_COMPARED: usize = 32;

/// Requires, for the action that disables or deletes the old pool, that the pools which then serve its pods are still
/// as they were read: the new pool or, if none was stated, the other enabled pools of the family.
fn requiring_pools(snapshot: &Snapshot, migration: &Migration, action: Action) -> Action {
    let Migration { old, new, .. } = migration;
    let mut unchanged = Vec::new();
    for stored in &snapshot.pools {
        let pool = &stored.value;
        let is_relied_on = match new {
            Some(new) => pool.name == new.name,
            None => pool.name != old.name && serves(pool, old.cidr),
        };
        if is_relied_on {
            let key = Key::Pool(pool.name.clone());
            unchanged.push((key, Precondition::At(stored.revision.clone())));
        }
    }
    // One write can compare only so many objects. Few clusters have as many pools.
    unchanged.truncate(MOST_COMPARED);
    action.requiring(unchanged)
}

/// The label that names the program that manages a pool.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Tigera's operator, which manages the pools in its Installation resource.
const OPERATOR: &str = "tigera-operator";

/// Refuses a pool that Tigera's operator manages and would change back.
fn refuse_managed(pool: &Pool, stored: &Document) -> Result<()> {
    if stored.label(MANAGED_BY) != Some(OPERATOR) {
        return Ok(());
    }
    let message = format!(
        "the pool {} is managed by {OPERATOR}, which reverts changes by others",
        pool.name
    );
    let hint =
        "change spec.calicoNetwork.ipPools in its Installation resource: the operator then changes the pools";
    Err(Refused::new(message).hint(hint))
}

/// Creates the new pool with the settings of the old one.
fn create(snapshot: &Snapshot, old: &Pool, new: &Pool, stored: &Document) -> Action {
    let fields = [
        ("cidr", new.cidr.to_string().into()),
        ("blockSize", new.block_size.into()),
        ("disabled", false.into()),
    ];
    let mut pool = stored.child(&new.name, fields);
    let successor = new.temporary_for.as_ref();
    let annotation = successor.map(|successor| json!(successor).to_string());
    pool.annotate(TEMPORARY_FOR, annotation);
    identify(&mut pool, snapshot, &new.name);

    let temporary = if successor.is_some() { "temporary, " } else { "" };
    let detail = format!(
        "{temporary}with the settings of {}, enabled, blocks of /{}",
        old.name, new.block_size
    );
    let create = Edit::Create(Key::Pool(new.name.clone()), Box::new(Object::Pool(pool)));
    action(old, new, create, Verb::CreatePool, detail)
}

fn action(old: &Pool, pool: &Pool, edit: Edit, verb: Verb, why: String) -> Action {
    // In a plan, the detail about a pool begins with the pool's name.
    let separator = if verb == Verb::CreatePool { ", " } else { ": " };
    let detail = format!("{}{separator}{why}", pool.name);
    let changes = vec![Change::new(verb, Subject::Pool(pool.cidr), detail, &[])];
    Action::new(format!("migration from pool {}", old.name), vec![edit], changes)
}
