//! Blocks that are read with the detail `Borrowers`: the records of the owner are merged, and only borrowers' records
//! are read in full.

use calipam_model::DecodeError;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::{Block, BlockContent, RecordDetail};
use calipam_testkit::cluster::{Cluster, ClusterSpec};

/// A block with four addresses, of which the first three are taken. Its line break makes the general JSON reader read
/// it.
fn block(before: &str, records: &str, after: &str) -> String {
    format!(
        r#"{{"cidr":"10.0.0.0/30",{before}"allocations":[0,1,2,null],"unallocated":[3],"attributes":[{records}],{after}
           "sequenceNumber":9,"sequenceNumberForAllocation":{{"0":7,"1":8}}}}"#
    )
}

fn parse(json: &str, detail: RecordDetail) -> Result<BlockContent, DecodeError> {
    BlockContent::parse_with(json.as_bytes(), detail)
}

/// Reads the block with both JSON readers, and expects the same result.
fn read(json: &str, detail: RecordDetail) -> Block {
    let general = parse(json, detail).unwrap();
    assert_eq!(
        parse(&json.replace('\n', " "), detail).as_ref(),
        Ok(&general),
        "{json}"
    );
    match general {
        BlockContent::Sound(block) => *block,
        BlockContent::Corrupt(block) => panic!("{:?}", block.problems),
    }
}

const OWN: &str =
    r#"{"handle_id":"net.a","secondary":{"node":"node-1","pod":"web-0","namespace":"default"}}"#;
const LENT: &str =
    r#"{"handle_id":"net.b","secondary":{"node":"node-2","pod":"web-1","namespace":"default"}}"#;

/// The handle, node and pod in an ordinal's record.
fn says(block: &Block, ordinal: u32) -> [Option<String>; 3] {
    let record = block.allocation(ordinal).unwrap().attribute;
    [record.handle(), record.get("node"), record.get("pod")].map(|text| text.map(|text| text.to_string()))
}

fn some(texts: [&str; 3]) -> [Option<String>; 3] {
    texts.map(|text| Some(text.to_owned()))
}

