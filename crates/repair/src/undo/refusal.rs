//! Refuses to undo steps whose objects have changed since the run, or would conflict with other objects.

use std::collections::BTreeSet;

use calipam_datastore::Datastore;
use calipam_datastore::read::Extent;
use calipam_datastore::write::Stored;
use calipam_model::IpNet;
use calipam_model::cidr::overlap;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Source;
use jiff::Timestamp;

use super::restored::is_restored;
use super::{LeftVersion, NotUndone, UndoObject, UndoPlan, UndoStep};
use crate::error::Result;
use crate::journal::{compared_by_value, same_value};
use crate::lock;
use crate::session::check_guid;

/// The present state of an object that the undo should restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The object is as the run left it.
    AsLeft,
    /// The object is as it was before the run, for example after a killed undo.
    Undone,
    /// Other clients have changed the object.
    Changed,
}

impl State {
    pub(super) fn of(object: &UndoObject, now: Option<&Stored>) -> Self {
        if is_restored(&object.key, now.map(|now| &now.raw), object.before.as_ref()) {
            Self::Undone
        } else if is_left(object, now) {
            Self::AsLeft
        } else {
            Self::Changed
        }
    }
}

/// The present state of an object of a write that may still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    /// The object is the version that the write expects.
    Open,
    /// The object is another version with the same value: the write fails.
    Closed,
    /// The write has arrived, or another client has changed the object.
    Passed,
}

impl Fence {
    pub(super) fn of(object: &UndoObject, now: Option<&Stored>) -> Self {
        let Some((expected, now)) = object.left.as_ref().zip(now) else {
            return Self::Passed;
        };
        if !expected
            .value
            .as_ref()
            .is_some_and(|value| same_value(value, &now.raw))
        {
            Self::Passed
        } else if expected.revision == now.revision.to_string() {
            Self::Open
        } else {
            Self::Closed
        }
    }
}

/// Returns the reason to refuse objects that are undone together, if one of them has changed. If an object that the run
/// created is missing, an earlier undo may have deleted it. But if an object of an earlier phase is not undone yet, it
/// was another client that deleted it. This does not hold for `arrived` objects, which may have been written since that
/// undo.
pub(super) fn why_refused(found: &[(&UndoObject, State)], arrived: &BTreeSet<Key>) -> Option<String> {
    let is_first =
        |(object, state): &&(&UndoObject, State)| *state == State::AsLeft && !arrived.contains(&object.key);
    let begun = found
        .iter()
        .filter(is_first)
        .map(|(object, _)| object.phase())
        .min();
    let is_gone = |object: &UndoObject| {
        let was_created =
            object.before.is_none() && object.left.as_ref().is_some_and(|left| left.value.is_some());
        was_created && begun.is_some_and(|phase| phase < object.phase())
    };
    let changed = found.iter().find(|(object, state)| match state {
        State::Changed => true,
        State::Undone => is_gone(object),
        State::AsLeft => false,
    });
    changed.map(|(object, _)| format!("{} has changed since the run", object.key.named()))
}

/// Explains that one of a step's `awaited` objects has changed: a late write of the run arrived, or another client
/// wrote to it.
pub(super) fn changed_since_plan(object: &UndoObject) -> String {
    format!(
        "{} has changed since this undo was planned: undo the run again",
        object.key.named()
    )
}

/// Returns true if the object is still as the run left it.
fn is_left(object: &UndoObject, now: Option<&Stored>) -> bool {
    match (&object.left, now) {
        (None, None) => true,
        // The object was marked deleted, and has been deleted since.
        (Some(left), None) => left.value.is_none(),
        // An undo was killed between the two steps of a deletion. The new undo finishes it.
        (_, Some(now)) if object.before.is_none() && now.is_deleted() => true,
        (Some(left), Some(now)) => {
            let is_value = left
                .value
                .as_ref()
                .map_or(now.is_deleted(), |value| same_value(value, &now.raw));
            (left.revision == now.revision.to_string() || compared_by_value(object.key.clone())) && is_value
        }
        _ => false,
    }
}

