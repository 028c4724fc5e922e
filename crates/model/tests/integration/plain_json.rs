//! The fast reader of plain JSON gives the same results as the general one. A line break after a value makes the fast
//! reader leave the value to the general one.

use calipam_model::block::RecordDetail;
use calipam_model::from_json;
use calipam_model::snapshot::{Defect, DefectKind, Snapshot};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The tokens of a document.
#[derive(Debug, PartialEq)]
struct Tokens(Vec<String>);

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Listener;
        impl<'de> Visitor<'de> for Listener {
            type Value = Tokens;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("anything")
            }

            fn visit_unit<E>(self) -> Result<Tokens, E> {
                Ok(Tokens(vec!["null".to_owned()]))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Tokens, E> {
                Ok(Tokens(vec![format!("bool {value}")]))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Tokens, E> {
                Ok(Tokens(vec![format!("u64 {value}")]))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Tokens, E> {
                Ok(Tokens(vec![format!("i64 {value}")]))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Tokens, E> {
                Ok(Tokens(vec![format!("f64 {value:?}")]))
            }

            fn visit_str<E>(self, value: &str) -> Result<Tokens, E> {
                Ok(Tokens(vec![format!("text {value:?}")]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tokens, A::Error> {
                let mut tokens = vec!["[".to_owned()];
                while let Some(Tokens(inner)) = seq.next_element()? {
                    tokens.extend(inner);
                }
                tokens.push("]".to_owned());
                Ok(Tokens(tokens))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tokens, A::Error> {
                let mut tokens = vec!["{".to_owned()];
                while let Some((key, Tokens(inner))) = map.next_entry::<String, Tokens>()? {
                    tokens.push(key);
                    tokens.extend(inner);
                }
                tokens.push("}".to_owned());
                Ok(Tokens(tokens))
            }
        }
        deserializer.deserialize_any(Listener)
    }
}

/// JSON with every kind of value, blanks anywhere, and duplicate fields.
fn json() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        4 => "[a-z0-9 .:/-]{0,24}",
        1 => "\\PC{0,6}",
        1 => Just("\\u0041\\n\\\\".to_owned()),
        1 => Just("\u{7f}é\u{10ffff}".to_owned()),
    ]
    .prop_map(|text| {
        if text.contains('"') {
            "\"\"".to_owned()
        } else {
            format!("\"{text}\"")
        }
    });
    let number = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        "-?[0-9]{1,22}",
        "-?[0-9]{1,3}([.][0-9]{0,3})?([eE][+-]?[0-9]{0,2})?",
    ];
    let literal = prop_oneof!["true", "false", "null", "nul", "nulll"];
    let leaf = prop_oneof![4 => text.clone(), 3 => number, 2 => literal];
    let blank = || prop_oneof![6 => Just(""), 2 => Just(" "), 1 => Just("\n"), 1 => Just("\t ")];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        let name =
            prop_oneof![3 => Just("\"a\"".to_owned()), 1 => Just("\"A\"".to_owned()), 2 => text.clone()];
        let member = (name, blank(), blank(), inner.clone(), blank())
            .prop_map(|(name, before, after, value, end)| format!("{name}{before}:{after}{value}{end}"));
        let item =
            (blank(), inner, blank()).prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        prop_oneof![
            prop::collection::vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(","))),
            prop::collection::vec(item, 0..6).prop_map(|items| format!("[{}]", items.join(","))),
        ]
    })
}

/// Bytes that are special in JSON, and some that are never valid.
const BYTES: [u8; 22] = *b"\"\\{}[]:, \n\t\x00\xFF\xC3\x7Fen0-1.+";

/// Changes to single bytes. Each has a position, a new byte, and a flag that is true if the byte is inserted.
fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, bool)>> {
    let byte = prop_oneof![prop::sample::select(&BYTES[..]), any::<u8>()];
    prop::collection::vec((any::<prop::sample::Index>(), byte, any::<bool>()), 0..3)
}

fn changed(mut bytes: Vec<u8>, changes: &[(prop::sample::Index, u8, bool)]) -> Vec<u8> {
    for (place, byte, is_added) in changes
        .iter()
        .filter(|_| !bytes.is_empty())
        .cloned()
        .collect::<Vec<_>>()
    {
        let place = place.index(bytes.len());
        if is_added {
            bytes.insert(place, byte);
        } else {
            bytes[place] = byte;
        }
    }
    bytes
}

