//! The list of kinds that are read, and the functions for their objects.

use calipam_model::key::Key;
use calipam_model::snapshot::{Defect, DefectKind, Snapshot, Source};

use super::list_splitter::Encoding;
use super::meta::identify;
use super::names::cidr_of_block;
use super::{AddObject, ExportObject, bare, custom, node, path, pod, service};
use crate::raw::RawKv;

pub const CLASSIC_GROUP: &str = "crd.projectcalico.org";
pub const NATIVE_GROUP: &str = "projectcalico.org";
pub const KUBEVIRT_GROUP: &str = "kubevirt.io";

/// The API group of Calico's custom resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// `crd.projectcalico.org/v1`.
    #[default]
    Classic,
    /// `projectcalico.org/v3`, since Calico 3.32.
    Native,
}

impl Flavour {
    /// Reads the group from settings: native for `projectcalico.org/v3`, classic for any other value, even
    /// an empty one.
    pub fn configured(text: &str) -> Self {
        if text.eq_ignore_ascii_case("projectcalico.org/v3") {
            Self::Native
        } else {
            Self::Classic
        }
    }

    pub fn group(self) -> &'static str {
        match self {
            Self::Classic => CLASSIC_GROUP,
            Self::Native => NATIVE_GROUP,
        }
    }

    pub fn version(self) -> &'static str {
        match self {
            Self::Classic => "v1",
            Self::Native => "v3",
        }
    }
}

/// The requested form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    Json,
    /// Protobuf, or JSON from a server without it.
    Protobuf,
    /// Only the objects' `metadata`, in protobuf or JSON.
    Metadata,
    /// Only the objects' `metadata`, in JSON.
    Names,
    /// `metadata` of one object, in JSON.
    OneMetadata,
    /// A table of the objects, in JSON. Its first column is the name; the other columns are short.
    Table,
}

impl Accept {
    /// The request's `Accept` header.
    pub fn header(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf,application/json;q=0.5",
            Self::Metadata => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                 application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;q=0.5,application/json;q=0.1"
            }
            Self::Names => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Self::OneMetadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Self::Table => "application/json;as=Table;g=meta.k8s.io;v=v1",
        }
    }
}

/// A kind of object.
pub struct KnownKind {
    /// The name in paths, errors and findings.
    pub plural: &'static str,
    /// The `kind` of its objects.
    pub name: &'static str,
    pub source: Source,
    pub accept: Accept,
    pub group: Group,
    add: AddObject,
    export: ExportObject,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Core,
    /// One of Calico's two groups, whichever the cluster has.
    Calico,
    /// A kind that Calico has in only one of its groups.
    Only(Flavour),
    KubeVirt,
}

impl Group {
    /// True if the group can have this name in API paths. The core group has an empty name.
    fn has_name(self, name: &str) -> bool {
        match self {
            Self::Core => name.is_empty(),
            Self::KubeVirt => name == KUBEVIRT_GROUP,
            Self::Calico | Self::Only(_) => {
                name == Flavour::Classic.group() || name == Flavour::Native.group()
            }
        }
    }
}

/// Creates a kind of Kubernetes' own API, which is read as protobuf.
const fn core(
    plural: &'static str,
    name: &'static str,
    source: Source,
    add: AddObject,
    export: ExportObject,
) -> KnownKind {
    KnownKind {
        plural,
        name,
        source,
        accept: Accept::Protobuf,
        add,
        group: Group::Core,
        export,
    }
}

/// Creates a kind of Calico's API, which is read as JSON.
const fn calico(plural: &'static str, name: &'static str, source: Source, add: AddObject) -> KnownKind {
    let export = custom::export_custom;
    KnownKind {
        plural,
        name,
        source,
        accept: Accept::Json,
        add,
        group: Group::Calico,
        export,
    }
}

const fn only(flavour: Flavour, kind: KnownKind) -> KnownKind {
    KnownKind {
        group: Group::Only(flavour),
        ..kind
    }
}

/// Creates a kind for virtual machines, of which only `metadata` is needed.
const fn kubevirt(plural: &'static str, name: &'static str, add: AddObject) -> KnownKind {
    KnownKind {
        plural,
        name,
        source: Source::Machines,
        accept: Accept::Metadata,
        add,
        group: Group::KubeVirt,
        export: bare::export_machine,
    }
}

