//! Affinities and handles: who holds blocks and addresses.

use std::collections::BTreeMap;

use calipam_check::Scope;
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::text::TextRef;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::addresses::{AddressChange, handles_of};
use super::objects::ChangeKind;
use super::uncompared::Hidden;
use crate::FastMap;

/// An affinity that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AffinityChange {
    /// The holder: a node, or the name of a virtual owner.
    pub node: String,
    pub cidr: IpNet,
    /// `host`, `virtual`, or another type.
    #[serde(rename = "type")]
    pub kind: String,
    pub change: ChangeKind,
    /// Its state: `pending`, `confirmed` or `pendingDeletion`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

pub(crate) fn affinities(
    old: &Snapshot,
    new: &Snapshot,
    hidden: &Hidden,
    scope: &Scope,
    both_read: bool,
) -> Vec<AffinityChange> {
    if !both_read {
        return Vec::new();
    }
    let mut all: BTreeMap<&AffinityKey, [Option<&Affinity>; 2]> = BTreeMap::new();
    for (side, snapshot) in [old, new].into_iter().enumerate() {
        let live = snapshot.affinities.iter().map(|a| &a.value).filter(|affinity| !affinity.deleted);
        live.for_each(|affinity| all.entry(&affinity.key).or_default()[side] = Some(affinity));
    }
    let is_wanted = |key: &AffinityKey| {
        let is_hidden = !hidden.is_empty() && hidden.has(&Key::Affinity(key.clone()));
        scope.has_network(key.cidr) && scope.has_node(&key.node) && !is_hidden
    };
    all.into_iter()
        .filter(|(key, _)| is_wanted(key))
        .filter_map(|(key, states)| {
            let [before, after] = states.map(|affinity| affinity.map(|a| a.state.to_string()));
            let change = ChangeKind::of(&before, &after)?;
            let (node, cidr, kind) = (key.node.clone(), key.cidr, key.kind.to_string());
            Some(AffinityChange { node, cidr, kind, change, before, after })
        })
        .collect()
}

/// A handle that differs.
#[derive(Clone, Copy, Debug)]
pub struct HandleChange<'s> {
    pub id: TextRef<'s>,
    pub change: ChangeKind,
    pub before: Option<&'s Handle>,
    pub after: Option<&'s Handle>,
}

/// The addresses that a handle claims in a block.
#[derive(Serialize)]
struct Claimed {
    block: IpNet,
    count: i64,
}

impl HandleChange<'_> {
    /// Addresses in all blocks before and after.
    pub fn counts(&self) -> [i64; 2] {
        [self.before, self.after].map(|handle| handle.map_or(0, |h| h.blocks().map(|(_, count)| count).sum()))
    }
}

impl Serialize for HandleChange<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let claimed = |handle: &Handle| -> Vec<Claimed> {
            handle.blocks().map(|(block, count)| Claimed { block, count }).collect()
        };
        let mut object = serializer.serialize_struct("HandleChange", 4)?;
        object.serialize_field("id", &self.id.to_string())?;
        object.serialize_field("change", &self.change)?;
        match self.before {
            Some(handle) => object.serialize_field("before", &claimed(handle))?,
            None => object.skip_field("before")?,
        }
        match self.after {
            Some(handle) => object.serialize_field("after", &claimed(handle))?,
            None => object.skip_field("after")?,
        }
        object.end()
    }
}

/// Handles that differ; in a scope those that the changed addresses name.
pub(crate) fn handles<'s>(
    old: &'s Snapshot,
    new: &'s Snapshot,
    hidden: &Hidden,
    addresses: &[AddressChange<'s>],
    scope: &Scope,
    both_read: bool,
) -> Vec<HandleChange<'s>> {
    if !both_read {
        return Vec::new();
    }
    let named = (!scope.is_everything()).then(|| handles_of(addresses));
    let is_wanted = |id: TextRef<'_>| {
        let is_named =
            named.as_ref().is_none_or(|named| named.contains(id.cut_at_carriage_return().packed()));
        is_named && (hidden.is_empty() || !hidden.has(&Key::Handle(id.to_string())))
    };
    let Unequal { gone, changed, added } = unequal(live(old), live(new));
    let gone = gone.into_iter().map(|(_, handle)| (handle.id(), ChangeKind::Gone, Some(handle), None));
    let changed = changed
        .into_iter()
        .map(|(_, [before, after])| (after.id(), ChangeKind::Changed, Some(before), Some(after)));
    let added = added.into_iter().map(|(_, handle)| (handle.id(), ChangeKind::New, None, Some(handle)));
    let all = gone.chain(changed).chain(added).filter(|(id, ..)| is_wanted(*id));
    all.map(|(id, change, before, after)| HandleChange { id, change, before, after }).collect()
}

/// The handles of two states that differ, each list in the order of its state, with the place there: what changed in that
/// of the later one.
#[derive(Default)]
struct Unequal<'s> {
    gone: Vec<(usize, &'s Handle)>,
    changed: Vec<(usize, [&'s Handle; 2])>,
    added: Vec<(usize, &'s Handle)>,
}

/// Brings the handles of two states together by ID. Both are nearly always in the same order, so that they are walked side by
/// side: only what has no partner at its place waits for one that comes later.
fn unequal<'s>(old: impl Iterator<Item = &'s Handle>, new: impl Iterator<Item = &'s Handle>) -> Unequal<'s> {
    type Waiting<'s> = FastMap<&'s [u8], (usize, &'s Handle)>;
    let take = |waiting: &mut Waiting<'s>, handle: Option<&(usize, &'s Handle)>| {
        let (_, handle) = handle.filter(|_| !waiting.is_empty())?;
        waiting.remove(handle.id().packed())
    };
    let (mut old, mut new) = (old.enumerate().peekable(), new.enumerate().peekable());
    let (mut old_waits, mut new_waits) = (Waiting::default(), Waiting::default());
    let mut found = Unequal::default();
    let mut compare = |place: usize, before: &'s Handle, after: &'s Handle| {
        if !before.blocks().eq(after.blocks()) {
            found.changed.push((place, [before, after]));
        }
    };
    loop {
        if let Some((place, after)) = take(&mut new_waits, old.peek()) {
            old.next().iter().for_each(|(_, before)| compare(place, before, after));
        } else if let Some((_, before)) = take(&mut old_waits, new.peek()) {
            new.next().iter().for_each(|(place, after)| compare(*place, before, after));
        } else {
            match (old.next(), new.next()) {
                (None, None) => break,
                (Some((_, before)), Some((place, after))) if before.id() == after.id() => {
                    compare(place, before, after);
                }
                (before, after) => {
                    old_waits.extend(before.map(|own| (own.1.id().packed(), own)));
                    new_waits.extend(after.map(|own| (own.1.id().packed(), own)));
                }
            }
        }
    }
    found.gone.extend(old_waits.into_values());
    found.added.extend(new_waits.into_values());
    found.gone.sort_unstable_by_key(|(place, _)| *place);
    found.changed.sort_unstable_by_key(|(place, _)| *place);
    found.added.sort_unstable_by_key(|(place, _)| *place);
    found
}

fn live(snapshot: &Snapshot) -> impl Iterator<Item = &Handle> {
    snapshot.handles.iter().map(|handle| &handle.value).filter(|handle| !handle.is_deleted())
}
