//! The events between two states of a block.

use std::collections::{BTreeMap, BTreeSet};

use calipam_model::block::BlockOwner;
use serde_json::Value;

use super::state::{BlockFields, Record};

/// An event of a block. The events between two states together say everything that differs.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockEvent {
    /// What is known first: at the oldest revision that is kept, or after one that cannot be decoded.
    Known,
    /// It was created, empty.
    Claimed {
        owner: Option<BlockOwner>,
        claim_time: Option<String>,
    },
    Assigned {
        ordinal: u32,
        record: Record,
    },
    /// The same allocation says something else.
    Changed {
        ordinal: u32,
        before: Record,
        after: Record,
    },
    /// It is free again, or its block was deleted with it.
    Released {
        ordinal: u32,
        before: Record,
        with_block: bool,
    },
    /// It was released and is not given out again for a while. `before` is what cooled already or was held.
    Cooling {
        ordinal: u32,
        before: Option<Record>,
        record: Record,
    },
    /// It belongs to another, or to no one; with the claim time of the new owner.
    Owner {
        before: Option<BlockOwner>,
        after: Option<BlockOwner>,
        claim_time: Option<String>,
    },
    /// Claimed again by the same owner.
    ClaimedAgain {
        claim_time: Option<String>,
    },
    /// Marked deleted, or not any more.
    Marked(bool),
    /// The value cannot be decoded; what it changed is not known.
    Undecodable(String),
    /// The block was deleted.
    GivenUp,
    /// A field that this program does not know.
    Field {
        name: String,
        before: Option<Value>,
        after: Option<Value>,
    },
}

/// A state of a block: stored and decoded, stored and not decodable, or not stored.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockState {
    Absent,
    Hidden(String),
    Stored(Box<BlockFields>),
}

impl BlockEvent {
    /// The ordinal that it is about; `None` for what is about the whole block.
    pub fn ordinal(&self) -> Option<u32> {
        match self {
            Self::Assigned { ordinal, .. }
            | Self::Changed { ordinal, .. }
            | Self::Released { ordinal, .. }
            | Self::Cooling { ordinal, .. } => Some(*ordinal),
            _ => None,
        }
    }

    /// The records that it names: the one before, and the one after.
    pub fn records(&self) -> [Option<&Record>; 2] {
        match self {
            Self::Assigned { record, .. } => [None, Some(record)],
            Self::Changed { before, after, .. } => [Some(before), Some(after)],
            Self::Released { before, .. } => [Some(before), None],
            Self::Cooling { before, record, .. } => [before.as_ref(), Some(record)],
            _ => [None, None],
        }
    }
}

/// Everything that differs between two states that follow each other.
pub fn events(before: &BlockState, after: &BlockState) -> Vec<BlockEvent> {
    match (before, after) {
        (_, BlockState::Hidden(reason)) if before != after => vec![BlockEvent::Undecodable(reason.clone())],
        (BlockState::Absent, BlockState::Absent) | (BlockState::Hidden(_), BlockState::Hidden(_)) => {
            Vec::new()
        }
        (BlockState::Hidden(_), BlockState::Absent) => vec![BlockEvent::GivenUp],
        (BlockState::Stored(fields), BlockState::Absent) => {
            let held = fields.held.iter().filter(|(_, record)| record.is_owned());
            let released = held.map(|(ordinal, record)| BlockEvent::Released {
                ordinal: *ordinal,
                before: record.clone(),
                with_block: true,
            });
            released.chain([BlockEvent::GivenUp]).collect()
        }
        (BlockState::Hidden(_), BlockState::Stored(_)) => vec![BlockEvent::Known],
        (BlockState::Absent, BlockState::Stored(fields)) => {
            let (owner, claim_time) = (fields.owner.clone(), fields.claim_time.clone());
            let empty = BlockFields { deleted: false, held: BTreeMap::new(), ..(**fields).clone() };
            let claimed = BlockEvent::Claimed { owner, claim_time };
            [claimed].into_iter().chain(between(&empty, fields)).collect()
        }
        (BlockState::Stored(before), BlockState::Stored(after)) => between(before, after),
        (BlockState::Stored(_), BlockState::Hidden(_)) | (BlockState::Absent, BlockState::Hidden(_)) => {
            Vec::new()
        }
    }
}

fn between(before: &BlockFields, after: &BlockFields) -> Vec<BlockEvent> {
    let mut all = Vec::new();
    if before.owner != after.owner {
        let (was, is) = (before.owner.clone(), after.owner.clone());
        all.push(BlockEvent::Owner { before: was, after: is, claim_time: after.claim_time.clone() });
    } else if before.claim_time != after.claim_time {
        all.push(BlockEvent::ClaimedAgain { claim_time: after.claim_time.clone() });
    }
    let ordinals: BTreeSet<u32> = before.held.keys().chain(after.held.keys()).copied().collect();
    for ordinal in ordinals {
        all.extend(of_ordinal(ordinal, before.held.get(&ordinal), after.held.get(&ordinal)));
    }
    if before.deleted != after.deleted {
        all.push(BlockEvent::Marked(after.deleted));
    }
    let names: BTreeSet<&String> = before.others.keys().chain(after.others.keys()).collect();
    for name in names {
        let (was, is) = (before.others.get(name).cloned(), after.others.get(name).cloned());
        if was != is {
            all.push(BlockEvent::Field { name: name.clone(), before: was, after: is });
        }
    }
    all
}

fn of_ordinal(ordinal: u32, before: Option<&Record>, after: Option<&Record>) -> Vec<BlockEvent> {
    let released =
        |before: &Record| BlockEvent::Released { ordinal, before: before.clone(), with_block: false };
    match (before, after) {
        (None, None) => Vec::new(),
        (Some(before), None) => vec![released(before)],
        (before, Some(after)) if before == Some(after) => Vec::new(),
        (before, Some(after)) if after.attribute.released_at.is_some() => {
            vec![BlockEvent::Cooling { ordinal, before: before.cloned(), record: after.clone() }]
        }
        (Some(before), Some(after)) if is_same_allocation(before, after) => {
            vec![BlockEvent::Changed { ordinal, before: before.clone(), after: after.clone() }]
        }
        // From one owner to the next without a revision between: it was released and assigned in one write, or the revision
        // between is not known.
        (before, Some(after)) => {
            let released = before.filter(|before| before.is_owned()).map(released);
            released.into_iter().chain([BlockEvent::Assigned { ordinal, record: after.clone() }]).collect()
        }
    }
}

fn is_same_allocation(before: &Record, after: &Record) -> bool {
    before.attribute.released_at.is_none()
        && before.attribute.handle == after.attribute.handle
        && before.sequence == after.sequence
}