pub static KINDS: [KnownKind; 15] = [
    calico("ipamblocks", "IPAMBlock", Source::Blocks, custom::add_block),
    calico("ipamhandles", "IPAMHandle", Source::Handles, custom::add_handle),
    calico(
        "blockaffinities",
        "BlockAffinity",
        Source::Affinities,
        custom::add_affinity,
    ),
    calico("ippools", "IPPool", Source::Pools, custom::add_pool),
    calico(
        "ipreservations",
        "IPReservation",
        Source::Reservations,
        custom::add_reservation,
    ),
    only(
        Flavour::Classic,
        calico(
            "ipamconfigs",
            "IPAMConfig",
            Source::IpamConfig,
            custom::add_ipam_config,
        ),
    ),
    only(
        Flavour::Native,
        calico(
            "ipamconfigurations",
            "IPAMConfiguration",
            Source::IpamConfig,
            custom::add_ipam_config,
        ),
    ),
    calico(
        "clusterinformations",
        "ClusterInformation",
        Source::ClusterInformation,
        custom::add_cluster,
    ),
    calico(
        "kubecontrollersconfigurations",
        "KubeControllersConfiguration",
        Source::KubeControllersConfiguration,
        custom::add_kube_controllers,
    ),
    core("nodes", "Node", Source::Nodes, node::add_node, node::export_node),
    core("pods", "Pod", Source::Pods, pod::add_pod, pod::export_pod),
    core(
        "services",
        "Service",
        Source::Services,
        service::add_service,
        service::export_service,
    ),
    kubevirt("virtualmachines", "VirtualMachine", bare::add_virtual_machine),
    kubevirt(
        "virtualmachineinstances",
        "VirtualMachineInstance",
        bare::add_instance,
    ),
    KnownKind {
        accept: Accept::Metadata,
        ..core(
            "namespaces",
            "Namespace",
            Source::Namespaces,
            bare::add_namespace,
            bare::export_namespace,
        )
    },
];

/// Blocks with [the records of borrowers](calipam_model::block::RecordDetail::Borrowers).
pub static REDUCED_BLOCKS: KnownKind = calico(
    "ipamblocks",
    "IPAMBlock",
    Source::Blocks,
    custom::add_reduced_block,
);

/// Nodes, of which only names and creation times are read.
pub static NODE_NAMES: KnownKind = KnownKind {
    accept: Accept::Metadata,
    ..core(
        "nodes",
        "Node",
        Source::KubernetesNodes,
        node::add_node_name,
        node::export_node,
    )
};

impl KnownKind {
    /// Adds an object to a snapshot. An invalid object or field becomes a [`Defect`].
    pub fn add(&self, snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) {
        let kind = match (self.add)(snapshot, object, encoding) {
            Ok(fields) if fields.is_empty() => return,
            Ok(fields) => DefectKind::Fields(fields),
            Err(error) => DefectKind::Value(error.to_string()),
        };
        let (namespace, name) = identify(object, encoding);
        let path = path(self.plural, &namespace, &name);
        let key = self.key(namespace, name, object);
        snapshot.defects.push(Defect { path, key, kind });
    }

    /// Returns the key of an object that has a defect, from its name or, as far as it can be decoded, its `spec`.
    /// `None` if neither shows the key.
    fn key(&self, namespace: String, name: String, object: &[u8]) -> Option<Key> {
        Some(match self.source {
            Source::Blocks => Key::Block(cidr_of_block(&name).or_else(|| custom::cidr_in_spec(object))?),
            Source::Handles => Key::Handle(custom::id_in_spec(object).unwrap_or(name)),
            Source::Affinities => Key::Affinity(custom::affinity_in_spec(object)?),
            Source::Pools => Key::Pool(name),
            Source::Reservations => Key::Reservation(name),
            Source::IpamConfig => Key::IpamConfig,
            Source::ClusterInformation => Key::ClusterInformation(name),
            Source::KubeControllersConfiguration => Key::KubeControllersConfiguration(name),
            Source::Nodes => Key::Node(name),
            Source::Pods => Key::Pod { namespace, name },
            Source::Services => Key::Service { namespace, name },
            _ => return None,
        })
    }

    /// The object's key and value in an export; `None` if the object is not needed. An undecodable object is kept
    /// unchanged, so that a check of the export finds it.
    pub fn export(&self, object: &[u8], encoding: Encoding) -> Option<RawKv> {
        let (namespace, name) = identify(object, encoding);
        let value = match (self.export)(object, encoding) {
            Ok(json) => json?,
            Err(_) => object.to_vec(),
        };
        Some(RawKv {
            key: path(self.plural, &namespace, &name).into_bytes(),
            value,
            mod_revision: 0,
        })
    }
}

pub fn by_plural(plural: &str) -> Option<&'static KnownKind> {
    KINDS.iter().find(|kind| kind.plural == plural)
}

/// Returns the kind with this name in the API group of `api_version`. Other groups have kinds with the same names.
pub fn by_name(name: &str, api_version: &str) -> Option<&'static KnownKind> {
    // The core group has a version only, such as `v1`.
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    KINDS
        .iter()
        .find(|kind| kind.name == name && kind.group.has_name(group))
}
