//! Resources that differ between etcd and Kubernetes only in metadata, and the allocator's settings (facts 2.2, 2.7,
//! 2.8).

use serde_json::{Value, json};

use crate::kube::Flavour;
use crate::kube::form::require_cidr;

/// Plural, kind and `spec` of a pool, a reservation, the cluster information or the settings of Calico's controllers.
pub(super) fn resource<'v>(
    flavour: Flavour,
    plural: &str,
    value: &'v Value,
) -> Result<(&'static str, &'v str, Value), String> {
    let known = ["ippools", "ipreservations", "clusterinformations", "kubecontrollersconfigurations"];
    let plural = known.into_iter().find(|known| *known == plural).ok_or("no check reads its kind")?;
    let kind = value["kind"].as_str().ok_or("it does not say what it is")?;
    let mut spec = value["spec"].clone();
    if !spec.is_object() {
        return Err("the schema requires an object for spec".to_owned());
    }
    if flavour == Flavour::Native {
        let one = (plural == "ippools").then(|| &spec["cidr"]);
        let many = spec["reservedCIDRs"].as_array().into_iter().flatten();
        for cidr in one.into_iter().chain(many) {
            require_cidr(cidr.as_str().unwrap_or_default())?;
        }
    }
    if let Some(kind) = spec["clusterType"].as_str() {
        spec["clusterType"] = format!("{kind},kdd").into();
    }
    Ok((plural, kind, spec))
}

/// The `spec` of the allocator's settings. A field that etcd omits is false there, and must be explicit here.
pub(super) fn ipam_config(flavour: Flavour, value: &Value) -> Result<Value, String> {
    let mut spec = json!({});
    for (from, to) in [("strict_affinity", "strictAffinity"), ("auto_allocate_blocks", "autoAllocateBlocks")]
    {
        let set = value.get(from).map_or(Some(false), Value::as_bool);
        spec[to] = set.ok_or_else(|| format!("the schema requires true or false for {to}"))?.into();
    }
    for field in ["maxBlocksPerHost", "kubeVirtVMAddressPersistence", "ipCooldownSeconds"] {
        if let Some(set) = value.get(field) {
            spec[field] = set.clone();
        }
    }
    // The native schema has a default for this field.
    if flavour == Flavour::Native && spec.get("maxBlocksPerHost").is_none() {
        spec["maxBlocksPerHost"] = 0.into();
    }
    Ok(spec)
}