/// An endpoint or a block with records. Any field can be missing, empty, duplicate, or of another type. Each field has
/// few variants, so that many values share a layout.
fn odd_value() -> impl Strategy<Value = (Vec<u8>, String)> {
    let value = || {
        prop_oneof![
            6 => "[a-c]{0,2}".prop_map(|text| format!("\"{text}\"")),
            3 => Just("\"10.0.0.1\"".to_owned()),
            1 => prop::sample::select(&["null", "{}", "[]", "1", "true", "\"\\n\"", "[null]", "{\"a\":\"b\"}", "[\"a\",1]"][..])
                .prop_map(str::to_owned),
        ]
    };
    let object = move |names: &'static [&'static str]| {
        let fields = prop::collection::vec((prop::sample::select(names), value()), 0..4);
        fields.prop_map(|fields| {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("\"{name}\":{value}"))
                .collect();
            format!("{{{}}}", fields.join(","))
        })
    };
    let networks = prop_oneof![3 => Just(r#"["10.0.0.1/32"]"#), 1 => Just(r#"["10.0.0.2"]"#), 1 => Just("[]"), 1 => Just(r#"["10.0.0.1","fd00::1"]"#)];
    let endpoint = (
        object(&["creationTimestamp", "labels", "name"]),
        object(&["node", "pod", "Node", "labels", "x"]),
        networks,
    )
        .prop_map(|(metadata, spec, networks)| {
            let spec = spec
                .replacen('{', &format!("{{\"ipNetworks\":{networks},"), 1)
                .replace(",}", "}");
            let key = b"/calico/resources/v3/projectcalico.org/workloadendpoints/default/name".to_vec();
            (key, format!("{{\"metadata\":{metadata},\"spec\":{spec}}}"))
        });
    let record = (
        prop_oneof!["\"h\"", "\"\"", "null"],
        object(&["pod", "node", "odd"]),
        0..8_u8,
        "[ab]",
    )
        .prop_map(|(handle, owner, more, text)| {
            let more = match more {
                0 => format!(",\"releasedAt\":\"{text}\""),
                1 => format!(",\"alternateOwnerAttrs\":{{\"pod\":\"{text}\"}}"),
                2 => format!(",\"future\":\"{text}\""),
                3 => ",\"secondary\":null".to_owned(),
                _ => String::new(),
            };
            format!("{{\"handle_id\":{handle},\"secondary\":{owner}{more}}}")
        });
    let block = prop::collection::vec(record, 4..=4).prop_map(|records| {
        let head = r#""cidr":"10.0.0.0/30","affinity":"host:a","allocations":[0,1,2,3],"unallocated":[]"#;
        (
            b"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30".to_vec(),
            format!("{{{head},\"attributes\":[{}]}}", records.join(",")),
        )
    });
    prop_oneof![endpoint, block]
}

/// Checks that both readers return the same value, or both fail.
fn compare(bytes: &[u8]) -> Result<(), TestCaseError> {
    prop_assert_eq!(
        from_json::<Tokens>(bytes).ok(),
        serde_json::from_slice::<Tokens>(bytes).ok()
    );
    let expected = serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
    prop_assert_eq!(from_json::<IgnoredAny>(bytes).is_ok(), expected);
    let raw = from_json::<&RawValue>(bytes).map(RawValue::get).ok();
    prop_assert_eq!(
        raw,
        serde_json::from_slice::<&RawValue>(bytes).map(RawValue::get).ok()
    );
    Ok(())
}

/// A small cluster's entries, with every kind in etcd.
fn entries() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    Cluster::sized(ClusterSpec::new(3), 200)
        .for_each_entry(|key, value| entries.push((key.to_vec(), value.to_vec())));
    entries
}

const DETAILS: [RecordDetail; 2] = [RecordDetail::Full, RecordDetail::Borrowers];

/// Reads an entry. Clears error messages, since they contain positions, which a line break changes.
fn read(key: &[u8], value: &[u8], records: RecordDetail) -> Snapshot {
    let mut snapshot = Snapshot {
        records,
        ..Snapshot::default()
    };
    snapshot.add_entry(key, value, 7);
    for Defect { kind, .. } in &mut snapshot.defects {
        if let DefectKind::Value(reason) = kind {
            reason.clear();
        }
    }
    snapshot
}

/// The debug output of a snapshot, without the line break that corrupt blocks keep.
fn debug(snapshot: &Snapshot) -> String {
    format!("{snapshot:?}").replace("\\n\" }", "\" }")
}

#[test]
fn the_values_of_a_cluster_are_read_alike() {
    for ((key, value), records) in entries()
        .into_iter()
        .flat_map(|entry| DETAILS.map(|records| (entry.clone(), records)))
    {
        let general = read(&key, &[&value, b"\n".as_slice()].concat(), records);
        assert_eq!(
            read(&key, &value, records),
            general,
            "{}",
            String::from_utf8_lossy(&key)
        );
        assert!(general.defects.is_empty());
    }
}

proptest! {
    #[test]
    fn both_readers_accept_the_same(text in json(), changes in changes()) {
        compare(text.as_bytes())?;
        compare(&changed(text.into_bytes(), &changes))?;
    }

    #[test]
    fn damaged_values_of_a_cluster_are_read_alike(entry in any::<prop::sample::Index>(), changes in changes()) {
        static ENTRIES: std::sync::LazyLock<Vec<(Vec<u8>, Vec<u8>)>> = std::sync::LazyLock::new(entries);
        let (key, value) = entry.get(&ENTRIES);
        let value = changed(value.clone(), &changes);
        compare(&value)?;
        for records in DETAILS {
            let general = read(key, &[&value, b"\n".as_slice()].concat(), records);
            prop_assert_eq!(debug(&read(key, &value, records)), debug(&general));
        }
    }

    #[test]
    fn odd_values_are_read_alike_whatever_was_read_before(values in prop::collection::vec(odd_value(), 1..6)) {
        for ((key, value), records) in values.iter().chain(&values).flat_map(|value| DETAILS.map(|records| (value, records))) {
            let general = read(key, format!("{value}\n").as_bytes(), records);
            prop_assert_eq!(debug(&read(key, value.as_bytes(), records)), debug(&general), "{}", value);
        }
    }
}