impl UndoStep {
    /// Returns true if one of the step's objects is a pool.
    pub fn writes_pools(&self) -> bool {
        self.objects
            .iter()
            .any(|object| matches!(object.key, Key::Pool(_)))
    }

    /// Returns the objects to check: the step's own objects, the awaited ones and those of late writes.
    fn checked(&self) -> impl Iterator<Item = &UndoObject> {
        self.objects.iter().chain(&self.awaited).chain(&self.fences)
    }
}

impl UndoPlan {
    /// Reads the objects as they are now. Skips steps whose objects have changed since the run, or would conflict with
    /// other objects. Leaves out steps that find everything as it was before the run.
    pub async fn read(mut self, datastore: &Datastore) -> Result<Self> {
        let information = datastore.stored(&[lock::key()]).await?.pop().flatten();
        check_guid(information.as_ref(), "journal", &self.cluster)?;
        let keys: Vec<Key> = self
            .steps
            .iter()
            .flat_map(UndoStep::checked)
            .map(|object| object.key.clone())
            .collect();
        let mut stored = datastore.stored(&keys).await?.into_iter();

        for mut step in std::mem::take(&mut self.steps) {
            let mut now = || stored.next().flatten();
            let states: Vec<State> = step
                .objects
                .iter()
                .map(|object| State::of(object, now().as_ref()))
                .collect();
            let awaited: Vec<State> = step
                .awaited
                .iter()
                .map(|object| State::of(object, now().as_ref()))
                .collect();
            let fences: Vec<Fence> = step
                .fences
                .iter()
                .map(|object| Fence::of(object, now().as_ref()))
                .collect();

            let created = awaited.iter().position(|state| *state != State::Undone);
            let passed = fences.iter().position(|fence| *fence == Fence::Passed);
            let late = created.map(|index| &step.awaited[index]);
            let late = late.or_else(|| passed.map(|index| &step.fences[index]));
            let found: Vec<_> = step.objects.iter().zip(states.iter().copied()).collect();
            if let Some(reason) = why_refused(&found, &step.arrived).or_else(|| late.map(changed_since_plan))
            {
                self.skip(step, reason);
                continue;
            }

            if states.iter().all(|state| *state == State::Undone) {
                self.already += step.objects.len();
                step.objects.clear();
            }
            if !step.objects.is_empty() || fences.contains(&Fence::Open) {
                self.steps.push(step);
            }
        }

        // An object that only a refused step would have deleted can conflict with other steps.
        loop {
            let refusals = refusals(datastore, &self.steps, self.began).await?;
            if refusals.iter().all(Option::is_none) {
                return Ok(self);
            }
            for (step, refusal) in std::mem::take(&mut self.steps).into_iter().zip(refusals) {
                if let Some(reason) = refusal {
                    self.skip(step, reason)
                } else {
                    self.steps.push(step)
                }
            }
        }
    }

    /// Returns the pools after the undo, given the present ones.
    pub fn pools_after(&self, mut pools: Vec<Pool>) -> Vec<Pool> {
        for object in self.steps.iter().flat_map(|step| &step.objects) {
            let Key::Pool(name) = &object.key else { continue };
            pools.retain(|pool| pool.name != *name);
            let before = object
                .before
                .as_ref()
                .and_then(|before| Pool::parse(name, before).ok());
            pools.extend(before.map(|pool| pool.value));
        }
        pools
    }

    /// Skips the steps that write pools.
    pub fn keep_pools(&mut self, reason: &str) {
        let skipped: Vec<UndoStep> = self.steps.extract_if(.., |step| step.writes_pools()).collect();
        skipped
            .into_iter()
            .for_each(|step| self.skip(step, reason.to_owned()));
    }

    /// Makes the steps that write pools depend on other objects staying at the versions that were read.
    pub fn depend_on(&mut self, others: &[(Key, Stored)]) {
        let as_read = |(key, stored): &(Key, Stored)| {
            let version = LeftVersion {
                revision: stored.revision.to_string(),
                value: Some(stored.raw.clone()),
            };
            UndoObject::unchanged(key.clone(), Some(version))
        };
        for step in self.steps.iter_mut().filter(|step| step.writes_pools()) {
            step.awaited.extend(others.iter().map(as_read));
        }
    }

