//! Handles, and what blocks record under them (facts 3.8, 3.13, 3.15).

mod groups;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::key::Key;
use calipam_model::snapshot::Source;
use calipam_model::text::TextRef;
use calipam_model::words::{self, thousands};

use self::groups::{Group, StoredHandle, group_by_id, handles_of_unchecked, undecodable_handles};
use crate::Context;
use crate::claim::Claim;
use crate::code::{Code, Severity};
use crate::finding::{Evidence, Finding, HandleBlockEvidence, HandleEvidence, Subject};
use crate::index::Record;
use crate::names::{and_more, list, short};

/// Checks every handle that is stored or that a block records.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let checker = Checker {
        context,
        unchecked_handles: handles_of_unchecked(context),
        undecodable: undecodable_handles(context.snapshot),
    };
    for group in &group_by_id(context) {
        checker.check(group, out);
    }
}

/// Checks handles, with the data that decides whether a handle can be checked.
struct Checker<'c, 's> {
    context: &'c Context<'s>,
    /// Packed handle IDs in blocks whose content is not checked.
    unchecked_handles: HashSet<Box<[u8]>>,
    /// Packed IDs of handles that exist but cannot be decoded.
    undecodable: HashSet<Box<[u8]>>,
}

impl<'s> Checker<'_, 's> {
    /// Checks the handles and records of one ID. Apart from other faults, a handle has wrong counts, is an orphan, or
    /// is missing.
    fn check(&self, group: &Group<'_, 's>, out: &mut Vec<Finding>) {
        if self.is_unchecked(group) {
            return;
        }
        self.check_carriage_return(group, out);
        self.check_sharing(group, out);

        let is_recorded = !group.records.is_empty();
        let has_read = |source| self.context.snapshot.has_read(source);
        // A handle with a carriage return in its ID counts only if records name it, and no handle has the clean ID.
        let mut counted = group.object;
        if counted.is_none() && is_recorded {
            counted = group.strays.first().copied();
        }
        if let Some(object) = counted {
            if !has_read(Source::Blocks) {
                return;
            }
            if is_recorded {
                self.check_counts(group, object, out);
            } else {
                out.push(self.orphan_handle(group, object));
            }
            return;
        }

        if self.undecodable.contains(group.id.packed()) {
            return;
        }
        if is_recorded {
            if has_read(Source::Handles) {
                out.push(self.missing_handle(group));
            }
        } else if has_read(Source::Blocks) {
            // Only handles with a carriage return in their ID exist.
            for stray in &group.strays {
                out.push(self.orphan_handle(group, stray));
            }
        }
    }

    /// Returns true if a block that cannot be checked could hold the handle's addresses.
    fn is_unchecked(&self, group: &Group<'_, '_>) -> bool {
        let unchecked = &self.context.index.unchecked;
        if unchecked.is_empty() {
            return false;
        }
        let mut blocks = group.objects().flat_map(|object| object.value.blocks());
        self.unchecked_handles.contains(group.id.packed())
            || blocks.any(|(cidr, _)| unchecked.contains(&cidr))
    }

    /// Reports a handle that no record names. The finding depends on the handle and on all blocks that it counts.
    fn orphan_handle(&self, group: &Group<'_, 's>, object: &'s StoredHandle) -> Finding {
        let id = object.value.id().to_string();
        let evidence = HandleEvidence {
            revision: Some(object.revision.to_string()),
            blocks: count_by_block(Some(object), &[]),
            ..HandleEvidence::default()
        };
        let mut dependencies = vec![Key::Handle(id.clone())];
        for (cidr, _) in object.value.blocks() {
            dependencies.push(Key::Block(cidr));
        }

        let message = format!("{} is a handle that no allocation refers to", short(&id));
        handle_finding(Code::OrphanHandle, id, message, evidence)
            .on_nodes(self.nodes(group))
            .depending_on(dependencies)
    }

    /// Reports a handle that records name, but that does not exist.
    fn missing_handle(&self, group: &Group<'_, '_>) -> Finding {
        let id = group.id.to_string();
        let blocks = count_by_block(None, &group.records);
        let evidence = group_evidence(group, None, blocks, addresses_of(&group.records));
        let count: i64 = evidence.blocks.iter().map(|block| block.in_block).sum();
        let verb = if count == 1 { "is" } else { "are" };
        let message = format!(
            "{} {verb} recorded under {}, which has no object",
            words::count(count, "address", "addresses"),
            short(&id)
        );
        handle_finding(Code::MissingHandle, id, message, evidence)
            .on_nodes(self.nodes(group))
            .depending_on(self.dependencies(group))
    }

    /// Reports a handle that counts other numbers of addresses than its blocks record.
    fn check_counts(&self, group: &Group<'_, 's>, object: &'s StoredHandle, out: &mut Vec<Finding>) {
        let mut wrong = count_by_block(Some(object), &group.records);
        wrong.retain(|counts| counts.in_handle != counts.in_block);
        let Some(first) = wrong.first() else {
            return;
        };

        let id = group.id.to_string();
        let message = format!(
            "{} counts {} in {}, which records {}{}",
            short(&id),
            words::count(first.in_handle, "address", "addresses"),
            first.block,
            thousands(first.in_block),
            and_more(wrong.len(), "block differs", "blocks differ")
        );
        // Counts that are too high do no harm.
        let is_harmless = wrong.iter().all(|counts| counts.in_handle > counts.in_block);
        let severity = if is_harmless {
            Severity::Info
        } else {
            Code::HandleCount.severity()
        };
        let evidence = group_evidence(group, Some(object), wrong, addresses_of(&group.records));
        out.push(
            handle_finding(Code::HandleCount, id, message, evidence)
                .with_severity(severity)
                .on_nodes(self.nodes(group))
                .depending_on(self.dependencies(group)),
        );
    }

    /// Reports an ID that has a carriage return in a record or in a handle's key. Without such a record, the message
    /// says that it is stored, otherwise that it is recorded.
    fn check_carriage_return(&self, group: &Group<'_, '_>, out: &mut Vec<Finding>) {
        let mut dirty_records = group.records.clone();
        dirty_records.retain(is_dirty);
        if dirty_records.is_empty() && group.strays.is_empty() {
            return;
        }
        let id = group.id.to_string();
        let blocks = count_by_block(group.object, &group.records);
        let evidence = group_evidence(
            group,
            group.objects().next(),
            blocks,
            addresses_of(&dirty_records),
        );
        let place = if evidence.addresses.is_empty() {
            "stored"
        } else {
            "recorded"
        };
        let message = format!("{} is {place} with a carriage return after it", short(&id));
        let finding = handle_finding(Code::HandleCarriageReturn, id, message, evidence);
        out.push(finding.on_nodes(self.nodes(group)));
    }

    /// Reports Calico 2.x handles `<namespace>.<pod>` that a pod shares with an earlier pod of the same name (facts
    /// 4.2).
    fn check_sharing(&self, group: &Group<'_, '_>, out: &mut Vec<Finding>) {
        if group.records.len() < 2 {
            return;
        }
        let shared_addresses = legacy_addresses(group);
        let v4 = shared_addresses
            .iter()
            .filter(|address| address.is_ipv4())
            .count();
        let v6 = shared_addresses.len() - v4;
        let can_be_of_one_pod = v4 < 2 && v6 < 2;
        if can_be_of_one_pod {
            return;
        }

        let id = group.id.to_string();
        let message = format!("{} share the handle {}", list(&shared_addresses), short(&id));
        let counts = count_by_block(group.object, &group.records);
        let evidence = group_evidence(
            group,
            group.object,
            counts,
            shared_addresses.into_iter().collect(),
        );
        let blocks: BTreeSet<IpNet> = group.records.iter().map(|record| record.block.key).collect();
        out.push(
            handle_finding(Code::SharedLegacyHandle, id, message, evidence)
                .on_nodes(self.nodes(group))
                .depending_on(blocks.into_iter().map(Key::Block)),
        );
    }

    /// Returns the keys of the handle, and of every block that it or a record names.
    fn dependencies(&self, group: &Group<'_, '_>) -> Vec<Key> {
        let mut ids: BTreeSet<String> = BTreeSet::from([group.id.to_string()]);
        let mut blocks: BTreeSet<IpNet> = BTreeSet::new();
        for object in group.objects() {
            ids.insert(object.value.id().to_string());
            blocks.extend(object.value.blocks().map(|(cidr, _)| cidr));
        }
        blocks.extend(group.records.iter().map(|record| record.block.key));

        let handles = ids.into_iter().map(Key::Handle);
        handles.chain(blocks.into_iter().map(Key::Block)).collect()
    }

    /// Returns the nodes that a group concerns: those in its records, and those that own the blocks of records and
    /// handles.
    fn nodes(&self, group: &Group<'_, '_>) -> BTreeSet<String> {
        let mut nodes = BTreeSet::new();
        for record in &group.records {
            let recorded = record.allocation.attribute.get("node");
            nodes.extend(recorded.map(|node| node.to_string()));
            nodes.extend(record.block.host().map(str::to_owned));
        }
        for object in group.objects() {
            for (cidr, _) in object.value.blocks() {
                let block = self.context.index.block(cidr);
                let owner = block.and_then(|block| block.host());
                nodes.extend(owner.map(str::to_owned));
            }
        }
        nodes
    }
}

