//! Turns the allocator's writes into plan steps, block by block.

use std::collections::BTreeSet;

use calipam_assign::{Entry, Record, Write};
use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::affinity::AffinityKey;
use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::cidr::address_at;
use calipam_model::edit::{BlockEdit, Condition, Edit, HandleEdit, Precondition};
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use calipam_model::words;
use calipam_model::writable::Object;

use super::Request;
use crate::basis::Basis;
use crate::basis::preconditions::as_read;
use crate::plan::{Action, Change, Verb};

/// Returns the steps, in the order of the blocks' first writes. The allocator's own writes of handles are not used:
/// they count the addresses requested from a block, but a plan counts the addresses that are assigned.
pub(super) fn actions(basis: &Basis<'_>, request: &Request, writes: Vec<Write>) -> Vec<Action> {
    let mut actions: Vec<Action> = Vec::new();
    for cidr in written_blocks(&writes) {
        actions.extend(BlockSteps::actions(basis, request, &writes, cidr));
    }

    // The handle is created with its first block.
    let changes = actions.iter_mut().flat_map(|action| &mut action.changes);
    let creations = changes.filter(|change| change.action == Verb::CreateHandle);
    for repeated in creations.skip(1) {
        repeated.action = Verb::SetHandleCounts;
    }
    actions
}

/// Returns true if an address became allocated, or allocated again after its cooldown.
fn is_assigned_between(before: &Block, after: &Block, ordinal: u32) -> bool {
    let Some(new) = after.allocation(ordinal) else {
        return false;
    };
    let old = before.allocation(ordinal);
    old.is_none_or(|old| old.attribute.is_cooling() && !new.attribute.is_cooling())
}

/// Returns the blocks that are written, or whose affinities are, in the order of their first writes.
fn written_blocks(writes: &[Write]) -> Vec<IpNet> {
    let mut blocks: Vec<IpNet> = Vec::new();
    for write in writes {
        let cidr = match &write.key {
            Key::Block(cidr) => *cidr,
            Key::Affinity(key) => key.cidr,
            _ => continue,
        };
        if !blocks.contains(&cidr) {
            blocks.push(cidr);
        }
    }
    blocks
}

const HALF_DELETED: &str = "its deletion stopped half-way";

/// The steps of one block and its affinities.
struct BlockSteps<'a, 's> {
    basis: &'a Basis<'s>,
    request: &'a Request,
    cidr: IpNet,
    edits: Vec<Edit>,
    changes: Vec<Change>,
    /// Objects whose deletion stopped half-way. The deletion is finished before they are created again.
    marked: Vec<(Edit, Change)>,
    evidence: Vec<(Key, Precondition)>,
}

impl<'a, 's> BlockSteps<'a, 's> {
    /// Returns the steps for one block, from the allocator's writes of the block and of its affinities.
    fn actions(basis: &'a Basis<'s>, request: &'a Request, writes: &[Write], cidr: IpNet) -> Vec<Action> {
        let mut steps = Self {
            basis,
            request,
            cidr,
            edits: Vec::new(),
            changes: Vec::new(),
            marked: Vec::new(),
            evidence: Vec::new(),
        };

        if let Some(write) = writes.iter().find(|write| write.key == Key::Block(cidr)) {
            steps.block(write);
        }

        for write in writes {
            if let Key::Affinity(key) = &write.key
                && key.cidr == cidr
            {
                steps.affinity(key, write);
            }
        }

        steps.into_actions()
    }

    /// Adds the edit and the change for the allocator's write of the block.
    fn block(&mut self, write: &Write) {
        let before = block_of(write.before.as_ref().map(|entry| &entry.record));
        let after = block_of(write.after.as_ref());
        let revision = write.before.as_ref().map(|entry| entry.revision.clone());
        match (before, after, revision) {
            (Some(before), Some(after), Some(revision)) if !before.is_deleted() => {
                if before.owner() == after.owner() && before.claim_time() == after.claim_time() {
                    self.assign(before, after);
                } else {
                    self.take_over(before, after, revision);
                }
            }
            (before, Some(after), revision) => {
                // A block whose deletion stopped half-way is deleted before it is created again.
                if let (Some(_), Some(revision)) = (before, revision) {
                    let edit = Edit::Delete(Key::Block(self.cidr), revision);
                    let subject = Subject::Block(self.cidr);
                    self.marked
                        .push((edit, Change::new(Verb::DeleteBlock, subject, HALF_DELETED, &[])));
                }
                self.create(after);
            }
            (Some(before), None, Some(revision)) => self.delete(before, revision),
            _ => {}
        }
    }

