//! Conflicts of an undo: objects that it would create again overlap others, and pools that it would delete are still
//! needed.

use std::collections::BTreeSet;

use calipam_datastore::Datastore;
use calipam_datastore::read::Extent;
use calipam_model::IpNet;
use calipam_model::cidr::overlap;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::{Snapshot, Source};
use calipam_model::time::CLOCK_SKEW;
use jiff::Timestamp;

use super::{UndoObject, UndoStep};
use crate::error::Result;

/// The ranges that a restored object occupies.
pub(super) enum Footprint {
    Pool(IpNet),
    /// A block, the block of an affinity, or the blocks in which a handle has addresses.
    Blocks(Vec<IpNet>),
}

impl Footprint {
    /// Returns the ranges of an object; `None` if the undo does not create the object again.
    pub(super) fn recreated(object: &UndoObject) -> Option<Self> {
        let is_present = object.left.as_ref().is_some_and(|left| left.value.is_some());
        if is_present {
            return None;
        }
        let before = object.before.as_ref()?;
        match &object.key {
            Key::Pool(name) => Some(Self::Pool(Pool::parse(name, before).ok()?.value.cidr)),
            Key::Block(cidr) => Some(Self::Blocks(vec![*cidr])),
            Key::Affinity(key) => Some(Self::Blocks(vec![key.cidr])),
            Key::Handle(id) => {
                let handle = Handle::parse(id, before).ok()?;
                Some(Self::Blocks(handle.blocks().map(|(cidr, _)| cidr).collect()))
            }
            _ => None,
        }
    }

    /// True if the ranges overlap the object `other`, whose CIDR is `cidr`.
    fn overlaps(&self, other: &Key, cidr: IpNet) -> bool {
        match (self, other) {
            (Self::Pool(pool), Key::Pool(_)) => overlap(*pool, cidr),
            // A block with the same CIDR is no conflict: Calico resolves several affinities for one block, and the run
            // may have found them already.
            (Self::Blocks(blocks), Key::Block(_) | Key::Affinity(_)) => {
                blocks.iter().any(|block| *block != cidr && overlap(*block, cidr))
            }
            _ => false,
        }
    }
}

/// Returns the CIDR of a pool that the run created and the undo deletes.
fn deleted_pool(object: &UndoObject) -> Option<IpNet> {
    let (Key::Pool(name), None) = (&object.key, &object.before) else {
        return None;
    };
    let left = object.left.as_ref()?.value.as_ref()?;
    Some(Pool::parse(name, left).ok()?.value.cidr)
}

/// Refuses to delete a pool if a block or affinity in it would be in none of the `remaining` pools, which are those
/// after the undo.
fn deletion_conflict(step: &UndoStep, remaining: &[IpNet], existing: &[(Key, IpNet)]) -> Option<String> {
    for object in &step.objects {
        let Some(deleted) = deleted_pool(object) else {
            continue;
        };
        for (key, cidr) in existing {
            let loses_pool = !matches!(key, Key::Pool(_)) && deleted.contains(cidr);
            if loses_pool && !remaining.iter().any(|pool| pool.contains(cidr)) {
                return Some(format!(
                    "{} would be deleted, but {} is in it",
                    object.key.named(),
                    key.named()
                ));
            }
        }
    }
    None
}

/// Refuses to create a block or affinity again in a pool that is newer than the run and has blocks of another size.
/// Otherwise, nodes would have overlapping blocks of both sizes.
fn block_size_conflict(step: &UndoStep, newer_pools: &[&Pool]) -> Option<String> {
    for object in &step.objects {
        let Some(cidr) = recreated_block(object) else {
            continue;
        };
        let has_other_size = |pool: &Pool| overlap(pool.cidr, cidr) && pool.block_size != cidr.prefix_len();
        if let Some(pool) = newer_pools.iter().find(|pool| has_other_size(pool)) {
            let Pool { name, block_size, .. } = pool;
            return Some(format!(
                "{} would be in the pool {name}, which is newer and has blocks of /{block_size}",
                object.key.named()
            ));
        }
    }
    None
}

/// Returns the CIDR of a block or affinity that the undo creates again.
fn recreated_block(object: &UndoObject) -> Option<IpNet> {
    Footprint::recreated(object)?;
    match &object.key {
        Key::Block(cidr) => Some(*cidr),
        Key::Affinity(key) => Some(key.cidr),
        _ => None,
    }
}

/// Returns, for each step, the reason to refuse it, if there is one: another object is in its way, or it deletes the
/// only pool of a block or affinity. Objects that the steps write themselves are not in the way.
pub(super) async fn refusals(
    datastore: &Datastore,
    steps: &[UndoStep],
    began: Option<Timestamp>,
) -> Result<Vec<Option<String>>> {
    let existing = existing(datastore, steps).await?;
    let newer_pools = newer_pools(&existing.pools, began);
    let remaining_pools = pools_after(steps, &existing.ranges);
    let written: BTreeSet<&Key> = all_objects(steps).map(|object| &object.key).collect();
    let others: Vec<&(Key, IpNet)> = existing
        .ranges
        .iter()
        .filter(|(key, _)| !written.contains(key))
        .collect();

    let mut refusals = Vec::with_capacity(steps.len());
    for step in steps {
        let refusal = created_conflict(step, &others)
            .or_else(|| deletion_conflict(step, &remaining_pools, &existing.ranges))
            .or_else(|| block_size_conflict(step, &newer_pools))
            .or_else(|| overlap_conflict(step, &others));
        refusals.push(refusal);
    }
    Ok(refusals)
}

/// Returns the objects that the steps restore.
fn all_objects(steps: &[UndoStep]) -> impl Iterator<Item = &UndoObject> {
    steps.iter().flat_map(|step| &step.objects)
}

