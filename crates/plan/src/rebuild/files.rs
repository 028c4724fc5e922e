//! Files with the blocks before and after a plan, for people to compare.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use calipam_model::IpNet;
use calipam_model::block::{BlockContent, BlockOwner};
use calipam_model::calico2;
use calipam_model::cidr::resource_name;
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};
use jiff::Timestamp;
use serde_json::Value;

use crate::plan::Plan;
use crate::trial::{StepError, apply_plan};

/// Converts the JSON of a block to the form of the datastore.
fn as_stored(datastore: DatastoreKind, cidr: IpNet, value: Value) -> Value {
    if datastore != DatastoreKind::EtcdV2 {
        return value;
    }
    let Some(converted) = calico2::value(&Key::Block(cidr), value.to_string().as_bytes()) else {
        return value;
    };
    serde_json::from_slice(&converted).unwrap_or(value)
}

/// Returns one file for each host, by file name. Each line is one of the host's blocks, as it is after the plan. The
/// rebuild scripts for Calico 2.x wrote files in this form.
pub fn host_files(files: &[BlockFile]) -> BTreeMap<String, String> {
    let mut lines_by_host: BTreeMap<String, String> = BTreeMap::new();
    for after in files.iter().filter_map(|file| file.after.as_ref()) {
        let owner = after["affinity"].as_str().map(BlockOwner::parse);
        if let Some(host) = owner.as_ref().and_then(BlockOwner::host) {
            let lines = lines_by_host.entry(host.to_owned()).or_default();
            lines.push_str(&format!("{after}\n"));
        }
    }

    let block_names: HashSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let mut host_files: BTreeMap<String, String> = BTreeMap::new();
    for (host, lines) in lines_by_host {
        let is_taken = |name: &str| host_files.contains_key(name) || block_names.contains(name);
        host_files.insert(file_name_of(&host, is_taken), lines);
    }
    host_files
}

/// Returns a file name for a host. Characters that a file system could refuse become hyphens. A number is appended if
/// the file of another host, or of a block, has the name.
fn file_name_of(host: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let legal = host.replace(|c: char| !is_kept(c), "-");
    let stem = legal.trim_start_matches('.');
    let mut name = format!("{stem}.json");
    let mut number = 1;
    while is_taken(&name) {
        number += 1;
        name = format!("{stem}-{number}.json");
    }
    name
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
    let small = only_touched_blocks(before, &touched);
    let mut present = json_of_blocks(&small);
    let planned = apply_plan(small, &only_block_edits(plan), now)?;
    let mut planned = json_of_blocks(&planned);
    let mut files = Vec::new();
    for cidr in touched {
        files.push(BlockFile {
            cidr,
            name: format!("{}.json", resource_name(cidr)),
            before: present.remove(&cidr),
            after: planned.remove(&cidr),
        });
    }
    Ok(files)
}

/// Copies the blocks of a plan from a snapshot, and nothing else.
fn only_touched_blocks(snapshot: &Snapshot, touched: &BTreeSet<IpNet>) -> Snapshot {
    let mut small = Snapshot {
        datastore: snapshot.datastore,
        ..Snapshot::default()
    };
    for block in &snapshot.blocks {
        if touched.contains(&block.value.key) {
            small.blocks.push(block.clone());
        }
    }
    small
}

/// Copies a plan without its edits of handles and affinities, whose objects are not copied.
fn only_block_edits(plan: &Plan) -> Plan {
    let mut only_blocks = plan.clone();
    let steps = only_blocks.actions.iter_mut().map(|action| &mut action.step);
    for part in steps.flat_map(|step| &mut step.parts) {
        part.edits.retain(|edit| matches!(edit.key(), Key::Block(_)));
    }
    only_blocks
}

/// Returns the blocks by their CIDRs, in the form of the datastore. Corrupt blocks are as they are stored.
fn json_of_blocks(snapshot: &Snapshot) -> HashMap<IpNet, Value> {
    let mut by_cidr = HashMap::new();
    for block in snapshot.blocks.iter().map(|stored| &stored.value) {
        let json = match &block.content {
            BlockContent::Sound(sound) => {
                let value = serde_json::to_value(sound).unwrap_or_default();
                as_stored(snapshot.datastore, block.key, value)
            }
            BlockContent::Corrupt(corrupt) => {
                serde_json::from_str(&corrupt.raw).unwrap_or_else(|_| Value::String(corrupt.raw.to_string()))
            }
        };
        by_cidr.insert(block.key, json);
    }
    by_cidr
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hosts_and_blocks_whose_file_names_coincide_have_files_of_their_own() {
        let block = |third: u8, host: &str| BlockFile {
            cidr: format!("10.0.{third}.0/26").parse().unwrap(),
            name: format!("10-0-{third}-0-26.json"),
            before: None,
            after: Some(json!({"affinity": format!("host:{host}")})),
        };
        let line = |host: &str| format!("{{\"affinity\":\"host:{host}\"}}\n");
        let files = [
            block(0, "a-b"),
            block(1, "a:b"),
            block(2, "a-b"),
            block(3, "10.0.0.0/26"),
            block(4, "10-0-0-0-26"),
        ];
        assert_eq!(
            host_files(&files),
            BTreeMap::from([
                ("a-b.json".to_owned(), line("a-b").repeat(2)),
                ("a-b-2.json".to_owned(), line("a:b")),
                ("10.0.0.0-26.json".to_owned(), line("10.0.0.0/26")),
                ("10-0-0-0-26-2.json".to_owned(), line("10-0-0-0-26")),
            ])
        );
    }
}
