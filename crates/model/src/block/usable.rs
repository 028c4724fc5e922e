//! The JSON of corrupt blocks, rewritten into that of the block that an allocator still uses.

use std::collections::{BTreeMap, HashSet};

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::BlockProblem;
use crate::attributes::WINDOWS_RESERVED_HANDLE;

/// The block in which an ordinal is free exactly if the free list names it. `None` if more is broken than the free
/// list. An ordinal that is missing in the free list and has no record gets the record of the ordinals that Windows
/// reserves: its address is not free, but Calico treats the block as empty if no other address is in use.
pub(super) fn by_free_list(json: &str, problems: &[BlockProblem]) -> Option<Vec<u8>> {
    for problem in problems {
        match problem {
            BlockProblem::FreeListAllocated { .. }
            | BlockProblem::FreeListIncomplete { .. }
            | BlockProblem::FreeListDuplicate { .. }
            | BlockProblem::UnreferencedAttribute { .. } => {}
            _ => return None,
        }
    }

    let mut fields = unambiguous_fields(json)?;
    let mut records: Vec<&RawValue> = serde_json::from_str(fields.get("attributes")?.get()).ok()?;
    let mut allocations: Vec<Option<u64>> = serde_json::from_str(fields.get("allocations")?.get()).ok()?;
    let mut free: Vec<u32> = serde_json::from_str(fields.get("unallocated")?.get()).ok()?;
    let mut listed = HashSet::new();
    free.retain(|ordinal| listed.insert(*ordinal));
    let reserved = to_raw_value(&json!({ "handle_id": WINDOWS_RESERVED_HANDLE })).ok()?;

    let reserved_record = records.len() as u64;
    for problem in problems {
        match problem {
            BlockProblem::FreeListAllocated { ordinal } => allocations[*ordinal as usize] = None,
            BlockProblem::FreeListIncomplete { ordinal } => {
                allocations[*ordinal as usize] = Some(reserved_record)
            }
            _ => {}
        }
    }
    records.push(&reserved);

    fields.insert("attributes".to_owned(), to_raw_value(&records).ok()?);
    fields.insert("allocations".to_owned(), to_raw_value(&allocations).ok()?);
    fields.insert("unallocated".to_owned(), to_raw_value(&free).ok()?);
    serde_json::to_vec(&fields).ok()
}

/// The fields of a block. `None` if names differ only in case: the last field counts, but the order of fields is lost
/// here.
fn unambiguous_fields(json: &str) -> Option<BTreeMap<String, Box<RawValue>>> {
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(json).ok()?;
    let names: HashSet<String> = fields.keys().map(|name| name.to_ascii_lowercase()).collect();
    if names.len() < fields.len() {
        return None;
    }
    Some(fields)
}

/// The block without the records that no ordinal refers to. `None` if it has any other problem, or if duplicate field
/// names make its meaning unclear.
pub(super) fn without_unreferenced(json: &str, problems: &[BlockProblem]) -> Option<Vec<u8>> {
    let mut unreferenced: Vec<u64> = Vec::new();
    for problem in problems {
        match problem {
            BlockProblem::UnreferencedAttribute { index } => unreferenced.push(u64::from(*index)),
            _ => return None,
        }
    }

    let mut fields = unambiguous_fields(json)?;
    let records: Vec<&RawValue> = serde_json::from_str(fields.get("attributes")?.get()).ok()?;
    let mut referenced_records: Vec<&RawValue> = Vec::new();
    for (index, record) in (0u64..).zip(records) {
        if unreferenced.binary_search(&index).is_err() {
            referenced_records.push(record);
        }
    }

    let mut allocations: Vec<Option<u64>> = serde_json::from_str(fields.get("allocations")?.get()).ok()?;
    for index in allocations.iter_mut().flatten() {
        let removed_before = unreferenced.partition_point(|removed| *removed < *index);
        *index -= removed_before as u64;
    }

    fields.insert("attributes".to_owned(), to_raw_value(&referenced_records).ok()?);
    fields.insert("allocations".to_owned(), to_raw_value(&allocations).ok()?);
    serde_json::to_vec(&fields).ok()
}

#[cfg(test)]
mod tests {
    use super::super::BlockContent;

    /// A block with four addresses, of which the first two are allocated.
    fn block(allocations: &str, attributes: &str) -> BlockContent {
        with_free_list(allocations, "[2,3]", attributes)
    }

    fn with_free_list(allocations: &str, free: &str, attributes: &str) -> BlockContent {
        let json = format!(
            r#"{{"cidr":"10.0.0.0/30","affinity":"host:a","allocations":{allocations},"unallocated":{free},
            "attributes":[{attributes}],"sequenceNumber":18446744073709551615,"sequenceNumberForAllocation":{{}},"deleted":false}}"#
        );
        BlockContent::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn records_that_no_ordinal_refers_to_are_left_out() {
        let (one, two) = (
            r#"{"handle_id":"h1"}"#,
            r#"{"handle_id":"h2","secondary":{"node":"a"}}"#,
        );
        let stray = r#"{"handle_id":"stray"}"#;
        let sound = block("[0,1,null,null]", &format!("{one},{two}"))
            .into_usable()
            .unwrap();
        for (allocations, attributes) in [
            ("[1,2,null,null]", format!("{stray},{one},{two}")),
            ("[0,2,null,null]", format!("{one},{stray},{two}")),
            ("[1,3,null,null]", format!("{stray},{one},{stray},{two},{stray}")),
        ] {
            let content = block(allocations, &attributes);
            assert!(
                content.sound().is_none(),
                "a check still reports the block as corrupt"
            );
            assert_eq!(content.into_usable().unwrap(), sound);
        }
        // It is unknown which of the two `attributes` fields counts.
        let twice = format!(r#"{stray},{two},{one}],"Attributes":[{stray},{one},{two}"#);
        assert!(block("[1,2,null,null]", &twice).usable().is_none());
        let broken = block("[0,7,null,null]", &format!("{one},{stray}"))
            .into_usable()
            .unwrap_err()
            .to_string();
        assert!(
            broken.contains("attribute 7") && broken.contains("attribute 1"),
            "{broken}"
        );
    }

    #[test]
    fn calico_looks_at_the_free_list_alone() {
        let record = r#"{"handle_id":"h1"}"#;
        let sound = block("[0,0,null,null]", record);
        assert_eq!(sound.as_calico_takes().as_deref(), sound.sound());

        let block = with_free_list("[0,0,null,null]", "[1,3,1]", record);
        assert!(block.usable().is_none());
        let taken = block.as_calico_takes().unwrap();
        assert_eq!(taken.free(), [1, 3]);
        let allocated: Vec<u32> = taken.allocations().map(|allocation| allocation.ordinal).collect();
        assert_eq!(allocated, [0, 2]);
        assert!(!taken.is_empty(), "the first address has a record");

        let empty = with_free_list("[null,null,null,null]", "[3,0,2]", "");
        let empty = empty.as_calico_takes().unwrap();
        assert_eq!(empty.free(), [3, 0, 2]);
        assert!(empty.is_empty(), "no address has a record");

        for broken in [
            block_of_length("[0,0,null]"),
            with_free_list("[0,0,null,null]", "[2,3,9]", record),
        ] {
            assert!(broken.as_calico_takes().is_none());
        }
    }

    fn block_of_length(allocations: &str) -> BlockContent {
        with_free_list(allocations, "[2]", r#"{"handle_id":"h1"}"#)
    }
}
