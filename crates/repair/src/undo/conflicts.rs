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

/// Refuses to delete a pool if a block or affinity would be in no pool afterwards. `pools` are the pools after the
/// undo.
fn stranded(step: &UndoStep, pools: &[IpNet], existing: &[(Key, IpNet)]) -> Option<String> {
    for object in &step.objects {
        let Some(deleted) = deleted_pool(object) else {
            continue;
        };
        for (key, cidr) in existing {
            let is_pool = matches!(key, Key::Pool(_));
            if is_pool || !deleted.contains(cidr) || pools.iter().any(|pool| pool.contains(cidr)) {
                continue;
            }
            return Some(format!(
                "{} would be deleted, but {} is in it",
                object.key.named(),
                key.named()
            ));
        }
    }
    None
}

/// Refuses to create a block or affinity again in a pool that is newer than the run and has blocks of another size.
/// Otherwise, nodes would have overlapping blocks of both sizes.
fn of_another_size(object: &UndoObject, newer: &[&Pool]) -> Option<String> {
    // An object that is not created again needs no check.
    Footprint::recreated(object)?;
    let cidr = match &object.key {
        Key::Block(cidr) => *cidr,
        Key::Affinity(key) => key.cidr,
        _ => return None,
    };
    let pool = newer
        .iter()
        .find(|pool| overlap(pool.cidr, cidr) && pool.block_size != cidr.prefix_len())?;
    let Pool { name, block_size, .. } = pool;
    Some(format!(
        "{} would be in the pool {name}, which is newer and has blocks of /{block_size}",
        object.key.named()
    ))
}

/// Returns, for each step, the reason to refuse it, if there is one: another object is in its way, or it deletes the
/// only pool of a block or affinity. Objects that the steps write themselves are not in the way.
pub(super) async fn refusals(
    datastore: &Datastore,
    steps: &[UndoStep],
    began: Option<Timestamp>,
) -> Result<Vec<Option<String>>> {
    let existing = existing(datastore, steps).await?;
    let newer_pools = pools_created_since(&existing.pools, began);

    let all_objects = || steps.iter().flat_map(|step| &step.objects);
    let own: BTreeSet<&Key> = all_objects().map(|object| &object.key).collect();
    let others: Vec<&(Key, IpNet)> = existing
        .ranges
        .iter()
        .filter(|(key, _)| !own.contains(key))
        .collect();
    let pools = pools_after(all_objects(), &existing.ranges);

    let mut refusals = Vec::with_capacity(steps.len());
    for step in steps {
        let reason = created_since_run(step, &others)
            .or_else(|| stranded(step, &pools, &existing.ranges))
            .or_else(|| {
                let mut objects = step.objects.iter();
                objects.find_map(|object| of_another_size(object, &newer_pools))
            })
            .or_else(|| overlapping(step, &others));
        refusals.push(reason);
    }
    Ok(refusals)
}

/// Returns the reason to refuse a step, if an object exists that it needs to be absent.
fn created_since_run(step: &UndoStep, others: &[&(Key, IpNet)]) -> Option<String> {
    let (key, _) = others.iter().find(|(key, _)| step.absent.contains(key))?;
    Some(format!("{} was created since the run", key.named()))
}

/// Returns the pools that can be newer than the beginning of the run, whose clock may differ from the server's.
fn pools_created_since(pools: &[Pool], began: Option<Timestamp>) -> Vec<&Pool> {
    let mut newer = Vec::new();
    for pool in pools {
        if let (Some(created), Some(began)) = (pool.created, began)
            // A creation time has whole seconds.
            && began.as_second() - created.as_second() <= CLOCK_SKEW.as_secs()
        {
            newer.push(pool);
        }
    }
    newer
}

/// Returns the CIDRs of the pools after the undo.
fn pools_after<'o>(objects: impl Iterator<Item = &'o UndoObject>, existing: &[(Key, IpNet)]) -> Vec<IpNet> {
    let mut pools = Vec::new();
    let mut deleted: BTreeSet<&Key> = BTreeSet::new();
    for object in objects {
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
fn overlapping(step: &UndoStep, others: &[&(Key, IpNet)]) -> Option<String> {
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

/// Reads pools, blocks and affinities if they can conflict with the undo. Blocks are read only if a pool is deleted, a
/// block has to be absent, or a footprint's block is missing: a block that exists overlaps no other block.
async fn existing(datastore: &Datastore, steps: &[UndoStep]) -> Result<Existing> {
    let sources = sources_of_conflicts(datastore, steps).await?;
    if sources.is_empty() {
        return Ok(Existing::default());
    }
    let snapshot = datastore
        .observe_extent(&Extent::Sources(sources), &calipam_files::quiet())
        .await?;
    Ok(Existing::of(&snapshot))
}

/// Returns the kinds of objects that can conflict with the undo; none for most undos.
async fn sources_of_conflicts(datastore: &Datastore, steps: &[UndoStep]) -> Result<BTreeSet<Source>> {
    let objects = || steps.iter().flat_map(|step| &step.objects);
    let mut sources = BTreeSet::new();
    let recreates_pool =
        objects().any(|object| matches!(Footprint::recreated(object), Some(Footprint::Pool(_))));
    if recreates_pool {
        sources.insert(Source::Pools);
    }

    let deletes_pool = objects().any(|object| deleted_pool(object).is_some());
    let needs_absent = steps.iter().any(|step| !step.absent.is_empty());
    if deletes_pool || needs_absent || is_block_missing(datastore, steps).await? {
        sources.extend([Source::Blocks, Source::Affinities, Source::Pools]);
    }
    Ok(sources)
}

impl Existing {
    /// Collects the pools of a snapshot, and the ranges of its pools, blocks and affinities.
    fn of(snapshot: &Snapshot) -> Self {
        let mut existing = Self::default();
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
