//! Everything that was read from a datastore at one point in time.

mod source;

use std::collections::BTreeMap;

use ipnet::IpNet;
use jiff::Timestamp;

use crate::affinity::Affinity;
use crate::block::{BlockContent, RecordDetail};
use crate::config::{
    ClusterInformation, IpamConfig, KubeControllersConfiguration, LoadBalancerController, NotServed,
};
use crate::endpoint::Endpoint;
use crate::handle::Handle;
use crate::key::Key;
use crate::node::Node;
use crate::pod::{Namespace, Pod};
use crate::pool::{Pool, Reservation};
use crate::service::{Machine, Service};

/// The first Calico version that limits a node's blocks by default.
const LIMITED_SINCE: (u32, u32) = (3, 19);
/// The first Calico version that gives virtual machines addresses of their own.
const MACHINES_SINCE: (u32, u32) = (3, 32);

pub use self::source::{ALLOCATION_SOURCES, Coverage, ETCD_SOURCES, Source, WhySkipped};
pub use crate::stored::{DatastoreKind, FieldDefect, ObjectVersion, Revision, Versioned};

/// A stored block: the CIDR in its key, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredBlock {
    /// The CIDR in the key. On Kubernetes, the CIDR in the object's name, or in the value if the name has none.
    pub key: IpNet,
    pub content: BlockContent,
}

/// Numbers of addresses that are not free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationCounts {
    /// Addresses that are allocated, including those that Windows reserves.
    pub allocated: usize,
    /// Addresses that were released, and whose cooldown is not over.
    pub cooling: usize,
}

/// An entry that can be decoded only in part or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The key as stored, with invalid UTF-8 replaced; `<plural>/[<namespace>/]<name>` for an object in Kubernetes.
    pub path: String,
    /// The object that the key names, if the key is valid.
    pub key: Option<Key>,
    pub kind: DefectKind,
}

impl Defect {
    fn hidden_block(&self) -> Option<IpNet> {
        match (&self.key, &self.kind) {
            (Some(Key::Block(cidr)), DefectKind::Key(_) | DefectKind::Value(_)) => Some(*cidr),
            _ => None,
        }
    }
}

/// The problem with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefectKind {
    /// The key does not have a form that Calico uses, or Calico looks for the object under another key.
    Key(String),
    /// The value cannot be decoded.
    Value(String),
    /// Some fields are invalid.
    Fields(Vec<FieldDefect>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The kind of datastore, even if the data comes from a file.
    pub datastore: DatastoreKind,
    /// The endpoints or file, without secrets.
    pub location: String,
    /// The revision of the data; empty if there is none.
    pub revision: String,
    /// True if Calico's resources on Kubernetes are in the group `projectcalico.org`, not `crd.projectcalico.org`
    /// (Calico 3.32 and later).
    pub is_native: bool,
    /// True if blocks are known to have been listed before pods, and were not checked again afterwards.
    pub blocks_before_pods: bool,
    /// The time of the read. Rules have no other clock.
    pub taken_at: Timestamp,
    /// Creation time of the newest object, by the server's clock. For files that do not state their time, it is derived
    /// from this time and from the times in blocks.
    pub newest_creation: Option<Timestamp>,
    /// True if most Kubernetes nodes are younger than the Calico nodes with the same names in etcd.
    pub kubernetes_is_younger: bool,
    /// True if no operation is unfinished, so that a second read would show the same data. Set only for generated or
    /// simulated data.
    pub rechecked: bool,
    /// The part of each source that was read. A source that is not listed was not read.
    pub coverage: BTreeMap<Source, Coverage>,
    /// Cluster information `default`.
    pub cluster: Option<ClusterInformation>,
    /// The version of the cluster information.
    pub cluster_revision: Option<Revision>,
    /// The allocator's configuration; `None` if nothing is stored, or it was not read or cannot be decoded.
    pub ipam_config: Option<IpamConfig>,
    /// The resource IPAMConfiguration `default`.
    pub ipam_configuration: Option<IpamConfig>,
    /// The kube-controllers configuration `default`.
    pub kube_controllers: Option<KubeControllersConfiguration>,
    /// The level of detail in block records: reduced if only some sources were requested.
    pub records: RecordDetail,
    /// Allocation blocks, corrupt ones included.
    pub blocks: Vec<Versioned<StoredBlock>>,
    pub affinities: Vec<Versioned<Affinity>>,
    pub handles: Vec<Versioned<Handle>>,
    pub pools: Vec<Versioned<Pool>>,
    pub reservations: Vec<Versioned<Reservation>>,
    pub nodes: Vec<Versioned<Node>>,
    /// The Kubernetes nodes, if Calico's own nodes are in etcd. Empty if they were not read.
    pub kubernetes_nodes: Vec<Versioned<Node>>,
    pub endpoints: Vec<Versioned<Endpoint>>,
    /// Pods (Kubernetes).
    pub pods: Vec<Versioned<Pod>>,
    /// Services (Kubernetes).
    pub services: Vec<Versioned<Service>>,
    /// KubeVirt machines (Kubernetes).
    pub machines: Vec<Versioned<Machine>>,
    /// The namespaces, by name; `None` if they were not read.
    pub namespaces: Option<BTreeMap<String, Namespace>>,
    /// Names of allocator configurations that Calico ignores: only the one called `default` counts.
    pub ignored_configs: Vec<String>,
    /// Entries that can be decoded only in part or not at all.
    pub defects: Vec<Defect>,
}

