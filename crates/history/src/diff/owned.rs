//! Compares affinities and handles.

use std::collections::BTreeMap;

use calipam_check::Scope;
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey};
use calipam_model::display::text;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::text::TextRef;
use serde::{Serialize, Serializer};

use super::addresses::{AddressChange, handles_of};
use super::uncompared::Hidden;
use crate::FastMap;
use crate::block_change::Change;

/// A changed affinity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AffinityChange {
    /// The holder: a node, or the name of a virtual owner.
    pub node: String,
    pub cidr: IpNet,
    /// `host`, `virtual`, or another type.
    #[serde(rename = "type")]
    pub kind: String,
    pub change: Change,
    /// The state, such as `confirmed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Compares the affinities in scope by their states, in the order of their keys. Leaves out those that cannot be
/// decoded on one side.
pub(crate) fn affinities(
    old: &Snapshot,
    new: &Snapshot,
    hidden: &Hidden,
    scope: &Scope,
) -> Vec<AffinityChange> {
    // The check of an empty set comes first, because it saves the copy of the key.
    let is_hidden = |key: &AffinityKey| !hidden.is_empty() && hidden.has(&Key::Affinity(key.clone()));
    let is_in_scope = |key: &AffinityKey| scope.has_network(key.cidr) && scope.has_node(&key.node);
    let state = |affinity: Option<&Affinity>| Some(affinity?.state.to_string());
    let mut changes = Vec::new();
    for (key, affinities) in affinities_by_key(old, new) {
        if !is_in_scope(key) || is_hidden(key) {
            continue;
        }
        let [before, after] = affinities.map(state);
        if let Some(change) = Change::of(&before, &after) {
            changes.push(AffinityChange {
                node: key.node.clone(),
                cidr: key.cidr,
                kind: key.kind.to_string(),
                change,
                before,
                after,
            });
        }
    }
    changes
}

/// Returns the affinities of both snapshots by key, each as it is in the old and in the new one. Leaves out those that
/// are marked deleted.
fn affinities_by_key<'s>(
    old: &'s Snapshot,
    new: &'s Snapshot,
) -> BTreeMap<&'s AffinityKey, [Option<&'s Affinity>; 2]> {
    let mut affinities: BTreeMap<&AffinityKey, [Option<&Affinity>; 2]> = BTreeMap::new();
    for (side, snapshot) in [old, new].into_iter().enumerate() {
        for affinity in snapshot.affinities.iter().map(|stored| &stored.value) {
            if !affinity.deleted {
                affinities.entry(&affinity.key).or_default()[side] = Some(affinity);
            }
        }
    }
    affinities
}

/// A changed handle.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HandleChange<'s> {
    #[serde(serialize_with = "text")]
    pub id: TextRef<'s>,
    pub change: Change,
    #[serde(serialize_with = "claimed", skip_serializing_if = "Option::is_none")]
    pub before: Option<&'s Handle>,
    #[serde(serialize_with = "claimed", skip_serializing_if = "Option::is_none")]
    pub after: Option<&'s Handle>,
}

/// The number of addresses that a handle claims in a block.
#[derive(Serialize)]
struct Claimed {
    block: IpNet,
    count: i64,
}

fn claimed<S: Serializer>(handle: &Option<&Handle>, serializer: S) -> Result<S::Ok, S::Error> {
    let blocks = handle.iter().flat_map(|handle| handle.blocks());
    serializer.collect_seq(blocks.map(|(block, count)| Claimed { block, count }))
}

impl HandleChange<'_> {
    /// Returns the total number of addresses that the handle claims, before and after.
    pub fn counts(&self) -> [i64; 2] {
        [self.before, self.after].map(|handle| handle.map_or(0, Handle::total))
    }
}

/// Compares handles. If the scope is limited, compares only the handles of changed addresses.
pub(crate) fn handles<'s>(
    old: &'s Snapshot,
    new: &'s Snapshot,
    hidden: &Hidden,
    addresses: &[AddressChange<'s>],
    scope: &Scope,
) -> Vec<HandleChange<'s>> {
    let mut old_handles: FastMap<&[u8], (usize, &Handle)> = live(old)
        .enumerate()
        .map(|(position, handle)| (handle.id().packed(), (position, handle)))
        .collect();
    let mut changed = Vec::new();
    let mut added = Vec::new();
    // What is left of the old handles in the end has been removed.
    for handle in live(new) {
        match old_handles.remove(handle.id().packed()) {
            Some((_, old)) if old.blocks().eq(handle.blocks()) => {}
            Some((_, old)) => changed.push((Change::Changed, [Some(old), Some(handle)])),
            None => added.push((Change::New, [None, Some(handle)])),
        }
    }
    // The remaining handles exist no longer. They keep their order.
    let mut removed: Vec<(usize, &Handle)> = old_handles.into_values().collect();
    removed.sort_unstable_by_key(|(position, _)| *position);
    let removed = removed
        .into_iter()
        .map(|(_, handle)| (Change::Gone, [Some(handle), None]));

    let handles_of_addresses = if scope.is_everything() {
        None
    } else {
        Some(handles_of(addresses))
    };
    let is_wanted = |id: TextRef<'_>| {
        if let Some(handles) = &handles_of_addresses
            && !handles.contains(id.cut_at_carriage_return().packed())
        {
            return false;
        }
        hidden.is_empty() || !hidden.has(&Key::Handle(id.to_string()))
    };
    let mut changes = Vec::new();
    for (change, [before, after]) in removed.chain(changed).chain(added) {
        let Some(id) = after.or(before).map(|handle| handle.id()) else {
            continue;
        };
        if is_wanted(id) {
            changes.push(HandleChange {
                id,
                change,
                before,
                after,
            });
        }
    }
    changes
}

fn live(snapshot: &Snapshot) -> impl Iterator<Item = &Handle> {
    snapshot
        .handles
        .iter()
        .map(|handle| &handle.value)
        .filter(|handle| !handle.is_deleted())
}
