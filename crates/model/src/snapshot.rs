//! Everything that was read from a datastore, at one point.

mod source;

use std::collections::BTreeMap;
use std::fmt;

use ipnet::IpNet;
use jiff::Timestamp;

use crate::affinity::Affinity;
use crate::attributes::AttributeRef;
use crate::block::{BlockContent, RecordDetail};
use crate::config::{AssignIps, ClusterInformation, IpamConfig, KubeControllersConfiguration, NotServed};
use crate::endpoint::Endpoint;
use crate::handle::Handle;
use crate::key::Key;
use crate::node::Node;
use crate::pod::{Namespace, Pod};
use crate::pool::{Pool, Reservation};
use crate::service::{Machine, Service};

/// The first version of Calico that limits the blocks of a node where nothing is configured.
const LIMITED_SINCE: (u32, u32) = (3, 19);

pub use self::source::{ALLOCATION_SOURCES, Coverage, ETCD_SOURCES, Source, WhySkipped};

/// Which version of an object was read. Opaque: only equality means anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revision {
    /// The modification revision of an etcd key.
    Etcd(i64),
    /// What Kubernetes says about an object.
    Kubernetes(Box<ObjectVersion>),
}

/// What Kubernetes says about an object besides its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectVersion {
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.uid`, as Kubernetes shows it.
    pub uid: String,
    /// The real `metadata.labels`.
    pub labels: BTreeMap<String, String>,
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd(revision) => write!(f, "{revision}"),
            Self::Kubernetes(version) => f.write_str(&version.resource_version),
        }
    }
}

/// An object and which version of it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Versioned<T> {
    /// The object.
    pub value: T,
    /// Its version.
    pub revision: Revision,
}

/// A block as it is stored: what its key names and what its value holds.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredBlock {
    /// The CIDR of the key. On Kubernetes, whose names cannot be read back, that of the value.
    pub key: IpNet,
    /// The value.
    pub content: BlockContent,
}

/// A field of an object that cannot be decoded; the rest of the object counts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FieldDefect {
    /// The path of the field in the object.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl FieldDefect {
    /// A defect of one field.
    pub fn new(field: &str, reason: String) -> Self {
        Self { field: field.to_owned(), reason }
    }
}

/// Something that was read but cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The key as it is stored; bytes that are no text are replaced.
    pub path: String,
    /// What the key names, if it can be read.
    pub key: Option<Key>,
    /// What is wrong.
    pub kind: DefectKind,
}

impl Defect {
    /// The block that is stored, and of which nothing else is known.
    pub fn hidden_block(&self) -> Option<IpNet> {
        match (&self.key, &self.kind) {
            (Some(Key::Block(cidr)), DefectKind::Key(_) | DefectKind::Value(_)) => Some(*cidr),
            _ => None,
        }
    }
}

/// What is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefectKind {
    /// The key has no shape that Calico uses, or not the one in which it asks for the object that it names.
    Key(String),
    /// The value does not parse.
    Value(String),
    /// Some fields are invalid.
    Fields(Vec<FieldDefect>),
}

/// The datastore that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DatastoreKind {
    /// etcd v3.
    #[default]
    Etcd,
    /// etcd v2, of Calico 2.x.
    EtcdV2,
    /// The Kubernetes API.
    Kubernetes,
}

impl fmt::Display for DatastoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Etcd => "etcd",
            Self::EtcdV2 => "etcdv2",
            Self::Kubernetes => "kubernetes",
        })
    }
}

/// Everything that was read from a datastore.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The kind of datastore, also if a file of its data was read.
    pub datastore: DatastoreKind,
    /// Where it was read: endpoints or a file, without secrets.
    pub location: String,
    /// The revision at which it was read; empty if there is none.
    pub revision: String,
    /// On Kubernetes: Calico's resources are of the group `projectcalico.org`, not `crd.projectcalico.org`
    /// (Calico 3.32 and later).
    pub is_native: bool,
    /// Blocks are known to have been listed before pods, with nothing that says how they were afterwards.
    pub blocks_before_pods: bool,
    /// When it was read: the only clock that rules see.
    pub taken_at: Timestamp,
    /// When the newest object was created, by the clock of the server: with the times in blocks the clock for files that
    /// do not say when they were written.
    pub newest_creation: Option<Timestamp>,
    /// Beside etcd: most nodes of Kubernetes were created after Calico's own of these names.
    pub kubernetes_is_younger: bool,
    /// What a half-done operation could explain was read again later and had not changed.
    pub rechecked: bool,
    /// Which sources were read. A source that is not listed was not read.
    pub coverage: BTreeMap<Source, Coverage>,
    /// Cluster information `default`.
    pub cluster: Option<ClusterInformation>,
    /// The version of it that was read.
    pub cluster_revision: Option<Revision>,
    /// The allocator's configuration; `None` if nothing is stored.
    pub ipam_config: Option<IpamConfig>,
    /// The resource IPAMConfiguration `default`.
    pub ipam_configuration: Option<IpamConfig>,
    /// The configuration of kube-controllers `default`.
    pub kube_controllers: Option<KubeControllersConfiguration>,
    /// What is known of the records of its blocks. Less than all only if neither handles nor any users of addresses were
    /// read, so that no rule checks a record.
    pub records: RecordDetail,
    /// Allocation blocks, corrupt ones included.
    pub blocks: Vec<Versioned<StoredBlock>>,
    /// Block affinities.
    pub affinities: Vec<Versioned<Affinity>>,
    pub handles: Vec<Versioned<Handle>>,
    /// IP pools.
    pub pools: Vec<Versioned<Pool>>,
    /// IP reservations.
    pub reservations: Vec<Versioned<Reservation>>,
    pub nodes: Vec<Versioned<Node>>,
    /// The nodes of Kubernetes by their names alone, where Calico's own are in etcd. Empty if they were not read.
    pub kubernetes_nodes: Vec<Versioned<Node>>,
    /// Workload endpoints.
    pub endpoints: Vec<Versioned<Endpoint>>,
    /// Pods (Kubernetes).
    pub pods: Vec<Versioned<Pod>>,
    /// Services (Kubernetes): those of the type LoadBalancer, and others with addresses in the cluster.
    pub services: Vec<Versioned<Service>>,
    /// KubeVirt machines (Kubernetes).
    pub machines: Vec<Versioned<Machine>>,
    /// The namespaces, by name. They are read where a pool has a `namespaceSelector` or a pod waits for an address, and the
    /// account may list them; `None` if they were not.
    pub namespaces: Option<BTreeMap<String, Namespace>>,
    /// Names of configurations of the allocator that Calico ignores, since only the one called `default` counts.
    pub ignored_configs: Vec<String>,
    /// What could not be understood.
    pub defects: Vec<Defect>,
}

impl Snapshot {
    /// True if all objects of a source are known, if only that there are none.
    pub fn has_read(&self, source: Source) -> bool {
        matches!(
            self.coverage.get(&source),
            Some(Coverage::Read | Coverage::Skipped(WhySkipped::NotInCalico2))
        )
    }

    pub fn mark_read(&mut self, sources: impl IntoIterator<Item = Source>) {
        self.coverage.extend(sources.into_iter().map(|s| (s, Coverage::Read)));
    }

    /// Says of sources that not all of their objects were read.
    pub fn mark_partial(&mut self, sources: impl IntoIterator<Item = Source>) {
        self.coverage.extend(sources.into_iter().map(|source| (source, Coverage::Partial)));
    }

    /// Says of every source that was read that not all of its objects were.
    pub fn mark_all_partial(&mut self) {
        let read = self.coverage.values_mut().filter(|coverage| **coverage == Coverage::Read);
        read.for_each(|coverage| *coverage = Coverage::Partial);
    }

    /// Moves the objects of `other` into this one. Where and when things were read stays as it is.
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
        let new = other.ignored_configs.into_iter().filter(|name| !self.ignored_configs.contains(name));
        let new: Vec<String> = new.collect();
        self.ignored_configs.extend(new);
        self.defects.extend(other.defects);
    }

    /// The GUID of the cluster; empty if it has none.
    pub fn guid(&self) -> &str {
        self.cluster.as_ref().map_or("", |cluster| &cluster.guid)
    }

    /// The LoadBalancer services that Calico's controller serves; `None` if its configuration was not read or does not exist.
    pub fn serves_services(&self) -> Option<Result<AssignIps, NotServed>> {
        Some(self.kube_controllers.as_ref()?.serves(self.cluster.as_ref()))
    }

    /// The configuration that the allocator goes by: what it stores, else Calico's defaults. `None`
    /// where it is stored but cannot be read. On Kubernetes there is one object for both.
    pub fn effective_ipam_config(&self) -> Option<IpamConfig> {
        let broken = self.defects.iter().any(|d| d.key == Some(Key::IpamConfig));
        (!broken).then(|| self.ipam_config.unwrap_or_default())
    }

    /// Most blocks of a node in one family, by the configuration that counts. `None` if there is no limit: nothing is
    /// configured, and Calico is known to be older than the limit that is built in.
    pub fn block_limit(&self) -> Option<u32> {
        let config = self.effective_ipam_config().unwrap_or_default();
        let is_unlimited =
            config.max_blocks_per_host <= 0 && self.is_calico_since(LIMITED_SINCE) == Some(false);
        (!is_unlimited).then(|| config.block_limit())
    }

    /// True if the newest component of Calico is of this version (major, minor) or later; `None` if the version
    /// is not known.
    pub fn is_calico_since(&self, version: (u32, u32)) -> Option<bool> {
        if self.datastore == DatastoreKind::EtcdV2 {
            return Some(version.0 < 3);
        }
        self.cluster.as_ref()?.is_since(version)
    }

    /// True if affinities have to carry labels: Calico finds them by these, or one has them already (facts 2.5).
    pub fn labels_affinities(&self) -> bool {
        let is_labelled = |affinity: &Versioned<Affinity>| {
            let Revision::Kubernetes(version) = &affinity.revision else { return false };
            let names = affinity.value.key.labels().map(|(name, _)| name);
            !affinity.value.deleted && names.iter().any(|name| version.labels.contains_key(*name))
        };
        self.cluster.as_ref().is_some_and(ClusterInformation::finds_affinities_by_labels)
            || self.affinities.iter().any(is_labelled)
    }

    /// True if a KubeVirt machine keeps its addresses: the VirtualMachine exists, or an instance that has none.
    pub fn has_machine(&self, namespace: &str, name: &str) -> bool {
        let mut machines = self.machines.iter().map(|m| &m.value);
        machines.any(|m| m.namespace == namespace && m.name == name && !m.is_owned)
    }

    /// Number of addresses that blocks record as allocated, reserved ones included, and of those that cool down.
    pub fn allocation_counts(&self) -> (usize, usize) {
        let cooldown = self.effective_ipam_config().map(|config| config.cooldown());
        let sound = self.blocks.iter().filter_map(|stored| stored.value.content.sound());
        let has_cooled = |record: &AttributeRef<'_>| {
            cooldown.is_some_and(|cooldown| record.has_cooled(self.taken_at, cooldown))
        };
        let (mut allocated, mut cooling) = (0, 0);
        for block in sound {
            if !block.has_cooling() {
                allocated += block.allocated() as usize;
                continue;
            }
            for record in block.allocations().map(|allocation| allocation.attribute) {
                allocated += usize::from(!record.is_cooling());
                cooling += usize::from(record.is_cooling() && !has_cooled(&record));
            }
        }
        (allocated, cooling)
    }
}
