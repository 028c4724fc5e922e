//! Migrations to another block size in the same CIDR. Blocks of two sizes would overlap, so all users move to a
//! temporary pool before the old one is deleted and created again. An annotation of the temporary pool describes its
//! successor, so the datastore shows the phase even while the old pool does not exist.

use std::collections::BTreeMap;

use calipam_model::IpNet;
use calipam_model::cidr::parse_pool;
use calipam_model::hint::{Call, Hint};
use calipam_model::pool::{Pool, Successor};
use calipam_model::snapshot::Snapshot;
use calipam_model::words::joined;
use serde::{Serialize, Serializer};

use super::new_pool::{made_of, name_of, require_block_size, require_free_range, same_cidr_refusal};
use super::objects::objects_in;
use super::{Migration, Target};
use crate::refusal::{Refused, Result};

/// One half of a migration to another block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leg {
    /// From the old pool to the temporary one.
    There,
    /// From the temporary pool back to the old CIDR, with blocks of the new size.
    Back,
}

/// A migration as one half of a change of block size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Detour<'m> {
    pub leg: Leg,
    #[serde(serialize_with = "name")]
    pub temporary: &'m Pool,
    #[serde(flatten)]
    pub successor: &'m Successor,
}

fn name<S: Serializer>(pool: &&Pool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&pool.name)
}

impl Migration {
    /// Returns the migration as one half of a change of block size; `None` if no temporary pool is involved.
    pub fn detour(&self) -> Option<Detour<'_>> {
        let new = self.new.as_ref()?;
        if let Some(successor) = &new.temporary_for
            && successor.cidr == self.old.cidr
        {
            return Some(Detour {
                leg: Leg::There,
                temporary: new,
                successor,
            });
        }
        if let Some(successor) = &self.old.temporary_for
            && successor.cidr == new.cidr
        {
            return Some(Detour {
                leg: Leg::Back,
                temporary: &self.old,
                successor,
            });
        }
        None
    }
}

/// Returns the temporary pool to create: the old one with another name and CIDR.
pub(super) fn made_for(snapshot: &Snapshot, old: &Pool, block_size: u8, via: Option<IpNet>) -> Result<Pool> {
    if block_size == old.block_size {
        let message = format!("the pool {} already has blocks of /{block_size}", old.name);
        return Err(Refused::new(message));
    }
    require_block_size(old.cidr, block_size)?;
    require_free_range(snapshot, old.cidr)?;
    let Some(cidr) = via else {
        return Err(same_cidr_refusal(old, block_size));
    };
    if let Some(other) = snapshot.pools.iter().find(|pool| pool.value.cidr == cidr) {
        // The pool has users of its own, which would have to move away together with those of the old pool.
        let message = format!(
            "{cidr} is the CIDR of the pool {}, which is not temporary",
            other.value.name
        );
        let hint = "name a CIDR that no pool has; or move to that pool permanently, with --to";
        return Err(Refused::new(message).hint(hint));
    }
    let successor = Successor {
        name: old.name.clone(),
        cidr: old.cidr,
        block_size,
    };
    Ok(Pool {
        temporary_for: Some(successor),
        ..made_of(snapshot, old, cidr, old.block_size, None)?
    })
}

/// A migration to another block size that has begun.
struct Begun<'s> {
    temporary: &'s Pool,
    successor: &'s Successor,
    /// The pool that users are leaving now.
    old: &'s Pool,
    target: Target,
}

impl<'s> Begun<'s> {
    /// Finds the next move around a temporary pool: into it, out of it, or into a new pool; `None` if the pool is not
    /// temporary.
    fn next_move(snapshot: &'s Snapshot, temporary: &'s Pool) -> Option<Self> {
        let successor = temporary.temporary_for.as_ref()?;
        let mut pools = snapshot.pools.iter().map(|pool| &pool.value);
        let other_pool = pools.find(|pool| pool.cidr == successor.cidr);

        let mut old = temporary;
        let mut target = Target::Network {
            cidr: successor.cidr,
            block_size: Some(successor.block_size),
            name: None,
        };
        if let Some(pool) = other_pool {
            let is_old_pool = pool.block_size != successor.block_size;
            // Users leave a disabled temporary pool, whatever the other pool's state.
            if is_old_pool && !temporary.disabled {
                old = pool;
                target = Target::Pool(temporary.name.clone());
            } else {
                target = Target::Pool(pool.name.clone());
            }
        }
        Some(Self {
            temporary,
            successor,
            old,
            target,
        })
    }

    /// Returns true if the name or CIDR is that of the temporary pool or its successor.
    fn concerns(&self, name: &str) -> bool {
        let Self {
            temporary, successor, ..
        } = self;
        is_named(name, &temporary.name, temporary.cidr) || is_named(name, &successor.name, successor.cidr)
    }

    /// Refuses a stated target that differs from that of the migration that has begun.
    fn check_target(&self, target: &Target) -> Result<()> {
        let Self {
            temporary, successor, ..
        } = self;
        let Target::SameNetwork { block_size, via } = target else {
            return Ok(());
        };
        let is_other_cidr = via.is_some_and(|via| via != temporary.cidr);
        if *block_size == successor.block_size && !is_other_cidr {
            return Ok(());
        }

        let Successor { cidr, block_size, .. } = successor;
        let name = &temporary.name;
        let message = format!(
            "the migration to blocks of /{block_size} in {cidr}, through the temporary pool {name}, has already begun"
        );
        let hint = "continue with {}; or abandon it, while the old pool still exists: {}";
        let ways = [
            Call::to(["migrate", "--apply", "--from", name]),
            Call::to(["migrate", "--from", name, "--to", "OLD-POOL"]),
        ];
        Err(Refused::new(message).hint(Hint::new(hint, ways)))
    }
}