/// Returns the addresses that a group records as Calico 2.x does: under the handle of a pod, without attributes.
fn legacy_addresses(group: &Group<'_, '_>) -> BTreeSet<IpAddr> {
    let mut addresses: BTreeSet<IpAddr> = BTreeSet::new();
    for record in &group.records {
        let attribute = &record.allocation.attribute;
        let has_no_owner = attribute.owner().is_empty() && attribute.alternate().is_none();
        if has_no_owner && matches!(Claim::of(attribute), Claim::LegacyPod { .. }) {
            addresses.insert(record.allocation.address);
        }
    }
    addresses
}

/// Creates the evidence of a finding about the records of one handle ID. `object` is the stored handle, if there is one.
fn group_evidence(
    group: &Group<'_, '_>,
    object: Option<&StoredHandle>,
    blocks: Vec<HandleBlockEvidence>,
    addresses: Vec<IpAddr>,
) -> HandleEvidence {
    let revision = object.map(|object| object.revision.to_string());
    HandleEvidence {
        revision,
        blocks,
        addresses,
        recorded_as: group.recorded_as(),
        needed_by: None,
    }
}

/// Makes a finding about a handle.
fn handle_finding(code: Code, id: String, message: String, evidence: HandleEvidence) -> Finding {
    let evidence = Evidence::Handle(Box::new(evidence));
    Finding::new(code, Subject::Handle(id), message, evidence)
}