#[test]
fn records_of_the_owner_are_merged_and_others_are_read_in_full() {
    let json = block(r#""affinity":"host:node-1","#, &[OWN, LENT, OWN].join(","), "");
    let reduced = read(&json, RecordDetail::Borrowers);
    for ordinal in [0, 2] {
        assert_eq!(says(&reduced, ordinal), [None, Some("node-1".into()), None]);
    }
    assert_eq!(says(&reduced, 1), some(["net.b", "node-2", "web-1"]));
    assert_eq!(reduced.attributes().count(), 2);
    assert_eq!(
        (reduced.allocated(), reduced.free(), reduced.sequence()),
        (3, [3].as_slice(), 9)
    );
    assert!(reduced.allocations().all(|allocation| allocation.sequence == 0));
}

#[test]
fn the_one_record_has_the_newest_time() {
    let at = |time: &str| {
        let time = format!("2026-05-01 10:12:{time} +0000 UTC");
        format!(r#"{{"handle_id":"net.a","secondary":{{"node":"node-1","timestamp":"{time}"}}}}"#)
    };
    for (times, newest) in [
        (["00", "01.5"], "01.5"),
        (["01.5", "01.25"], "01.5"),
        (["01", "01.001"], "01.001"),
    ] {
        let records = [at(times[0]), at(times[1]), OWN.to_owned()].join(",");
        let reduced = read(
            &block(r#""affinity":"host:node-1","#, &records, ""),
            RecordDetail::Borrowers,
        );
        let found = reduced
            .allocation(0)
            .unwrap()
            .attribute
            .get("timestamp")
            .unwrap()
            .to_string();
        assert_eq!(found, format!("2026-05-01 10:12:{newest} +0000 UTC"));
        assert_eq!(reduced.attributes().count(), 1);
    }
}

#[test]
fn records_with_more_fields_are_read_in_full() {
    let node = r#""secondary":{"node":"node-1"}"#;
    for record in [
        r#"{"handle_id":"net.a","secondary":{"pod":"web-0"}}"#.to_owned(),
        r#"{"handle_id":"net.a","secondary":null}"#.to_owned(),
        "{}".to_owned(),
        "null".to_owned(),
        format!(r#"{{"handle_id":"Windows-reserved-ipam-handle",{node}}}"#),
        format!(r#"{{{node},"releasedAt":"2026-05-01T10:00:00Z"}}"#),
        format!(r#"{{{node},"alternateOwnerAttrs":{{"node":"node-2"}}}}"#),
        format!(r#"{{{node},"later":1}}"#),
        r#"{"secondary":{"node":"node-1"},"secondary":{"node":"node-2"}}"#.to_owned(),
    ] {
        let json = block(r#""affinity":"host:node-1","#, &[OWN, &record, OWN].join(","), "");
        let (reduced, full) = (
            read(&json, RecordDetail::Borrowers),
            read(&json, RecordDetail::Full),
        );
        let whole = |block: &Block| block.allocation(1).unwrap().attribute.to_attribute();
        assert_eq!(whole(&reduced), whole(&full), "{record}");
    }
}

#[test]
fn records_in_other_forms_are_read_as_by_the_general_reader() {
    for record in [
        r#"{"secondary":{"node":"node-1"},"handle_id":"net.a"}"#,
        r#"{"handle_id":"net.a","secondary":{"node":"node-2","node":"node-1"}}"#,
        r#"{"handle_id":"net.a","secondary":{"node":"node-1","node":"node-2"}}"#,
        r#"{"handle_id":"net.a","secondary":{"node":"node-1"},"secondary":{"node":"node-2"}}"#,
        r#"{"handle_id":"net.a","secondary":{"node":"node-1"},"secondary":null}"#,
        r#"{"handle_id":"net.a","secondary":{"pod":"a","node":"node-1"},"releasedAt":"x"}"#,
        r#"{"handle_id":"net.a","secondary":{"node":"node-1","pod":null}}"#,
        r#"{"handle_id":"net.a","secondary":{"Node":"node-1"}}"#,
        r#"{"handle_id":"net.a","secondary":{ "node":"node-1"}}"#,
        r#"{"handle_id":"net.a","secondary":{"node":"node-1"} }"#,
        r#"{"handle_id":"","secondary":{"node":"node-1"}}"#,
        r#"{"handle_id":"net.a","secondary":{}}"#,
        r#"{"handle_id":null,"secondary":{"node":"node-1"}}"#,
        r#"{"handle_id":"WINDOWS-reserved-ipam-handle","secondary":{"node":"node-1"}}"#,
        r#"{"handle_id":"net.\u0061","secondary":{"node":"node-1"}}"#,
        r#"{"handle_id":"net.a","secondary":{"node":"node\u002d1"}}"#,
        r#"{"handle_id":"net.a}}","secondary":{"note":"{\"","node":"node-1"}}"#,
        // Calico cannot decode these records.
        r#"{"handle_id":"net.a","secondary":{"node":"node-1","pod":1}}"#,
        r#"{"handle_id":"net.a","secondary":{"node":"node-1","pod":{"a":"b"}}}"#,
        r#"{"handle_id":"net.a","secondary":["node"]}"#,
        r#"{"handle_id":7,"secondary":{"node":"node-1"}}"#,
        r#"{"handle_id":"net.a","secondary":{"node":"node-1",}}"#,
        r#"{"handle_id":"net.a","secondary":{"node":"node-1"}"#,
        r#"{"handle_id":"net.a""secondary":{"node":"node-1"}}"#,
        r#""net.a""#,
    ] {
        let json = block(r#""affinity":"host:node-1","#, &[OWN, record, LENT].join(","), "");
        for detail in [RecordDetail::Full, RecordDetail::Borrowers] {
            let (general, plain) = (parse(&json, detail), parse(&json.replace('\n', " "), detail));
            // The errors of the two readers differ only in their position.
            assert_eq!(plain.map_err(drop), general.map_err(drop), "{record}");
        }
    }
}

#[test]
fn all_records_are_read_in_full_unless_a_node_is_known_as_the_owner() {
    let records = [OWN, LENT, OWN].join(",");
    for (before, after) in [
        ("", r#""affinity":"host:node-1","#),
        ("", ""),
        (r#""affinity":null,"#, ""),
        (r#""affinity":"virtual:node-1","#, ""),
        // If there are several `affinity` fields, the last one counts.
        (r#""affinity":"host:node-1","#, r#""affinity":"host:node-2","#),
        (r#""affinity":"host:node-1","#, r#""AFFINITY":"","#),
    ] {
        let json = block(before, &records, after);
        let (reduced, full) = (
            read(&json, RecordDetail::Borrowers),
            read(&json, RecordDetail::Full),
        );
        let whole = |block: &Block| {
            block
                .attributes()
                .map(AttributeRef::to_attribute)
                .collect::<Vec<_>>()
        };
        assert_eq!(whole(&reduced), whole(&full), "{json}");
    }
}

#[test]
fn reduced_and_full_reads_find_the_same_problems() {
    for seed in 0..3 {
        for stored in Cluster::all_faults(ClusterSpec::new(seed), 1).blocks() {
            let value = stored.value();
            let full = BlockContent::parse(&value);
            match (BlockContent::parse_with(&value, RecordDetail::Borrowers), full) {
                (Ok(BlockContent::Sound(reduced)), Ok(BlockContent::Sound(full))) => {
                    assert_eq!((reduced.cidr(), reduced.owner()), (full.cidr(), full.owner()));
                    assert_eq!(
                        (reduced.allocated(), reduced.free()),
                        (full.allocated(), full.free())
                    );
                    let nodes = |block: &Block| {
                        let nodes = block
                            .allocations()
                            .map(|a| (a.ordinal, a.attribute.get("node").map(|n| n.to_string())));
                        nodes.collect::<Vec<_>>()
                    };
                    assert_eq!(nodes(&reduced), nodes(&full));
                }
                (reduced, full) => assert_eq!(reduced, full),
            }
        }
    }
}