impl Snapshot {
    /// True if all objects of a source are known, even if there are none.
    pub fn has_read(&self, source: Source) -> bool {
        matches!(
            self.coverage.get(&source),
            Some(Coverage::Read | Coverage::Skipped(WhySkipped::NotInCalico2))
        )
    }

    pub fn mark_read(&mut self, sources: impl IntoIterator<Item = Source>) {
        self.coverage
            .extend(sources.into_iter().map(|source| (source, Coverage::Read)));
    }

    /// Sets the place, revision and time of a read of etcd.
    pub fn set_origin(&mut self, location: String, revision: i64, taken_at: Timestamp) {
        self.location = location;
        self.revision = revision.to_string();
        self.taken_at = taken_at;
    }

    /// The CIDRs of all IP reservations.
    pub fn reserved_cidrs(&self) -> impl Iterator<Item = IpNet> {
        self.reservations
            .iter()
            .flat_map(|reservation| reservation.value.cidrs.iter().copied())
    }

    /// The stored blocks of which only the key is known.
    pub fn hidden_blocks(&self) -> impl Iterator<Item = IpNet> + Clone {
        self.defects.iter().filter_map(Defect::hidden_block)
    }

    /// The CIDRs of all stored blocks, readable or not.
    pub fn block_cidrs(&self) -> impl Iterator<Item = IpNet> {
        self.blocks
            .iter()
            .map(|block| block.value.key)
            .chain(self.hidden_blocks())
    }

    /// Records that sources were read only in part.
    pub fn mark_partial(&mut self, sources: impl IntoIterator<Item = Source>) {
        self.coverage
            .extend(sources.into_iter().map(|source| (source, Coverage::Partial)));
    }

    /// Marks all sources that were read as read only in part.
    pub fn mark_all_partial(&mut self) {
        for coverage in self.coverage.values_mut() {
            if *coverage == Coverage::Read {
                *coverage = Coverage::Partial;
            }
        }
    }

    /// Adds the objects of `other`. Settings of which a cluster has one each replace those that are there. Does not
    /// change location, time and coverage.
    pub fn absorb(&mut self, other: Self) {
        self.is_native |= other.is_native;
        self.cluster = other.cluster.or(self.cluster.take());
        self.cluster_revision = other.cluster_revision.or(self.cluster_revision.take());
        self.ipam_config = other.ipam_config.or(self.ipam_config);
        self.ipam_configuration = other.ipam_configuration.or(self.ipam_configuration);
        self.kube_controllers = other.kube_controllers.or(self.kube_controllers.take());
        self.newest_creation = self.newest_creation.max(other.newest_creation);
        self.blocks.extend(other.blocks);
        self.affinities.extend(other.affinities);
        self.handles.extend(other.handles);
        self.pools.extend(other.pools);
        self.reservations.extend(other.reservations);
        self.nodes.extend(other.nodes);
        self.kubernetes_nodes.extend(other.kubernetes_nodes);
        self.endpoints.extend(other.endpoints);
        self.pods.extend(other.pods);
        self.services.extend(other.services);
        self.machines.extend(other.machines);
        if let Some(namespaces) = other.namespaces {
            self.namespaces.get_or_insert_default().extend(namespaces);
        }
        let mut further_configs = other.ignored_configs;
        further_configs.retain(|name| !self.ignored_configs.contains(name));
        self.ignored_configs.extend(further_configs);
        self.defects.extend(other.defects);
    }

