//! Values as Calico writes them to etcd (facts 1.3–1.13). Nothing here uses calipam's model, so that tests do not
//! compare it with itself.

mod block;
mod json;
pub mod key;
mod tunnel;

use serde_json::{Value, json};

pub use self::block::{Attribute, Block, Entries, Era};
pub use self::json::go_json;
pub(super) use self::json::merge;
pub use self::tunnel::Tunnel;

/// The value of an affinity.
pub fn affinity(state: &str) -> Vec<u8> {
    format!(r#"{{"state":"{state}","deleted":false}}"#).into_bytes()
}

/// A v3 API resource without status.
pub fn resource(kind: &str, metadata: Value, spec: Value) -> Value {
    json!({"kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": metadata, "spec": spec})
}

/// The settings at `/calico/ipam/v2/config`, as a patch. Two fields have other names there, and false is omitted.
pub fn ipam_config(settings: &Value) -> Value {
    let renamed = |name: &str| match name {
        "strictAffinity" => "strict_affinity".to_owned(),
        "autoAllocateBlocks" => "auto_allocate_blocks".to_owned(),
        other => other.to_owned(),
    };
    let set = |value: &Value| if *value == json!(false) { Value::Null } else { value.clone() };
    settings.as_object().into_iter().flatten().map(|(name, value)| (renamed(name), set(value))).collect()
}

/// The value of KubeControllersConfiguration with the defaults that Calico writes.
pub fn kube_controllers(metadata: &Value, leak_grace_period: &str) -> Vec<u8> {
    let controllers = r#""policy":{"reconcilerPeriod":"5m0s"},"workloadEndpoint":{"reconcilerPeriod":"5m0s"},"serviceAccount":{"reconcilerPeriod":"5m0s"},"namespace":{"reconcilerPeriod":"5m0s"},"loadBalancer":{"assignIPs":"AllServices"},"migration":{"policyNameMigrator":"Enabled"}"#;
    let metadata = String::from_utf8(go_json(metadata)).expect("JSON is text");
    format!(
        r#"{{"kind":"KubeControllersConfiguration","apiVersion":"projectcalico.org/v3","metadata":{metadata},"spec":{{"logSeverityScreen":"Info","healthChecks":"Enabled","etcdV3CompactionPeriod":"10m0s","prometheusMetricsPort":9094,"controllers":{{"node":{{"reconcilerPeriod":"5m0s","syncLabels":"Enabled","hostEndpoint":{{"autoCreate":"Disabled","createDefaultHostEndpoint":"Enabled"}},"leakGracePeriod":"{leak_grace_period}"}},{controllers}}}}},"status":{{"runningConfig":{{"logSeverityScreen":"Info","healthChecks":"Enabled","etcdV3CompactionPeriod":"10m0s"}}}}}}"#
    )
    .into_bytes()
}