/// Returns true if the record's handle ID has a carriage return.
fn is_dirty(record: &Record<'_, '_>) -> bool {
    record
        .allocation
        .attribute
        .handle()
        .is_some_and(TextRef::has_carriage_return)
}

fn addresses_of(records: &[Record<'_, '_>]) -> Vec<IpAddr> {
    let addresses: BTreeSet<IpAddr> = records.iter().map(|record| record.allocation.address).collect();
    addresses.into_iter().collect()
}

/// Returns, block by block, how many addresses the handle claims and how many are recorded.
fn count_by_block(object: Option<&StoredHandle>, records: &[Record<'_, '_>]) -> Vec<HandleBlockEvidence> {
    let mut by_block: BTreeMap<IpNet, HandleBlockEvidence> = BTreeMap::new();
    let no_addresses = |block: IpNet| HandleBlockEvidence {
        block,
        in_handle: 0,
        in_block: 0,
    };
    if let Some(object) = object {
        for (cidr, count) in object.value.blocks() {
            let counts = by_block.entry(cidr).or_insert_with(|| no_addresses(cidr));
            counts.in_handle = count;
        }
    }
    for record in records {
        let cidr = record.block.key;
        let counts = by_block.entry(cidr).or_insert_with(|| no_addresses(cidr));
        counts.in_block += 1;
    }
    by_block.into_values().collect()
}