    /// Gives an empty block of another owner to the node.
    fn take_over(&mut self, before: &Block, after: &Block, revision: Revision) {
        self.record_assigned(after, |_| true);
        let from = match before.owner() {
            Some(owner) => owner.to_string(),
            None => "no owner".to_owned(),
        };
        let detail = format!("taken over for {}: {from} left it empty", self.holder());
        let change = Change::new(Verb::SetBlockOwner, Subject::Block(self.cidr), detail, &[]);
        self.changes.insert(0, change);
        let after = Box::new(Object::from(after.clone()));
        self.edits
            .push(Edit::Replace(Key::Block(self.cidr), revision, after));
    }

    fn create(&mut self, after: &Block) {
        self.record_assigned(after, |_| true);
        let detail = format!("for {}{}", self.holder(), self.in_pool());
        let change = Change::new(Verb::CreateBlock, Subject::Block(self.cidr), detail, &[]);
        // The block is named before its addresses.
        self.changes.insert(0, change);
        let after = Box::new(Object::from(after.clone()));
        self.edits.push(Edit::Create(Key::Block(self.cidr), after));
    }

    fn delete(&mut self, before: &Block, revision: Revision) {
        let detail = if before.is_deleted() {
            HALF_DELETED.to_owned()
        } else {
            format!("empty, and its pool no longer selects {}", self.request.node)
        };
        self.note(Verb::DeleteBlock, Subject::Block(self.cidr), detail);
        self.edits.push(Edit::Delete(Key::Block(self.cidr), revision));
    }

    /// Assigns addresses in a block that keeps its owner, or touches the block if no address is new.
    fn assign(&mut self, before: &Block, after: &Block) {
        let records = self.record_assigned(after, |ordinal| is_assigned_between(before, after, ordinal));
        if records.is_empty() {
            self.edit(BlockEdit::Touch);
            return;
        }

        if let Some(owner) = before.owner() {
            let owned = Condition::OwnedSince(owner.clone(), before.claim_time().map(str::to_owned));
            self.evidence
                .push((Key::Block(self.cidr), Precondition::Matches(owned)));
        }

        // Before it assigns, the allocator frees addresses that have cooled down.
        if before.attributes().any(|attribute| attribute.is_cooling()) {
            let config = self.basis.snapshot.effective_ipam_config();
            let cooldown = config.map_or(0, |config| config.cooldown_seconds);
            self.edit(BlockEdit::CollectCooled { cooldown });
        }

        self.edit(BlockEdit::Assign { records });
    }

    /// Notes the assigned addresses, and counts them in the request's handle. Returns their records.
    fn record_assigned(&mut self, after: &Block, is_new: impl Fn(u32) -> bool) -> Vec<(u32, Attribute)> {
        let mut records: Vec<(u32, Attribute)> = Vec::new();
        for allocation in after.allocations() {
            if is_new(allocation.ordinal) && !allocation.attribute.is_windows_reserved() {
                records.push((allocation.ordinal, allocation.attribute.to_attribute()));
            }
        }

        let owner = after
            .owner()
            .map_or_else(|| "without an owner".to_owned(), |owner| format!("of {owner}"));

        for (ordinal, record) in &records {
            let handle = record
                .handle
                .as_deref()
                .map(|id| format!(", under the handle {id}"))
                .unwrap_or_default();
            let detail = format!("in block {} {owner}{}{handle}", self.cidr, self.in_pool());
            let address = Subject::Address(address_at(self.cidr, *ordinal));
            self.note(Verb::AssignAddress, address, detail);
        }

        if let Some(id) = self.request.handle.clone()
            && !records.is_empty()
        {
            let count = i64::try_from(records.len()).unwrap_or(i64::MAX);
            let stored = self.basis.snapshot.handles.iter().map(|handle| &handle.value);
            let exists = stored
                .into_iter()
                .any(|handle| !handle.is_deleted() && handle.id() == *id);
            let verb = if exists {
                Verb::SetHandleCounts
            } else {
                Verb::CreateHandle
            };
            let addresses = words::count(count, "more address", "more addresses");
            self.note(
                verb,
                Subject::Handle(id.clone()),
                format!("{addresses} in block {}", self.cidr),
            );
            self.edits
                .push(Edit::Handle(id, HandleEdit::Increment(self.cidr, count)));
        }

        records
    }

