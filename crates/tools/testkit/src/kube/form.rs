//! Converts etcd values to Calico's custom resources (facts 2.3 to 2.6). The result is `None` for values that the
//! schemas of the API server refuse.

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use ipnet::IpNet;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use sha3::Sha3_256;

use super::Flavour;

/// The label with the hash of an affinity's node.
pub(crate) const HOSTNAME_HASH: &str = "projectcalico.org/hostname-hash";

/// Maximum length of an object's name.
pub(crate) const MAX_NAME: usize = 253;

pub(crate) fn object(value: &[u8]) -> Value {
    serde_json::from_slice(value).expect("values of a test cluster are JSON")
}

/// The name of a block: `10-244-1-0-26`.
pub(crate) fn block_name(net: IpNet) -> String {
    net.to_string().replace(['.', ':', '/'], "-")
}

/// The name of an affinity. It consists of the holder and the block, with a hash if it would be too long.
pub(crate) fn affinity_name(holder: &str, net: IpNet) -> String {
    let block = block_name(net);
    let name = format!("{holder}-{block}");
    if name.len() < MAX_NAME {
        return name;
    }
    let hash = HEXLOWER.encode(&Sha256::digest(format!("{holder}+{block}")));
    let keep = MAX_NAME - 1 - block.len() - 13;
    format!("{}-{block}-{}", &holder[..keep], &hash[..11])
}

/// The name, labels and `spec` of an object.
#[derive(Debug)]
pub(crate) struct Parts {
    pub name: String,
    pub labels: Option<Value>,
    pub spec: Value,
}

/// The plural and the parts of the object for an etcd key and its value.
pub(crate) fn of(flavour: Flavour, key: &str, value: &Value) -> Option<(&'static str, Parts)> {
    match key
        .strip_prefix("/calico/ipam/v2/")?
        .split('/')
        .collect::<Vec<_>>()[..]
    {
        ["handle", id] => Some(("ipamhandles", handle(id, value)?)),
        ["assignment", family, "block", dashed] => {
            Some(("ipamblocks", block(flavour, net(family, dashed)?, value)?))
        }
        [kind @ ("host" | "virtual"), holder, family, "block", dashed] => Some((
            "blockaffinities",
            affinity(flavour, kind, holder, net(family, dashed)?, value)?,
        )),
        // The name of an affinity does not contain any other type.
        _ => None,
    }
}

/// The CIDR at the end of a key. The names of objects contain no family, so they cannot express a wrong one.
fn net(family: &str, dashed: &str) -> Option<IpNet> {
    let net: IpNet = dashed.replacen('-', "/", 1).parse().ok()?;
    (family == if net.addr().is_ipv4() { "ipv4" } else { "ipv6" }).then_some(net)
}

/// Converts a block. Custom resources have no field `hostAffinity`.
pub(crate) fn block(flavour: Flavour, net: IpNet, value: &Value) -> Option<Parts> {
    let is_index = |v: &Value| v.is_null() || v.is_i64();
    let cidr = value["cidr"].as_str()?;
    let owner = value["affinity"].as_str().unwrap_or("host:");
    let is_known = owner.starts_with("host:") || owner.starts_with("virtual:");
    if flavour == Flavour::Native && !(is_cidr(cidr) && is_known) {
        return None;
    }
    // The field is `null` in a block that never had an address. In Kubernetes, Calico writes an empty list instead.
    let attributes = match &value["attributes"] {
        Value::Null => &Vec::new(),
        _ => list(value, "attributes", |v| v.is_object())?,
    };
    let mut spec = json!({
        "cidr": cidr,
        "allocations": list(value, "allocations", is_index)?,
        "unallocated": list(value, "unallocated", Value::is_i64)?,
        "attributes": attributes.iter().map(without_null).collect::<Vec<_>>(),
        "sequenceNumber": value.get("sequenceNumber").cloned().unwrap_or_else(|| 0.into()),
        "deleted": value["deleted"].as_bool().unwrap_or_default(),
        "strictAffinity": false,
    });
    if let Some(owner) = value["affinity"].as_str() {
        spec["affinity"] = owner.into();
    }
    for (from, to) in [
        ("affinity_claim_time", "affinityClaimTime"),
        ("sequenceNumberForAllocation", "sequenceNumberForAllocation"),
    ] {
        if let Some(kept) = value.get(from).filter(|kept| !kept.is_null()) {
            spec[to] = kept.clone();
        }
    }
    Some(Parts {
        name: block_name(net),
        labels: None,
        spec,
    })
}

