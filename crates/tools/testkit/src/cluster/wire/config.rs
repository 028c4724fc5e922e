//! Configuration and cluster information (facts 1.6, 1.11, 1.12).

use serde::Serialize;

use super::{Metadata, Resource, go_json};

/// The allocator's settings. etcd stores them twice, under different names.
#[derive(Clone, Copy, Debug)]
pub struct IpamSettings {
    /// True if nodes assign addresses only from their own blocks.
    pub strict_affinity: bool,
    /// True if nodes claim blocks when they need them.
    pub auto_allocate_blocks: bool,
    /// Maximum number of blocks on a node; 0 means Calico's default.
    pub max_blocks_per_host: u32,
    /// Seconds until a released address may be assigned again.
    pub cooldown_seconds: u32,
}

impl Default for IpamSettings {
    fn default() -> Self {
        Self {
            strict_affinity: false,
            auto_allocate_blocks: true,
            max_blocks_per_host: 0,
            cooldown_seconds: 30,
        }
    }
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// The value at `/calico/ipam/v2/config`, which omits false and 0.
pub fn ipam_config(settings: &IpamSettings) -> Vec<u8> {
    #[derive(Serialize)]
    struct Value {
        #[serde(skip_serializing_if = "super::is_false")]
        strict_affinity: bool,
        #[serde(skip_serializing_if = "super::is_false")]
        auto_allocate_blocks: bool,
        #[serde(rename = "maxBlocksPerHost", skip_serializing_if = "is_zero")]
        max_blocks_per_host: u32,
        #[serde(rename = "kubeVirtVMAddressPersistence")]
        persistence: &'static str,
        #[serde(rename = "ipCooldownSeconds", skip_serializing_if = "is_zero")]
        cooldown_seconds: u32,
    }
    go_json(&Value {
        strict_affinity: settings.strict_affinity,
        auto_allocate_blocks: settings.auto_allocate_blocks,
        max_blocks_per_host: settings.max_blocks_per_host,
        persistence: "Enabled",
        cooldown_seconds: settings.cooldown_seconds,
    })
}

/// The value of the resource IPAMConfiguration.
pub fn ipam_configuration(metadata: Metadata, settings: &IpamSettings) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        strict_affinity: bool,
        auto_allocate_blocks: bool,
        #[serde(skip_serializing_if = "is_zero")]
        max_blocks_per_host: u32,
        #[serde(rename = "kubeVirtVMAddressPersistence")]
        persistence: &'static str,
        #[serde(rename = "ipCooldownSeconds", skip_serializing_if = "is_zero")]
        cooldown_seconds: u32,
    }
    let spec = Spec {
        strict_affinity: settings.strict_affinity,
        auto_allocate_blocks: settings.auto_allocate_blocks,
        max_blocks_per_host: settings.max_blocks_per_host,
        persistence: "Enabled",
        cooldown_seconds: settings.cooldown_seconds,
    };
    go_json(&Resource::new("IPAMConfiguration", metadata, spec))
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
