//! Files with the blocks before and after a plan, for people to compare.

use std::collections::{BTreeMap, BTreeSet};

use calipam_model::IpNet;
use calipam_model::block::{BlockContent, BlockOwner};
use calipam_model::calico2;
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot, StoredBlock, Versioned};
use jiff::Timestamp;
use serde_json::Value;

use crate::plan::Plan;
use crate::trial::{StepError, apply_plan};

/// Converts the JSON of a block to the form of the datastore.
fn as_stored(datastore: DatastoreKind, cidr: IpNet, value: Value) -> Value {
    if datastore != DatastoreKind::EtcdV2 {
        return value;
    }
    let converted = calico2::value(&Key::Block(cidr), value.to_string().as_bytes());
    converted
        .and_then(|json| serde_json::from_slice(&json).ok())
        .unwrap_or(value)
}

/// Returns one file for each host, by file name. Each line is one of the host's blocks, as it is after the plan. The
/// rebuild scripts for Calico 2.x wrote files in this form.
pub fn host_files(files: &[BlockFile]) -> BTreeMap<String, String> {
    let mut hosts: BTreeMap<String, String> = BTreeMap::new();
    for after in files.iter().filter_map(|file| file.after.as_ref()) {
        let owner = after["affinity"].as_str().map(BlockOwner::parse);
        if let Some(host) = owner.as_ref().and_then(BlockOwner::host) {
            let plain = |c: char| {
                if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                    c
                } else {
                    '-'
                }
            };
            let name: String = host.chars().map(plain).collect();
            hosts
                .entry(format!("{}.json", name.trim_start_matches('.')))
                .or_default()
                .push_str(&format!("{after}\n"));
        }
    }

    hosts
}

/// A block before and after a plan, in etcd's JSON form.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockFile {
    pub cidr: IpNet,
    /// The name of the file, such as `10-244-1-0-26.json`.
    pub name: String,
    /// The present block, if it exists. A corrupt block that is not JSON is a string.
    pub before: Option<Value>,
    /// The planned block, unless it is deleted.
    pub after: Option<Value>,
}

/// Returns one file for each block that the plan writes. Only these blocks are copied.
pub fn block_files(before: &Snapshot, plan: &Plan, now: Timestamp) -> Result<Vec<BlockFile>, StepError> {
    let edits = plan.actions.iter().flat_map(|action| action.step.edits());
    let touched: BTreeSet<IpNet> = edits.filter_map(Edit::block).collect();
    let mut small = Snapshot {
        datastore: before.datastore,
        ..Snapshot::default()
    };
    for block in &before.blocks {
        if touched.contains(&block.value.key) {
            small.blocks.push(block.clone());
        }
    }

    let mut only_blocks = plan.clone();
    let steps = only_blocks.actions.iter_mut().map(|action| &mut action.step);
    for part in steps.flat_map(|step| &mut step.parts) {
        part.edits.retain(|edit| matches!(edit.key(), Key::Block(_)));
    }

    let in_json = |snapshot: &Snapshot| -> Vec<(IpNet, Value)> {
        let blocks = snapshot.blocks.iter();
        blocks.map(|block| json(before.datastore, block)).collect()
    };
    let earlier = in_json(&small);
    let later = in_json(&apply_plan(small, &only_blocks, now)?);
    let value = |blocks: &[(IpNet, Value)], cidr: IpNet| {
        let block = blocks.iter().find(|(key, _)| *key == cidr);
        block.map(|(_, value)| value.clone())
    };
    let mut files = Vec::new();
    for cidr in touched {
        files.push(BlockFile {
            cidr,
            name: format!("{}.json", cidr.to_string().replace(['.', ':', '/'], "-")),
            before: value(&earlier, cidr),
            after: value(&later, cidr),
        });
    }
    Ok(files)
}

/// Returns a block in the form of the datastore, or a corrupt block as it is stored.
fn json(datastore: DatastoreKind, block: &Versioned<StoredBlock>) -> (IpNet, Value) {
    let value = match &block.value.content {
        BlockContent::Sound(sound) => as_stored(
            datastore,
            block.value.key,
            serde_json::to_value(sound).unwrap_or_default(),
        ),
        BlockContent::Corrupt(corrupt) => {
            serde_json::from_str(&corrupt.raw).unwrap_or_else(|_| Value::String(corrupt.raw.to_string()))
        }
    };
    (block.value.key, value)
}
