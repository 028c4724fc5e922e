//! Blocks, affinities and handles (facts 2.4 to 2.6), from the values that etcd holds. What the schemas of the API
//! server refuse is refused here.

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::names::{affinity_name, block_name};
use crate::kube::Flavour;
use crate::kube::form::hostname_hash;

/// Name, labels and `spec` of an object.
#[derive(Debug)]
pub(super) struct Parts {
    pub name: String,
    pub labels: Option<Value>,
    pub spec: Value,
}

/// A block. Custom resources have no field `hostAffinity`.
pub(super) fn block(flavour: Flavour, net: IpNet, value: &Value) -> Result<Parts, String> {
    let is_index = |v: &Value| v.is_null() || v.is_i64();
    let cidr = text(value, "cidr")?;
    if flavour == Flavour::Native {
        require_cidr(&cidr)?;
    }
    let owner = value["affinity"].as_str().unwrap_or("host:");
    if flavour == Flavour::Native && !owner.starts_with("host:") && !owner.starts_with("virtual:") {
        return Err(format!("the schema takes no owner {owner:?}"));
    }
    let attributes = list(value, "attributes", |v| v.is_object())?;
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
    Ok(Parts { name: block_name(net), labels: None, spec })
}

/// An affinity with the three labels that Calico 3.31 and later looks for.
pub(super) fn affinity(
    flavour: Flavour,
    kind: &str,
    holder: &str,
    net: IpNet,
    value: &Value,
) -> Result<Parts, String> {
    let state = value["state"].as_str().unwrap_or_default();
    if flavour == Flavour::Native && !["", "pending", "confirmed", "pendingDeletion"].contains(&state) {
        return Err(format!("the schema has no state {state:?}"));
    }
    let deleted = value["deleted"].as_bool().unwrap_or_default();
    let deleted = match flavour {
        Flavour::Classic => json!(deleted.to_string()),
        Flavour::Native => json!(deleted),
    };
    let labels = json!({
        "projectcalico.org/affinity-type": kind,
        "projectcalico.org/hostname-hash": hostname_hash(holder),
        "projectcalico.org/ip-version": if net.addr().is_ipv4() { "4" } else { "6" },
    });
    let spec = json!({"cidr": net, "deleted": deleted, "node": holder, "state": state, "type": kind});
    Ok(Parts { name: affinity_name(holder, net), labels: Some(labels), spec })
}

/// A handle: its name is the ID in lower case.
pub(super) fn handle(id: &str, value: &Value) -> Result<Parts, String> {
    let block = match &value["block"] {
        Value::Null => json!({}),
        Value::Object(counts) if counts.values().all(Value::is_i64) => json!(counts),
        _ => return Err("the schema wants numbers by block".to_owned()),
    };
    let deleted = value["deleted"].as_bool().unwrap_or_default();
    let spec = json!({"handleID": id, "block": block, "deleted": deleted});
    Ok(Parts { name: id.to_lowercase(), labels: None, spec })
}

/// Fails where a text is no CIDR: schemas may demand the format.
pub(super) fn require_cidr(text: &str) -> Result<(), String> {
    text.parse::<IpNet>().map(drop).map_err(|_| format!("the schema takes no {text:?} for a CIDR"))
}

fn text(value: &Value, field: &str) -> Result<String, String> {
    value[field].as_str().map(str::to_owned).ok_or_else(|| format!("the schema wants a text for {field}"))
}

fn list<'v>(value: &'v Value, field: &str, fits: impl Fn(&Value) -> bool) -> Result<&'v Vec<Value>, String> {
    let refused = || format!("the schema does not take this list of {field}");
    value[field].as_array().filter(|list| list.iter().all(fits)).ok_or_else(refused)
}

/// Early writers wrote `null` for what is absent; the API server drops it.
fn without_null(attribute: &Value) -> Value {
    let fields = attribute.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>().into()
}