/// Converts an affinity, and adds the three labels by which Calico has selected affinities since 3.31.
fn affinity(flavour: Flavour, kind: &str, holder: &str, net: IpNet, value: &Value) -> Option<Parts> {
    let state = value["state"].as_str().unwrap_or_default();
    if flavour == Flavour::Native && !["", "pending", "confirmed", "pendingDeletion"].contains(&state) {
        return None;
    }
    let deleted = value["deleted"].as_bool().unwrap_or_default();
    // The field is a string in the classic group.
    let deleted = match flavour {
        Flavour::Classic => deleted.to_string().into(),
        Flavour::Native => Value::Bool(deleted),
    };
    let labels = json!({
        "projectcalico.org/affinity-type": kind,
        HOSTNAME_HASH: hostname_hash(holder),
        "projectcalico.org/ip-version": if net.addr().is_ipv4() { "4" } else { "6" },
    });
    let spec = json!({"cidr": net, "deleted": deleted, "node": holder, "state": state, "type": kind});
    Some(Parts {
        name: affinity_name(holder, net),
        labels: Some(labels),
        spec,
    })
}

/// Converts a handle. The object's name is the ID in lower case.
fn handle(id: &str, value: &Value) -> Option<Parts> {
    let block = match &value["block"] {
        Value::Null => json!({}),
        Value::Object(counts) if counts.values().all(Value::is_i64) => json!(counts),
        _ => return None,
    };
    let deleted = value["deleted"].as_bool().unwrap_or_default();
    let spec = json!({"handleID": id, "block": block, "deleted": deleted});
    Some(Parts {
        name: id.to_lowercase(),
        labels: None,
        spec,
    })
}

/// True for the format `cidr` of schemas.
pub(crate) fn is_cidr(text: &str) -> bool {
    text.parse::<IpNet>().is_ok()
}

fn list<'v>(value: &'v Value, field: &str, fits: impl Fn(&Value) -> bool) -> Option<&'v Vec<Value>> {
    value[field].as_array().filter(|list| list.iter().all(fits))
}

/// Removes `null` values, which early versions of Calico wrote for absent fields and the API server drops.
fn without_null(attribute: &Value) -> Value {
    let fields = attribute
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null());
    fields
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect::<Map<_, _>>()
        .into()
}

/// SHA3-256 of a node's name in base 32 without padding.
pub(crate) fn hostname_hash(node: &str) -> String {
    BASE32_NOPAD.encode(&Sha3_256::digest(node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::wire::{self, Attribute, Block};

    #[test]
    fn the_check_values_of_the_facts() {
        assert_eq!(
            hostname_hash("node-1"),
            "A3XPYDATRKB7Q4SM2O5FN4RXIHBFIL2PITFX26BAIP5XAB2X74CA"
        );
        assert_eq!(
            hostname_hash("load-balancer"),
            "TAU2RK2F2FG7MIS72DPZYC6FJ3U3BIWIDZAMUTQY7ZXMSKQZ5GSQ"
        );
        assert_eq!(block_name("10.244.1.0/26".parse().unwrap()), "10-244-1-0-26");
        assert_eq!(
            block_name("fd00:10:244::/122".parse().unwrap()),
            "fd00-10-244---122"
        );
    }

    #[test]
    fn names_are_no_longer_than_allowed() {
        let net = "10.244.1.0/29".parse().unwrap();
        assert_eq!(affinity_name("node-1", net), "node-1-10-244-1-0-29");
        assert_eq!(affinity_name(&"n".repeat(239), net).len(), 252);
    }

    #[test]
    fn blocks_keep_their_claim_time_and_their_owner_if_any() {
        let net = "10.0.0.0/30".parse().unwrap();
        for affinity in [None, Some("host:a".to_owned())] {
            let mut block = Block::new(
                net,
                affinity.clone(),
                Some("2026-05-01T10:11:12Z".into()),
                u64::MAX - 1,
            );
            block.take(2, Attribute::new("h", [("pod", "p")]));
            let spec = super::block(Flavour::Classic, net, &object(&block.value()))
                .unwrap()
                .spec;
            assert_eq!(spec["affinityClaimTime"], "2026-05-01T10:11:12Z");
            assert_eq!(spec.get("affinity").is_some(), affinity.is_some());
        }
    }

    #[test]
    fn affinities_and_handles_have_what_the_schema_requires() {
        let net = "10.0.0.0/30".parse().unwrap();
        let pending = object(&wire::affinity("pending"));
        let deleted =
            |flavour| affinity(flavour, "host", "a", net, &pending).unwrap().spec["deleted"].clone();
        assert_eq!(
            (deleted(Flavour::Classic), deleted(Flavour::Native)),
            (json!("false"), json!(false))
        );
        let made = handle("A.b", &json!({"block": {"10.0.0.0/30": 1}, "deleted": false})).unwrap();
        assert_eq!(made.name, "a.b");
        assert_eq!(
            made.spec,
            json!({"handleID": "A.b", "block": {"10.0.0.0/30": 1}, "deleted": false})
        );
    }
}
