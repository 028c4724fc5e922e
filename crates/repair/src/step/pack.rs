//! Packs the edits of a step into writes.

use std::collections::HashSet;

use calipam_datastore::write::Limits;
use calipam_model::edit::{BlockEdit, Edit, Part, Step};
use calipam_model::key::Key;

/// Edits of one part that are written together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The index of the part.
    pub part: usize,
    /// The indices of the edits.
    pub edits: Vec<usize>,
}

impl Piece {
    pub(super) fn edits<'s>(&'s self, step: &'s Step) -> impl Iterator<Item = &'s Edit> {
        self.edits
            .iter()
            .map(|index| &step.parts[self.part].edits[*index])
    }

    pub(super) fn frees(&self, step: &Step) -> bool {
        self.edits(step)
            .any(|edit| matches!(edit, Edit::Block(_, BlockEdit::Release { .. })))
    }
}

/// Returns the writes of a step, in order.
pub(super) fn writes(step: &Step, limits: Limits) -> Vec<Vec<Piece>> {
    if limits.changes == 1 {
        return one_by_one(step, limits.affinity_first);
    }
    let max_comparisons = limits.changes.min(limits.conditions);
    if step.block_part().is_some() {
        block_at_once(step, max_comparisons)
    } else {
        pack_parts(step, max_comparisons)
    }
}

/// Packs the edits of each object into a write of their own.
fn one_by_one(step: &Step, affinity_first: bool) -> Vec<Vec<Piece>> {
    let creates_affinity = |(_, edits): &(Key, Vec<(usize, usize)>)| {
        let mut edits = edits.iter().map(|(part, edit)| &step.parts[*part].edits[*edit]);
        edits.any(|edit| matches!(edit, Edit::Create(Key::Affinity(_), _)))
    };
    let mut objects = step.by_object();
    if affinity_first {
        // The sort is stable: all objects except new affinities keep their order.
        objects.sort_by_key(|object| !creates_affinity(object));
    }

    let mut writes = Vec::new();
    for (_, edits) in objects {
        let mut pieces = Vec::new();
        for (part, edit) in edits {
            add(&mut pieces, part, edit);
        }
        writes.push(pieces);
    }
    writes
}

/// Packs a block that is created or replaced into one write, with all of its addresses: between several writes, an
/// address in use would be free. If one write cannot compare all objects, the block is written alone, and the other
/// objects in as few writes as possible.
fn block_at_once(step: &Step, max_comparisons: usize) -> Vec<Vec<Piece>> {
    let mut compared: HashSet<Key> = HashSet::new();
    for part in &step.parts {
        compared.extend(compared_keys(part, &part.edits));
    }
    if compared.len() <= max_comparisons {
        let mut pieces = Vec::new();
        for (index, part) in step.parts.iter().enumerate() {
            pieces.push(Piece {
                part: index,
                edits: (0..part.edits.len()).collect(),
            });
        }
        return vec![pieces];
    }

    // Leaves room for the evidence of the block and of the entire step.
    let mut evidence_keys: HashSet<&Key> = step.evidence_of_whole().iter().map(|(key, _)| key).collect();
    if let Some(part) = step.block_part() {
        evidence_keys.extend(part.evidence.iter().map(|(key, _)| key));
    }
    let max_objects = max_comparisons.saturating_sub(evidence_keys.len()).max(1);
    let mut writes: Vec<Vec<Piece>> = Vec::new();
    let mut objects_in_last = 0;
    let mut is_full = true;
    for (key, edits) in step.by_object() {
        let is_block = matches!(key, Key::Block(_));
        if is_full || is_block || objects_in_last == max_objects {
            writes.push(Vec::new());
            objects_in_last = 0;
        }
        objects_in_last += 1;
        is_full = is_block;
        if let Some(pieces) = writes.last_mut() {
            for (part, edit) in edits {
                add(pieces, part, edit);
            }
        }
    }
    writes
}

/// Packs as many parts into each write as `max_comparisons` allow: one comparison for each object that changes, and one
/// for each piece of evidence. Divides a part only if it does not fit into a write of its own.
fn pack_parts(step: &Step, max_comparisons: usize) -> Vec<Vec<Piece>> {
    let mut evidence_of_step: HashSet<Key> = HashSet::new();
    for (key, _) in step.evidence_of_whole() {
        evidence_of_step.insert(key.clone());
    }
    let mut packer = Packer {
        max_comparisons,
        compared: evidence_of_step.clone(),
        evidence_of_step,
        writes: Vec::new(),
    };

    for (index, part) in step.parts.iter().enumerate() {
        let keys = compared_keys(part, &part.edits);
        let fits_into_one_write = keys.union(&packer.evidence_of_step).count() <= max_comparisons;
        if fits_into_one_write {
            let all_edits: Vec<usize> = (0..part.edits.len()).collect();
            packer.add(index, &all_edits, keys);
        } else {
            // Only the deletion of a handle and of its many copies under other IDs is that large.
            for (edit_index, edit) in part.edits.iter().enumerate() {
                let keys_of_edit = compared_keys(part, std::slice::from_ref(edit));
                packer.add(index, &[edit_index], keys_of_edit);
            }
        }
    }
    packer.writes
}