    /// Adds the edit and the change for the allocator's write of an affinity of the block.
    fn affinity(&mut self, key: &AffinityKey, write: &Write) {
        let before = match &write.before {
            Some(Entry {
                record: Record::Affinity(affinity),
                revision,
            }) => Some((affinity, revision.clone())),
            _ => None,
        };
        let after = match &write.after {
            Some(Record::Affinity(affinity)) => Some(affinity),
            _ => None,
        };

        let subject = || Subject::affinity(key);
        let delete = |revision| Edit::Delete(Key::Affinity(key.clone()), revision);
        let Some(after) = after else {
            if let Some((before, revision)) = before {
                self.edits.push(delete(revision));
                let not_its_own = "its holder no longer owns the block";
                let detail = if before.deleted { HALF_DELETED } else { not_its_own };
                self.note(Verb::DeleteAffinity, subject(), detail);
            }
            return;
        };

        if let Some((before, revision)) = before {
            if !before.deleted {
                self.edits
                    .push(Edit::Affinity(key.clone().into(), revision, after.state.clone()));
                let detail = if before.is_unstated {
                    "it had no state".to_owned()
                } else {
                    format!("it was {}", before.state)
                };
                self.note(Verb::ConfirmAffinity, subject(), detail);
                return;
            }
            let deletion = Change::new(Verb::DeleteAffinity, subject(), HALF_DELETED, &[]);
            self.marked.push((delete(revision), deletion));
        }

        // The affinity is created before the block, as in Calico. A crash may leave an affinity without a block, which
        // its holder then creates, but never a block that its owner cannot find.
        let created = Box::new(Object::Affinity(after.clone()));
        self.edits
            .insert(0, Edit::Create(Key::Affinity(key.clone()), created));
        let detail = format!("the block belongs to {}", key.node);
        self.note(Verb::CreateAffinity, subject(), detail);
    }

    /// Turns the edits into actions: first the deletion of half-deleted objects, then the assignment.
    fn into_actions(self) -> Vec<Action> {
        let cidr = self.cidr;
        let mut actions = Vec::new();
        if !self.marked.is_empty() {
            let (edits, changes) = self.marked.into_iter().unzip();
            actions.push(Action::new(
                format!("half-deleted objects of block {cidr}"),
                edits,
                changes,
            ));
        }

        if !self.edits.is_empty() {
            let preconditions = preconditions(self.basis, &self.request.node, cidr);
            let action = Action::new(format!("assignment in block {cidr}"), self.edits, self.changes);
            actions.push(action.requiring(self.evidence.into_iter().chain(preconditions)));
        }

        actions
    }

    fn note(&mut self, action: Verb, subject: Subject, detail: impl Into<String>) {
        self.changes.push(Change::new(action, subject, detail, &[]));
    }

    fn edit(&mut self, edit: BlockEdit) {
        self.edits.push(Edit::Block(self.cidr, edit));
    }

    fn holder(&self) -> String {
        format!("host:{}", self.request.node)
    }

    fn in_pool(&self) -> String {
        let pool = self.basis.context.index.pools_around(self.cidr).next();
        pool.map(|pool| format!(", in pool {}", pool.name))
            .unwrap_or_default()
    }
}

/// Requires that the node and the pools around the block have not changed: the allocator's decision depends on them.
fn preconditions(basis: &Basis<'_>, node: &str, cidr: IpNet) -> Vec<(Key, Precondition)> {
    let node = Key::Node(node.to_owned());
    let mut preconditions: Vec<(Key, Precondition)> = as_read(basis.snapshot, &BTreeSet::from([node]))
        .into_iter()
        .collect();
    for pool in &basis.snapshot.pools {
        if pool.value.cidr.contains(&cidr.addr()) {
            let key = Key::Pool(pool.value.name.clone());
            preconditions.push((key, Precondition::At(pool.revision.clone())));
        }
    }
    preconditions
}

fn block_of(record: Option<&Record>) -> Option<&Block> {
    match record? {
        Record::Block(block) => Some(block),
        _ => None,
    }
}