    fn skip(&mut self, step: UndoStep, reason: String) {
        let keys = step.objects.into_iter().map(|object| object.key).collect();
        self.skipped.push(NotUndone { keys, reason });
    }
}

/// The ranges that a restored object occupies.
enum Footprint {
    Pool(IpNet),
    /// A block, the block of an affinity, or the blocks in which a handle has addresses.
    Blocks(Vec<IpNet>),
}

impl Footprint {
    /// Returns the ranges of an object; `None` if the undo does not create the object again.
    fn of(object: &UndoObject) -> Option<Self> {
        let stays = object.left.as_ref().is_some_and(|left| left.value.is_some());
        let before = object.before.as_ref().filter(|_| !stays)?;
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
    let footprints: Vec<Footprint> = objects().filter_map(Footprint::of).collect();
    let mut sources = BTreeSet::new();
    if footprints
        .iter()
        .any(|footprint| matches!(footprint, Footprint::Pool(_)))
    {
        sources.insert(Source::Pools);
    }
    if objects().any(|object| deleted_pool(object).is_some())
        || is_block_missing(datastore, &footprints).await?
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

async fn is_block_missing(datastore: &Datastore, footprints: &[Footprint]) -> Result<bool> {
    let blocks = footprints.iter().filter_map(|footprint| match footprint {
        Footprint::Blocks(blocks) => Some(blocks),
        Footprint::Pool(_) => None,
    });
    let created: BTreeSet<Key> = blocks.flatten().map(|cidr| Key::Block(*cidr)).collect();
    let created: Vec<Key> = created.into_iter().collect();
    Ok(datastore.stored(&created).await?.iter().any(Option::is_none))
}

#[cfg(test)]
mod tests {
    use calipam_model::cidr::parse_cidr;

    use super::*;
    use crate::undo::is_same_version;

    /// A handle that counts `left` addresses in 10.0.0.0/30 after the run, and counted `before` addresses before it.
    fn handle(left: Option<u8>, before: Option<u8>) -> UndoObject {
        let value = |count| format!(r#"{{"handleID":"h","block":{{"10.0.0.0/30":{count}}}}}"#).into();
        let left = LeftVersion {
            revision: "7".into(),
            value: left.map(value),
        };
        UndoObject {
            key: Key::Handle("h".into()),
            left: Some(left),
            before: before.map(value),
        }
    }

    #[test]
    fn a_handle_is_written_before_the_block_where_it_counts_more_again() {
        let phase = |left, before| handle(Some(left), Some(before)).phase();
        assert_eq!([phase(1, 2), phase(2, 1), phase(2, 2)], [0, 2, 2]);
        assert_eq!(
            [handle(None, Some(1)).phase(), handle(Some(1), None).phase()],
            [0, 2]
        );
    }

    #[test]
    fn a_version_is_the_same_by_revision_and_value() {
        let version = |revision: &str, value: u8| {
            handle(Some(value), None).left.map(|left| LeftVersion {
                revision: revision.into(),
                ..left
            })
        };
        let is_same = |other: Option<LeftVersion>| {
            is_same_version(&Key::Handle("h".into()), version("7", 1).as_ref(), other.as_ref())
        };
        let expected = [true, false, false, false];
        assert_eq!(
            [version("7", 1), version("8", 1), version("7", 2), None].map(is_same),
            expected
        );
        assert!(is_same_version(&Key::Handle("h".into()), None, None));
    }

    #[test]
    fn an_existing_object_has_no_footprint() {
        let blocks = |object: UndoObject| match Footprint::of(&object) {
            Some(Footprint::Blocks(blocks)) => blocks,
            Some(Footprint::Pool(_)) | None => Vec::new(),
        };
        assert_eq!(
            blocks(handle(None, Some(1))),
            [parse_cidr("10.0.0.0/30").unwrap()]
        );
        assert!(blocks(handle(Some(2), Some(1))).is_empty() && blocks(handle(Some(2), None)).is_empty());
    }
}