    /// The cluster's GUID; empty if it has none.
    pub fn guid(&self) -> &str {
        self.cluster.as_ref().map_or("", |cluster| &cluster.guid)
    }

    /// Calico's LoadBalancer controller, or the reason why it serves no services; `None` if its configuration was not
    /// read.
    pub fn serves_services(&self) -> Option<Result<LoadBalancerController, NotServed>> {
        if let Some(controllers) = &self.kube_controllers {
            return Some(controllers.serves(self.cluster.as_ref()));
        }
        if self.has_read(Source::KubeControllersConfiguration) {
            return Some(Err(NotServed::NoConfiguration));
        }
        None
    }

    /// The allocator's effective configuration: the stored one, or Calico's defaults. `None` if it is stored but cannot
    /// be read.
    pub fn effective_ipam_config(&self) -> Option<IpamConfig> {
        let mut defects = self.defects.iter();
        if defects.any(|defect| defect.key == Some(Key::IpamConfig)) {
            return None;
        }
        Some(self.ipam_config.unwrap_or_default())
    }

    /// The effective limit for a node's blocks in one family. `None` if there is no limit: none is configured, and this
    /// Calico version has no default limit.
    pub fn block_limit(&self) -> Option<u32> {
        let config = self.effective_ipam_config().unwrap_or_default();
        let is_default = config.max_blocks_per_host <= 0;
        if is_default && self.is_calico_since(LIMITED_SINCE) == Some(false) {
            return None;
        }
        Some(config.block_limit())
    }

    /// True while the datastore is locked. Also false if the cluster information was not read.
    pub fn is_locked(&self) -> bool {
        self.cluster.as_ref().is_some_and(ClusterInformation::is_locked)
    }

    /// True if Calico's version is this one (major, minor) or later. With etcd v2, Calico is 2.x; otherwise its version
    /// is that of the component that last wrote `cluster`. `None` if unknown.
    pub fn is_calico_since(&self, version: (u32, u32)) -> Option<bool> {
        if self.datastore == DatastoreKind::EtcdV2 {
            return Some(version.0 < 3);
        }
        self.cluster.as_ref()?.is_since(version)
    }

    /// True if Calico keeps the addresses of virtual machines when their pods change; `None` if its version is unknown.
    pub fn knows_machines(&self) -> Option<bool> {
        self.is_calico_since(MACHINES_SINCE)
    }

    /// True if a new affinity needs labels: this Calico looks affinities up by label, or has already given labels to one
    /// (facts 2.5).
    pub fn needs_affinity_labels(&self) -> bool {
        if let Some(cluster) = &self.cluster
            && cluster.finds_affinities_by_labels()
        {
            return true;
        }
        for affinity in &self.affinities {
            let Revision::Kubernetes(version) = &affinity.revision else {
                continue;
            };
            if affinity.value.deleted {
                continue;
            }
            for (name, _) in affinity.value.key.labels() {
                if version.labels.contains_key(name) {
                    return true;
                }
            }
        }
        false
    }

    /// True if a KubeVirt machine keeps its addresses: its VirtualMachine exists, or it is an instance without one.
    pub fn has_machine(&self, namespace: &str, name: &str) -> bool {
        let mut machines = self.machines.iter().map(|machine| &machine.value);
        machines.any(|machine| machine.namespace == namespace && machine.name == name && !machine.is_owned)
    }

    /// Counts the addresses in sound blocks that are not free. An address whose cooldown is over is free, even if its
    /// record still exists.
    pub fn allocation_counts(&self) -> AllocationCounts {
        // If the configuration cannot be read, no cooldown is known to be over.
        let cooldown = self.effective_ipam_config().map(|config| config.cooldown());
        let mut counts = AllocationCounts::default();
        for stored in &self.blocks {
            let Some(block) = stored.value.content.sound() else {
                continue;
            };
            // Most blocks have no cooling addresses, so that their records need not be read.
            if !block.has_cooling() {
                counts.allocated += block.allocated() as usize;
                continue;
            }
            for allocation in block.allocations() {
                let record = allocation.attribute;
                if !record.is_cooling() {
                    counts.allocated += 1;
                    continue;
                }
                let is_over = cooldown.is_some_and(|cooldown| record.has_cooled(self.taken_at, cooldown));
                if !is_over {
                    counts.cooling += 1;
                }
            }
        }
        counts
    }
}
