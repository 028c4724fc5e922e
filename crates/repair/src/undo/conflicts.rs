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
use calipam_model::snapshot::Source;
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
    pub(super) fn of(object: &UndoObject) -> Option<Self> {
        if object.left.as_ref().is_some_and(|left| left.value.is_some()) {
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

    /// True if an object that is created again would overlap another one.
    fn overlaps(&self, other: &Key, cidr: IpNet) -> bool {
        match (self, other) {
            (Self::Pool(own), Key::Pool(_)) => overlap(*own, cidr),
            // Calico resolves several affinities for the same block, and the run may have found them already.
            (Self::Blocks(own), Key::Block(_) | Key::Affinity(_)) => {
                own.iter().any(|own| *own != cidr && overlap(*own, cidr))
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
    step.objects.iter().find_map(|object| {
        let pool = deleted_pool(object)?;
        let is_stranded = |(key, cidr): &&(Key, IpNet)| {
            !matches!(key, Key::Pool(_))
                && pool.contains(cidr)
                && !pools.iter().any(|pool| pool.contains(cidr))
        };
        let (key, _) = existing.iter().find(is_stranded)?;
        Some(format!(
            "{} would be deleted, but {} is in it",
            object.key.named(),
            key.named()
        ))
    })
}

/// The largest difference between the clocks of machines, in seconds.
const CLOCKS: i64 = 60;

/// Refuses to create a block or affinity again in a pool that is newer than the run and has blocks of another size.
/// Otherwise, nodes would have overlapping blocks of both sizes.
fn of_another_size(object: &UndoObject, newer: &[&Pool]) -> Option<String> {
    Footprint::of(object)?;
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

/// Returns, for each step, the reason to refuse it: an object that it creates again would overlap another object or not
/// fit a newer pool; a block that the run required to be absent exists; or a pool that it deletes contains blocks or
/// affinities that are in no other pool. Overlaps with objects that the steps write themselves do not count.
pub(super) async fn refusals(
    datastore: &Datastore,
    steps: &[UndoStep],
    began: Option<Timestamp>,
) -> Result<Vec<Option<String>>> {
    let objects = || steps.iter().flat_map(|step| &step.objects);
    let own: BTreeSet<&Key> = objects().map(|object| &object.key).collect();
    let (existing, pools) = existing(datastore, steps).await?;
    let newer = |pool: &&Pool| {
        pool.created
            .zip(began)
            .is_some_and(|(created, began)| created.as_second() + CLOCKS >= began.as_second())
    };
    let newer: Vec<&Pool> = pools.iter().filter(newer).collect();
    let others: Vec<&(Key, IpNet)> = existing.iter().filter(|(key, _)| !own.contains(key)).collect();

    let again = objects()
        .filter_map(Footprint::of)
        .filter_map(|footprint| match footprint {
            Footprint::Pool(cidr) => Some(cidr),
            Footprint::Blocks(_) => None,
        });
    let deleted: BTreeSet<&Key> = objects()
        .filter(|object| deleted_pool(object).is_some())
        .map(|object| &object.key)
        .collect();
    let stays = |(key, _): &&(Key, IpNet)| matches!(key, Key::Pool(_)) && !deleted.contains(key);
    let left: Vec<IpNet> = again
        .chain(existing.iter().filter(stays).map(|(_, cidr)| *cidr))
        .collect();

    let refusal = |step: &UndoStep| {
        if let Some((key, _)) = others.iter().find(|(key, _)| step.absent.contains(key)) {
            return Some(format!("{} was created since the run", key.named()));
        }
        if let Some(reason) = stranded(step, &left, &existing) {
            return Some(reason);
        }
        if let Some(reason) = step
            .objects
            .iter()
            .find_map(|object| of_another_size(object, &newer))
        {
            return Some(reason);
        }
        step.objects.iter().find_map(|object| {
            let footprint = Footprint::of(object)?;
            let (other, _) = others.iter().find(|(key, cidr)| footprint.overlaps(key, *cidr))?;
            Some(format!(
                "{} would overlap {}, which did not exist before the run",
                object.key.named(),
                other.named()
            ))
        })
    };
    Ok(steps.iter().map(refusal).collect())
}

/// Reads pools, blocks and affinities if they can conflict with the undo. Blocks are read only if a pool is deleted, a
/// block has to be absent, or a footprint's block is missing: a block that exists overlaps no other block.
async fn existing(datastore: &Datastore, steps: &[UndoStep]) -> Result<(Vec<(Key, IpNet)>, Vec<Pool>)> {
    let objects = || steps.iter().flat_map(|step| &step.objects);
    let mut sources = BTreeSet::new();
    if objects().any(|object| matches!(Footprint::of(object), Some(Footprint::Pool(_)))) {
        sources.insert(Source::Pools);
    }
    if objects().any(|object| deleted_pool(object).is_some())
        || is_block_missing(datastore, steps).await?
        || steps.iter().any(|step| !step.absent.is_empty())
    {
        sources.extend([Source::Blocks, Source::Affinities, Source::Pools]);
    }
    if sources.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }

    let snapshot = datastore
        .observe_extent(&Extent::Sources(sources), &calipam_files::quiet())
        .await?;
    let pools = snapshot
        .pools
        .iter()
        .map(|pool| (Key::Pool(pool.value.name.clone()), pool.value.cidr));
    let blocks = snapshot
        .blocks
        .iter()
        .filter(|block| !block.value.content.is_deleted());
    let blocks = blocks
        .map(|block| block.value.key)
        .chain(snapshot.hidden_blocks());
    let affinities = snapshot
        .affinities
        .iter()
        .filter(|affinity| !affinity.value.deleted);
    let affinities = affinities.map(|affinity| &affinity.value.key);
    let keys = pools
        .chain(blocks.map(|cidr| (Key::Block(cidr), cidr)))
        .chain(affinities.map(|key| (Key::Affinity(key.clone()), key.cidr)))
        .collect();
    Ok((
        keys,
        snapshot.pools.iter().map(|pool| pool.value.clone()).collect(),
    ))
}

/// True if one of the blocks that the steps' footprints contain does not exist. Does not read the blocks that a step has
/// found: its write compares them.
async fn is_block_missing(datastore: &Datastore, steps: &[UndoStep]) -> Result<bool> {
    let mut unread: BTreeSet<Key> = BTreeSet::new();
    for step in steps {
        for footprint in step.objects.iter().filter_map(Footprint::of) {
            if let Footprint::Blocks(blocks) = footprint {
                let blocks = blocks.into_iter().map(Key::Block);
                unread.extend(blocks.filter(|block| !matches!(step.found.get(block), Some(Some(_)))));
            }
        }
    }
    let unread: Vec<Key> = unread.into_iter().collect();
    Ok(datastore.stored(&unread).await?.iter().any(Option::is_none))
}
