//! Configuration and cluster information (facts 1.6, 1.11, 1.12).

use serde::Serialize;

use super::{Metadata, Resource, go_json};

/// The allocator's settings, with the fields of the resource IPAMConfiguration. etcd stores them twice, under different
/// names.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IpamSettings {
    /// True if nodes assign addresses only from their own blocks.
    pub strict_affinity: bool,
    /// True if nodes claim blocks when they need them.
    pub auto_allocate_blocks: bool,
    #[serde(rename = "kubeVirtVMAddressPersistence")]
    pub persistence: &'static str,
    /// Seconds until a released address may be assigned again.
    #[serde(rename = "ipCooldownSeconds", skip_serializing_if = "is_zero")]
    pub cooldown_seconds: u32,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl Default for IpamSettings {
    fn default() -> Self {
        Self {
            strict_affinity: false,
            auto_allocate_blocks: true,
            persistence: "Enabled",
            cooldown_seconds: 30,
        }
    }
}

/// The value at `/calico/ipam/v2/config`, which omits false and has other names for two fields.
pub fn ipam_config(settings: &IpamSettings) -> String {
    let mut text = String::from_utf8(go_json(settings)).expect("JSON is text");
    for (name, own) in [("strictAffinity", "strict_affinity"), ("autoAllocateBlocks", "auto_allocate_blocks")]
    {
        text = text.replace(&format!(r#""{name}":false,"#), "").replace(name, own);
    }
    text
}

/// The value of the resource IPAMConfiguration.
pub fn ipam_configuration(metadata: Metadata, settings: &IpamSettings) -> Vec<u8> {
    go_json(&Resource::new("IPAMConfiguration", metadata, settings))
}

/// The value of ClusterInformation.
pub fn cluster_information(metadata: Metadata, guid: &str, ready: bool) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec<'a> {
        #[serde(rename = "clusterGUID")]
        guid: &'a str,
        cluster_type: &'static str,
        calico_version: &'static str,
        datastore_ready: bool,
    }
    let spec = Spec { guid, cluster_type: "k8s,bgp", calico_version: "v3.32.1", datastore_ready: ready };
    go_json(&Resource::new("ClusterInformation", metadata, spec))
}

/// The value of KubeControllersConfiguration with the defaults that Calico writes.
pub fn kube_controllers(metadata: Metadata, leak_grace_period: &str) -> Vec<u8> {
    let controllers = r#""policy":{"reconcilerPeriod":"5m0s"},"workloadEndpoint":{"reconcilerPeriod":"5m0s"},"serviceAccount":{"reconcilerPeriod":"5m0s"},"namespace":{"reconcilerPeriod":"5m0s"},"loadBalancer":{"assignIPs":"AllServices"},"migration":{"policyNameMigrator":"Enabled"}"#;
    let metadata = String::from_utf8(go_json(&metadata)).expect("JSON is text");
    format!(
        r#"{{"kind":"KubeControllersConfiguration","apiVersion":"projectcalico.org/v3","metadata":{metadata},"spec":{{"logSeverityScreen":"Info","healthChecks":"Enabled","etcdV3CompactionPeriod":"10m0s","prometheusMetricsPort":9094,"controllers":{{"node":{{"reconcilerPeriod":"5m0s","syncLabels":"Enabled","hostEndpoint":{{"autoCreate":"Disabled","createDefaultHostEndpoint":"Enabled"}},"leakGracePeriod":"{leak_grace_period}"}},{controllers}}}}},"status":{{"runningConfig":{{"logSeverityScreen":"Info","healthChecks":"Enabled","etcdV3CompactionPeriod":"10m0s"}}}}}}"#
    )
    .into_bytes()
}