/// The writes of a step while parts are added to them.
struct Packer {
    /// The maximum number of comparisons of a write.
    max_comparisons: usize,
    /// The evidence of the whole step, which each write compares.
    evidence_of_step: HashSet<Key>,
    /// The objects that the last write compares.
    compared: HashSet<Key>,
    writes: Vec<Vec<Piece>>,
}

impl Packer {
    /// Adds edits of a part, which need comparisons of `keys`, to the last write if it has room, or else to a new one.
    fn add(&mut self, part: usize, edits: &[usize], keys: HashSet<Key>) {
        let added = keys.iter().filter(|key| !self.compared.contains(*key)).count();
        if self.writes.is_empty() || self.compared.len() + added > self.max_comparisons {
            self.writes.push(Vec::new());
            self.compared.clone_from(&self.evidence_of_step);
        }
        self.compared.extend(keys);

        if let Some(pieces) = self.writes.last_mut() {
            for edit in edits {
                add(pieces, part, *edit);
            }
        }
    }
}

/// Returns the objects that a write of some edits of a part compares: those that it changes, and the evidence.
fn compared_keys(part: &Part, edits: &[Edit]) -> HashSet<Key> {
    let mut keys: HashSet<Key> = edits.iter().map(Edit::key).collect();
    for (key, _) in part.evidence.iter() {
        keys.insert(key.clone());
    }
    keys
}

/// Adds an edit to the last piece if it is of the same part, otherwise to a new piece.
fn add(pieces: &mut Vec<Piece>, part: usize, edit: usize) {
    match pieces.last_mut() {
        Some(piece) if piece.part == part => piece.edits.push(edit),
        _ => pieces.push(Piece {
            part,
            edits: vec![edit],
        }),
    }
}

#[cfg(test)]
mod tests {
    use calipam_model::IpNet;
    use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
    use calipam_model::attributes::Attribute;
    use calipam_model::block::Block;
    use calipam_model::edit::{AllocationGuard, Condition, Evidence, HandleEdit, Precondition, Unit};
    use calipam_model::writable::Object;
    use jiff::Timestamp;

    use super::*;

    const ETCD: Limits = Limits {
        changes: 128,
        conditions: 128,
        bytes: 1_500_000,
        affinity_first: false,
    };
    const KUBERNETES: Limits = Limits { changes: 1, ..ETCD };

    fn block() -> IpNet {
        "10.0.0.0/24".parse().unwrap()
    }

    /// Releases `count` addresses, each with a handle and two pieces of evidence, and gives up their block.
    fn release(count: u32) -> Step {
        let mut step = Step::new("a test");
        for ordinal in 0..count {
            let held = AllocationGuard {
                ordinal,
                record: Attribute::default().into(),
                sequence: 1,
            };
            let id = format!("net.{ordinal}");
            let edits = vec![
                Edit::Block(
                    block(),
                    BlockEdit::Release {
                        held: vec![held],
                        cooldown: 0,
                    },
                ),
                Edit::Handle(id.clone(), HandleEdit::Decrement(block(), 1)),
            ];
            let evidence =
                ["here", "there"].map(|at| (Key::Node(format!("{at}-{ordinal}")), Precondition::Absent));
            step.parts.push(Part {
                unit: Unit::Handle(id),
                edits,
                evidence: Vec::from(evidence).into(),
            });
        }
        let owner = BlockEdit::Owner { from: None, to: None };
        step.whole().edits.push(Edit::Block(block(), owner));
        step
    }

    #[test]
    fn a_write_holds_no_more_than_a_transaction() {
        let step = release(200);
        let writes = writes(&step, ETCD);
        let compared = |pieces: &Vec<Piece>| {
            let parts = pieces.iter().map(|piece| &step.parts[piece.part]);
            parts
                .flat_map(|part| compared_keys(part, &part.edits))
                .collect::<HashSet<Key>>()
                .len()
        };
        let sizes: Vec<usize> = writes.iter().map(compared).collect();
        // A full write contains the block and 42 handles, each with two pieces of evidence.
        assert_eq!(sizes, [127, 127, 127, 127, 97]);
        let parts: Vec<usize> = writes.iter().flatten().map(|piece| piece.part).collect();
        assert_eq!(parts, (0..=200).collect::<Vec<_>>(), "no part is divided");
    }

