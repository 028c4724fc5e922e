//! From the form of etcd to `spec` of Calico's custom resources, and back (facts 2.3 to 2.6).

use std::fmt::Write;

use ipnet::IpNet;
use serde_json::{Value, json};
use sha3::{Digest, Sha3_256};

use super::Flavour;
use crate::cluster::wire;

/// The label that names an affinity's node.
pub const HOSTNAME_HASH: &str = "projectcalico.org/hostname-hash";

/// Letters of base 32.
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn object(value: &[u8]) -> Value {
    serde_json::from_slice(value).expect("values of a test cluster are JSON")
}

fn bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("a JSON value serialises")
}

/// Renames a field where it is there.
fn rename(value: &mut Value, from: &str, to: &str) {
    if let Some(fields) = value.as_object_mut()
        && let Some(moved) = fields.remove(from)
    {
        fields.insert(to.to_owned(), moved);
    }
}

/// The name of a block: `10-244-1-0-26`.
pub fn block_name(net: IpNet) -> String {
    net.to_string().replace(['.', ':', '/'], "-")
}

/// The name of an affinity. Names of nodes of tests are short.
pub fn affinity_name(node: &str, net: IpNet) -> String {
    format!("{node}-{}", block_name(net))
}

/// `spec` of a block.
pub fn block_spec(value: &[u8]) -> Value {
    let mut spec = object(value);
    rename(&mut spec, "affinity_claim_time", "affinityClaimTime");
    spec["strictAffinity"] = false.into();
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|name, value| name != "affinity" || !value.is_null());
    }
    spec
}

/// The value of a block.
pub fn block_value(spec: &Value) -> Vec<u8> {
    let mut value = spec.clone();
    rename(&mut value, "affinityClaimTime", "affinity_claim_time");
    bytes(&value)
}

/// `spec` of a handle.
pub fn handle_spec(id: &str, value: &[u8]) -> Value {
    let mut spec = object(value);
    spec["handleID"] = id.into();
    spec
}

/// The value of a handle.
pub fn handle_value(spec: &Value) -> Vec<u8> {
    bytes(&json!({"block": spec["block"], "deleted": false}))
}

/// The mark of an affinity: a text in the classic group.
pub fn affinity_flag(flavour: Flavour, value: bool) -> Value {
    match flavour {
        Flavour::Classic => value.to_string().into(),
        Flavour::Native => value.into(),
    }
}

/// `spec` of an affinity of a node.
pub fn affinity_spec(flavour: Flavour, node: &str, net: IpNet, value: &[u8]) -> Value {
    let deleted = affinity_flag(flavour, false);
    json!({"state": object(value)["state"], "node": node, "type": "host", "cidr": net.to_string(), "deleted": deleted})
}

/// The value of an affinity.
pub fn affinity_value(spec: &Value) -> Vec<u8> {
    wire::affinity(spec["state"].as_str().unwrap_or_default())
}

/// The labels by which Calico 3.31 and later finds the affinities of a node.
pub fn affinity_labels(node: &str, net: IpNet) -> Value {
    let version = if net.addr().is_ipv4() { "4" } else { "6" };
    json!({"projectcalico.org/affinity-type": "host", HOSTNAME_HASH: hostname_hash(node),
        "projectcalico.org/ip-version": version})
}

/// SHA3-256 of a node's name in base 32 without padding.
pub fn hostname_hash(node: &str) -> String {
    let mut bits = String::with_capacity(260);
    for byte in Sha3_256::digest(node.as_bytes()) {
        write!(bits, "{byte:08b}").expect("a String takes everything");
    }
    let letter = |bits: &[u8]| {
        let number = bits.iter().fold(0, |number, bit| number << 1 | usize::from(*bit == b'1'));
        char::from(BASE32[number << (5 - bits.len())])
    };
    bits.as_bytes().chunks(5).map(letter).collect()
}

/// True where an object is marked deleted, in whichever form.
pub fn is_deleted(spec: &Value) -> bool {
    spec["deleted"] == true || spec["deleted"] == "true"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::wire::{Attribute, Block};

    #[test]
    fn the_check_values_of_the_facts() {
        assert_eq!(hostname_hash("node-1"), "A3XPYDATRKB7Q4SM2O5FN4RXIHBFIL2PITFX26BAIP5XAB2X74CA");
        assert_eq!(hostname_hash("load-balancer"), "TAU2RK2F2FG7MIS72DPZYC6FJ3U3BIWIDZAMUTQY7ZXMSKQZ5GSQ");
        assert_eq!(block_name("10.244.1.0/26".parse().unwrap()), "10-244-1-0-26");
        assert_eq!(block_name("fd00:10:244::/122".parse().unwrap()), "fd00-10-244---122");
    }

    #[test]
    fn blocks_come_back_as_they_went() {
        let net = "10.0.0.0/30".parse().unwrap();
        for affinity in [None, Some("host:a".to_owned())] {
            let mut block =
                Block::new(net, affinity.clone(), Some("2026-05-01T10:11:12Z".into()), u64::MAX - 1);
            block.take(2, Attribute::new("h", [("pod", "p")]));
            let spec = block_spec(&block.value());
            assert_eq!(spec["affinityClaimTime"], "2026-05-01T10:11:12Z");
            assert_eq!(spec.get("affinity").is_some(), affinity.is_some());
            let back = Block::read(&block_value(&spec)).unwrap();
            assert_eq!(back.value(), block.value());
        }
    }

    #[test]
    fn affinities_and_handles_have_what_the_schema_requires() {
        let net = "10.0.0.0/30".parse().unwrap();
        let of = |flavour| affinity_spec(flavour, "a", net, &wire::affinity("pending"))["deleted"].clone();
        assert_eq!((of(Flavour::Classic), of(Flavour::Native)), (json!("false"), json!(false)));
        let spec = handle_spec("A.b", br#"{"block":{"10.0.0.0/30":1},"deleted":false}"#);
        assert_eq!(spec, json!({"handleID": "A.b", "block": {"10.0.0.0/30": 1}, "deleted": false}));
        assert!(is_deleted(&json!({"deleted": "true"})) && !is_deleted(&json!({"deleted": "false"})));
    }
}