/// Finds the old pool and the target. `from` is the name or CIDR of the old pool or, once a change of block size has
/// begun, of either of its pools. Without `from`, the old pool is the only disabled pool that has blocks or affinities,
/// the pool to which a new pool's name refers, or the pool that users leave during a change of block size. Returns
/// `None` if there is no pool `from`.
///
/// # Errors
/// If `from` is not stated and there is not exactly one such pool, or the target differs from that of a migration that
/// has begun.
pub fn find<'s>(
    snapshot: &'s Snapshot,
    from: Option<&str>,
    target: &Target,
) -> Result<Option<(&'s Pool, Target)>> {
    let pools = || snapshot.pools.iter().map(|pool| &pool.value);
    // A stated pool or network overrides the annotation of a temporary pool.
    let follows_annotations = matches!(target, Target::Unstated | Target::SameNetwork { .. });
    let mut begun_migrations: Vec<Begun<'s>> = Vec::new();
    if follows_annotations {
        begun_migrations.extend(pools().filter_map(|pool| Begun::next_move(snapshot, pool)));
    }

    if let Some(name) = from {
        if let Some(begun) = begun_migrations.into_iter().find(|begun| begun.concerns(name)) {
            begun.check_target(target)?;
            return Ok(Some((begun.old, begun.target)));
        }
        let named = pools().find(|pool| is_named(name, &pool.name, pool.cidr));
        return Ok(named.map(|pool| (pool, target.clone())));
    }

    // If a pool is found more than once, the last target counts: that of a temporary pool, if there is one.
    let mut old_pools: BTreeMap<&str, (&Pool, Target)> = BTreeMap::new();
    for pool in pools() {
        if pool.disabled && !objects_in(snapshot, pool.cidr).is_empty() {
            old_pools.insert(&pool.name, (pool, target.clone()));
        }
    }
    if follows_annotations {
        for (old, new_target) in replaced_pools(snapshot, target) {
            old_pools.insert(&old.name, (old, new_target));
        }
    }
    for begun in begun_migrations {
        old_pools.insert(&begun.old.name, (begun.old, begun.target));
    }

    if old_pools.len() > 1 {
        let names = joined(old_pools.into_keys(), ", ");
        let message = format!(
            "several pools are being migrated, or are disabled and have blocks or affinities: {names}"
        );
        return Err(Refused::new(message).hint("name one of them with --from"));
    }
    match old_pools.into_values().next() {
        Some(found) => Ok(Some(found)),
        None => Err(none_begun(snapshot)),
    }
}

/// Returns the pools that new pools were created to replace, each with its new pool as the target.
fn replaced_pools<'s>(snapshot: &'s Snapshot, stated_target: &Target) -> Vec<(&'s Pool, Target)> {
    let mut created: Vec<(&Pool, &Pool)> = Vec::new();
    for new in snapshot.pools.iter().map(|stored| &stored.value) {
        created.extend(made_from(snapshot, new).map(|old| (old, new)));
    }

    let mut replaced = Vec::new();
    for (old, new) in &created {
        let number_of_new = created.iter().filter(|(other, _)| other.name == old.name).count();
        // If there are several new pools, the operator has to name the target.
        let target = if number_of_new == 1 {
            Target::Pool(new.name.clone())
        } else {
            stated_target.clone()
        };
        replaced.push((*old, target));
    }
    replaced
}

/// The refusal if no pool shows that a migration has begun. After a clean-up, the old pool is disabled and empty, but it
/// may also be disabled for another reason, so the operator has to name it.
fn none_begun(snapshot: &Snapshot) -> Refused {
    let mut disabled: Vec<&str> = Vec::new();
    for pool in snapshot.pools.iter().map(|pool| &pool.value) {
        if pool.disabled && !pool.deleting {
            disabled.push(&pool.name);
        }
    }
    let hint: Hint = match disabled.as_slice() {
        [] => "name the pool to leave with --from; a migration to a pool with a name of its own (--to-name) is not seen without it".into(),
        [name] => Hint::new(
            "the pool {} is disabled and empty, as before the last phase of a migration: {} shows this phase",
            [
                Call::Name((*name).to_owned()),
                Call::to(["migrate", "--from", *name]),
            ],
        ),
        names => Hint::new(
            "these pools are disabled and empty, as before the last phase of a migration: {}; {} shows this phase",
            [
                Call::Name(joined(names, ", ")),
                Call::to(["migrate", "--from", "POOL"]),
            ],
        ),
    };
    Refused::new("no pool shows that a migration has begun").hint(hint)
}

/// Returns the pool that an enabled pool was created to replace. Only the name of the enabled pool refers to it.
fn made_from<'s>(snapshot: &'s Snapshot, new: &Pool) -> Option<&'s Pool> {
    let is_temporary = |pool: &Pool| pool.temporary_for.is_some();
    if is_temporary(new) || !new.is_enabled() {
        return None;
    }
    for old in snapshot.pools.iter().map(|stored| &stored.value) {
        if old.cidr == new.cidr || is_temporary(old) || name_of(old, new.cidr) != new.name {
            continue;
        }
        // If each could be named after the other, the older one was first.
        let could_be_made_from_new = name_of(new, old.cidr) == old.name;
        if !could_be_made_from_new || old.created < new.created {
            return Some(old);
        }
    }
    None
}

fn is_named(text: &str, name: &str, cidr: IpNet) -> bool {
    text == name || parse_pool(text) == Some(cidr)
}