/// Returns the pools that may be newer than a run that began at a time; none if that time is unknown.
fn newer_pools(pools: &[Pool], began: Option<Timestamp>) -> Vec<&Pool> {
    let Some(began) = began else {
        return Vec::new();
    };
    // Whole seconds, since a creation time has no fraction. The two times are from different clocks.
    let may_be_newer = |created: Timestamp| began.as_second() - created.as_second() <= CLOCK_SKEW.as_secs();
    pools
        .iter()
        .filter(|pool| pool.created.is_some_and(may_be_newer))
        .collect()
}

/// Refuses a step if an object that had to be absent for the repair exists now.
fn created_conflict(step: &UndoStep, others: &[&(Key, IpNet)]) -> Option<String> {
    let (created, _) = others.iter().find(|(key, _)| step.absent.contains(key))?;
    Some(format!("{} was created since the run", created.named()))
}

/// Returns the CIDRs of the pools after the undo.
fn pools_after(steps: &[UndoStep], existing: &[(Key, IpNet)]) -> Vec<IpNet> {
    let mut pools = Vec::new();
    let mut deleted: BTreeSet<&Key> = BTreeSet::new();
    for object in all_objects(steps) {
        if let Some(Footprint::Pool(cidr)) = Footprint::recreated(object) {
            pools.push(cidr);
        }
        if deleted_pool(object).is_some() {
            deleted.insert(&object.key);
        }
    }
    for (key, cidr) in existing {
        if matches!(key, Key::Pool(_)) && !deleted.contains(key) {
            pools.push(*cidr);
        }
    }
    pools
}

/// Refuses to create an object again that would overlap an object that the undo does not write.
fn overlap_conflict(step: &UndoStep, others: &[&(Key, IpNet)]) -> Option<String> {
    for object in &step.objects {
        let Some(footprint) = Footprint::recreated(object) else {
            continue;
        };
        if let Some((other, _)) = others.iter().find(|(key, cidr)| footprint.overlaps(key, *cidr)) {
            // The journal does not say whether the other object existed before the run.
            return Some(format!("{} would overlap {}", object.key.named(), other.named()));
        }
    }
    None
}

/// The objects in the datastore that an undo can conflict with.
#[derive(Default)]
struct Existing {
    /// The pools, blocks and affinities, each with its CIDR.
    ranges: Vec<(Key, IpNet)>,
    pools: Vec<Pool>,
}

/// Reads pools, blocks and affinities if they can conflict with the undo.
async fn existing(datastore: &Datastore, steps: &[UndoStep]) -> Result<Existing> {
    let sources = conflicting_sources(datastore, steps).await?;
    if sources.is_empty() {
        return Ok(Existing::default());
    }
    let extent = Extent::Sources(sources);
    let snapshot = datastore.observe_extent(&extent, &calipam_files::quiet()).await?;
    Ok(existing_ranges(&snapshot))
}

/// Returns the sources of objects that can conflict with the undo. Blocks are needed only if a pool is deleted, a block
/// has to be absent, or a footprint's block is missing: a block that exists overlaps no other block.
async fn conflicting_sources(datastore: &Datastore, steps: &[UndoStep]) -> Result<BTreeSet<Source>> {
    let deletes_pool = all_objects(steps).any(|object| deleted_pool(object).is_some());
    let needs_absence = steps.iter().any(|step| !step.absent.is_empty());
    if deletes_pool || is_block_missing(datastore, steps).await? || needs_absence {
        return Ok(BTreeSet::from([
            Source::Blocks,
            Source::Affinities,
            Source::Pools,
        ]));
    }

    let creates_pool =
        all_objects(steps).any(|object| matches!(Footprint::recreated(object), Some(Footprint::Pool(_))));
    if creates_pool {
        return Ok(BTreeSet::from([Source::Pools]));
    }
    Ok(BTreeSet::new())
}

/// Collects the pools, blocks and affinities of a snapshot, without those that are marked deleted.
fn existing_ranges(snapshot: &Snapshot) -> Existing {
    let mut existing = Existing::default();
    for pool in snapshot.pools.iter().map(|stored| &stored.value) {
        existing.ranges.push((Key::Pool(pool.name.clone()), pool.cidr));
        existing.pools.push(pool.clone());
    }
    for block in snapshot.blocks.iter().map(|stored| &stored.value) {
        if !block.content.is_deleted() {
            existing.ranges.push((Key::Block(block.key), block.key));
        }
    }
    for cidr in snapshot.hidden_blocks() {
        existing.ranges.push((Key::Block(cidr), cidr));
    }
    for affinity in snapshot.affinities.iter().map(|stored| &stored.value) {
        if !affinity.deleted {
            let key = affinity.key.clone();
            existing.ranges.push((Key::Affinity(key), affinity.key.cidr));
        }
    }
    existing
}

/// True if one of the blocks that the steps' footprints contain does not exist. Does not read the blocks that a step has
/// found: its write compares them.
async fn is_block_missing(datastore: &Datastore, steps: &[UndoStep]) -> Result<bool> {
    let mut unread: BTreeSet<Key> = BTreeSet::new();
    for step in steps {
        for object in &step.objects {
            let Some(Footprint::Blocks(blocks)) = Footprint::recreated(object) else {
                continue;
            };
            for key in blocks.into_iter().map(Key::Block) {
                if !matches!(step.found.get(&key), Some(Some(_))) {
                    unread.insert(key);
                }
            }
        }
    }
    let unread: Vec<Key> = unread.into_iter().collect();
    Ok(datastore.stored(&unread).await?.iter().any(Option::is_none))
}
