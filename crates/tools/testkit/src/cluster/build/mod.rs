//! Builds healthy clusters, piece by piece.

mod extras;
mod features;
mod kubevirt;
mod nodes;
mod old;
mod pods;
mod pools;
mod rarities;
mod unusual_pods;

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::kubernetes_only::KubernetesOnly;
use super::layout::ClusterSpec;
use super::wire::{self, Attribute, Block, IpamSettings, Pool, key};
use super::{Cluster, Object};

pub(super) use self::extras::sub_block;
pub(crate) use self::pods::{Holder, endpoint_of};

/// The GUID of a generated cluster.
const GUID: &str = "0f0e1d2c3b4a59687786951423324150";

/// The owner record of a service's address.
pub(super) fn service_record(handle: &str, namespace: &str, service: &str) -> Attribute {
    let entries = [
        ("service", service),
        ("namespace", namespace),
        ("type", "LoadBalancer"),
        ("timestamp", "2026-05-01 10:12:00.5 +0000 UTC"),
    ];
    Attribute::new(handle, entries)
}

/// The GUID of a cluster, which depends on its place.
fn guid(spec: &ClusterSpec) -> String {
    if spec.place == super::layout::ALONE {
        GUID.to_owned()
    } else {
        format!("{:08x}{}", spec.place, &GUID[8..])
    }
}

impl Cluster {
    /// Creates a small healthy cluster with everything that a check must not report.
    pub fn small(spec: ClusterSpec) -> Self {
        let mut cluster = Self::plain(spec, 4, 5);
        cluster.add_extras();
        cluster.add_rarities();
        cluster
    }

    /// Creates a healthy cluster of `nodes` nodes with `pods` pods each.
    pub fn plain(spec: ClusterSpec, nodes: u32, pods: usize) -> Self {
        let mut cluster = Self::with_configuration(spec);
        for _ in 0..nodes {
            let node = cluster.add_node();
            for _ in 0..pods {
                cluster.add_pod_on(node);
            }
        }
        cluster
    }

    /// Creates a cluster without nodes: pools, configuration and cluster information.
    pub fn with_configuration(spec: ClusterSpec) -> Self {
        let mut cluster = Self::bare(spec);
        cluster.add_default_pools();
        cluster.put_configuration();
        cluster
    }

    /// Creates an empty cluster.
    pub(super) fn bare(spec: ClusterSpec) -> Self {
        let settings = IpamSettings { cooldown_seconds: spec.cooldown_seconds, ..IpamSettings::default() };
        Self {
            spec,
            entries: BTreeMap::new(),
            truths: Default::default(),
            kubernetes_only: KubernetesOnly::default(),
            settings,
            mirrored: settings,
            nodes: Vec::new(),
            young: Vec::new(),
            host: None,
            host_blocks: 0,
            next_node: 1,
            next_pod: 1,
            next_spare: 0,
            next_pool: 0,
        }
    }

    /// Sets the cluster's GUID.
    pub fn name_cluster(&mut self, guid: &str) {
        self.put_information(guid, true);
    }

    fn put_information(&mut self, guid: &str, ready: bool) {
        let metadata = self.spec.metadata("default", &mut self.spec.rng(1));
        let information = wire::cluster_information(metadata, guid, ready);
        self.put_raw(key::resource("clusterinformations", "default"), information);
    }

    fn put_configuration(&mut self) {
        let mut rng = self.spec.rng(1);
        let mut metadata = || self.spec.metadata("default", &mut rng);
        let information = wire::cluster_information(metadata(), &guid(&self.spec), true);
        let controllers = wire::kube_controllers(metadata(), "15m0s");
        self.put_raw(key::resource("clusterinformations", "default"), information);
        self.put_raw(key::resource("kubecontrollersconfigurations", "default"), controllers);
        self.put_settings();
        self.put_raw(
            key::resource("tiers", "default"),
            r#"{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"order":1000000,"defaultAction":"Deny"},"status":{}}"#,
        );
    }

    /// Stores the settings of the allocator, and the resource that mirrors them.
    pub(super) fn put_settings(&mut self) {
        let metadata = self.spec.metadata("default", &mut self.spec.rng(2));
        self.put_raw(key::IPAM_CONFIG, wire::ipam_config(&self.settings));
        self.put_raw(
            key::resource("ipamconfigurations", "default"),
            wire::ipam_configuration(metadata, &self.mirrored),
        );
    }

    /// Locks or unlocks the datastore.
    pub(super) fn put_ready(&mut self, ready: bool) {
        self.put_information(&guid(&self.spec), ready);
    }

    /// Sets the version of Calico.
    pub(super) fn put_version(&mut self, version: &str) {
        self.put_ready(true);
        let key = key::resource("clusterinformations", "default");
        let value = String::from_utf8(self.remove(&key).value()).expect("JSON is text");
        self.put_raw(key, value.replace("v3.32.1", version));
    }

    /// Adds an empty block with a confirmed affinity.
    pub(super) fn claim(&mut self, net: IpNet, node: &str) {
        self.put_block(net, Some(format!("host:{node}")));
        self.put_affinity("host", node, net, "confirmed");
    }

    /// Adds an empty block without an affinity object.
    pub(super) fn put_block(&mut self, net: IpNet, owner: Option<String>) {
        let spec = self.spec;
        let thing = u128::from_be_bytes(match net.network() {
            std::net::IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(a) => a.octets(),
        });
        let age = 30 * 86_400 + spec.rng(thing as u64).below(86_400) as i64;
        let nanoseconds = spec.now.as_nanosecond() - i128::from(age) * 1_000_000_000;
        let claimed = owner.is_some().then(|| spec.seconds_ago(age));
        let block = Block::new(net, owner, claimed, nanoseconds as u64);
        self.put(key::block(net), Object::Block(block));
    }

    /// Adds a pool for services, and its block with this number. Returns the block.
    pub(super) fn put_service_block(&mut self, pool: &str, cidr: IpNet, prefix: u8, number: usize) -> IpNet {
        let uses = vec!["LoadBalancer"];
        self.put_pool(pool, Pool { allowed_uses: uses, ipip_mode: "Never", ..Pool::new(cidr, prefix) });
        let block = cidr.subnets(prefix).expect("a longer prefix").nth(number).expect("it has enough blocks");
        self.put_block(block, Some("virtual:load-balancer".to_owned()));
        self.put_affinity("virtual", "load-balancer", block, "confirmed");
        block
    }

    /// Adds an affinity object.
    pub(super) fn put_affinity(&mut self, kind: &str, holder: &str, net: IpNet, state: &str) {
        self.put_raw(key::affinity(kind, holder, net), wire::affinity(state));
    }

    /// Returns a block of the default pool that nothing else uses.
    pub(super) fn spare_block(&mut self) -> IpNet {
        self.host_blocks += 1;
        self.next_spare += 1;
        self.spec.spare_block_v4(self.next_spare - 1)
    }
}
