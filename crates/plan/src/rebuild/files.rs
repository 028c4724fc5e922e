//! The blocks of a plan before and after it, for people to look at.

use std::collections::BTreeSet;

use calipam_model::IpNet;
use calipam_model::block::BlockContent;
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, StoredBlock, Versioned};
use jiff::Timestamp;
use serde_json::Value;

use crate::plan::Plan;
use crate::simulate::{SimulationError, simulate};

/// A block before and after a plan, in the JSON that etcd holds.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockFile {
    pub cidr: IpNet,
    /// A name for the file: `10-244-1-0-26.json`.
    pub name: String,
    /// As it is; `None` where there is none. A corrupt block that is no JSON is a text.
    pub before: Option<Value>,
    /// As it is to be; `None` where it goes.
    pub after: Option<Value>,
}

/// One file for each block that the plan writes. No more than these blocks are copied.
///
/// # Errors
/// Where a step cannot be made on the snapshot, as with [`simulate`].
pub fn block_files(
    before: &Snapshot,
    plan: &Plan,
    now: Timestamp,
) -> Result<Vec<BlockFile>, SimulationError> {
    let edits = plan.actions.iter().flat_map(|action| action.step.edits());
    let touched: BTreeSet<IpNet> = edits
        .filter_map(|edit| match edit {
            Edit::Block(cidr, _) => Some(*cidr),
            _ => None,
        })
        .collect();
    let stored = before.blocks.iter().filter(|block| touched.contains(&block.value.key));
    let small =
        Snapshot { datastore: before.datastore, blocks: stored.cloned().collect(), ..Snapshot::default() };
    let mut only_blocks = plan.clone();
    for part in only_blocks.actions.iter_mut().flat_map(|action| &mut action.step.parts) {
        part.edits.retain(|edit| matches!(edit.key(), Key::Block(_)));
    }
    let earlier: Vec<(IpNet, Value)> = small.blocks.iter().map(json).collect();
    let later: Vec<(IpNet, Value)> = simulate(small, &only_blocks, now)?.blocks.iter().map(json).collect();
    let of = |all: &[(IpNet, Value)], cidr: IpNet| {
        all.iter().find(|(key, _)| *key == cidr).map(|(_, value)| value.clone())
    };
    let file = |cidr: IpNet| BlockFile {
        cidr,
        name: format!("{}.json", cidr.to_string().replace(['.', ':', '/'], "-")),
        before: of(&earlier, cidr),
        after: of(&later, cidr),
    };
    Ok(touched.into_iter().map(file).collect())
}

fn json(block: &Versioned<StoredBlock>) -> (IpNet, Value) {
    let value = match &block.value.content {
        BlockContent::Sound(sound) => serde_json::to_value(sound).unwrap_or_default(),
        BlockContent::Corrupt(corrupt) => {
            serde_json::from_str(&corrupt.raw).unwrap_or_else(|_| Value::String(corrupt.raw.to_string()))
        }
    };
    (block.value.key, value)
}