    #[test]
    fn a_part_that_no_transaction_holds_is_written_edit_by_edit() {
        let mut step = Step::new("a test");
        let ids = (0..150).map(|n| format!("net.{n}"));
        step.whole().edits = ids
            .map(|id| Edit::Handle(id, HandleEdit::Increment(block(), 1)))
            .collect();
        step.whole().evidence = vec![(Key::Node("n".into()), Precondition::Absent)].into();
        let sizes: Vec<usize> = writes(&step, ETCD)
            .iter()
            .map(|pieces| pieces.iter().map(|p| p.edits.len()).sum())
            .collect();
        assert_eq!(sizes, [127, 23]);
    }

    #[test]
    fn without_transactions_all_parts_share_one_write_of_the_block() {
        let writes = writes(&release(3), KUBERNETES);
        let of_block: Vec<usize> = writes[0].iter().map(|piece| piece.part).collect();
        assert_eq!((of_block, writes.len()), (vec![0, 1, 2, 3], 4));
    }

    /// Creates a block and its affinity. The block has `count` addresses, each with a handle and a user.
    fn creation(count: u32) -> Step {
        let mut step = Step::new("a test");
        let created = Block::new(block(), None, Timestamp::UNIX_EPOCH).unwrap();
        let key = AffinityKey {
            kind: AffinityType::Host,
            node: "n".into(),
            cidr: block(),
        };
        let affinity = Affinity::new(key.clone(), AffinityState::Confirmed);
        step.parts.push(Part {
            unit: Unit::Block,
            edits: vec![
                Edit::Create(Key::Block(block()), Box::new(Object::from(created))),
                Edit::Create(Key::Affinity(key), Box::new(Object::Affinity(affinity))),
            ],
            evidence: Evidence::default(),
        });
        for ordinal in 0..count {
            let id = format!("net.{ordinal}");
            let edits = vec![
                Edit::Handle(id.clone(), HandleEdit::Increment(block(), 1)),
                Edit::Block(
                    block(),
                    BlockEdit::Assign {
                        records: vec![(ordinal, Default::default())],
                    },
                ),
            ];
            let user = (
                Key::Node(format!("user-{ordinal}")),
                Precondition::Matches(Condition::StillThere(None)),
            );
            step.parts.push(Part {
                unit: Unit::Handle(id),
                edits,
                evidence: vec![user].into(),
            });
        }
        step
    }

    #[test]
    fn a_block_is_written_once_with_all_of_its_addresses() {
        let objects = |pieces: &Vec<Piece>, step: &Step| {
            pieces
                .iter()
                .flat_map(|piece| piece.edits(step))
                .map(Edit::key)
                .collect::<HashSet<Key>>()
        };
        let few = creation(60);
        let writes_of_few = writes(&few, ETCD);
        assert_eq!(writes_of_few.len(), 1);
        assert_eq!(objects(&writes_of_few[0], &few).len(), 62);

        let many = creation(200);
        let all: Vec<HashSet<Key>> = writes(&many, ETCD)
            .iter()
            .map(|write| objects(write, &many))
            .collect();
        let sizes: Vec<usize> = all.iter().map(HashSet::len).collect();
        assert_eq!(sizes, [128, 72, 1, 1]);
        assert!(
            all[2].contains(&Key::Block(block())),
            "the block comes after its handles, before its affinity"
        );
    }

    #[test]
    fn a_claim_begins_with_what_the_datastore_writes_first() {
        let step = creation(2);
        let first_and_last = |limits: Limits| {
            let writes = writes(&step, limits);
            let key = |pieces: &Vec<Piece>| pieces[0].edits(&step).map(Edit::key).next();
            (
                writes.first().and_then(key),
                writes.last().and_then(key),
                writes.len(),
            )
        };
        let (first, last, count) = first_and_last(Limits {
            affinity_first: true,
            ..KUBERNETES
        });
        assert!(matches!((first, count), (Some(Key::Affinity(_)), 4)));
        assert_eq!(
            last,
            Some(Key::Block(block())),
            "after the affinity and the handles"
        );
        let (_, last, _) = first_and_last(KUBERNETES);
        assert!(matches!(last, Some(Key::Affinity(_))));
    }
}
