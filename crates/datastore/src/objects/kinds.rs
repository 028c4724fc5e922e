//! The kinds that are read: one list of them, what becomes of their objects, and where a cluster has them.

use calipam_model::snapshot::{Source, WhySkipped};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::items::Encoding;
use super::meta::identify;
use super::{AddObject, ExportObject, custom, machine, node, path, pod, service};
use crate::client::kubernetes::Accept;
use crate::client::kubernetes::discovery::{Api, Flavour, KUBEVIRT_GROUP};
use crate::error::Permission;
use crate::raw::RawKv;

/// What has a meaning in no part of a URL.
pub(crate) const UNRESERVED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A kind of objects.
pub(crate) struct KnownKind {
    /// What it is called in paths, errors and findings.
    pub plural: &'static str,
    /// What its objects call themselves.
    pub name: &'static str,
    pub source: Source,
    pub accept: Accept,
    pub add: AddObject,
    group: Group,
    export: ExportObject,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Core,
    /// The group of either flavour.
    Calico,
    /// Kinds of Calico that only one flavour has.
    Only(Flavour),
    KubeVirt,
}

const fn core(
    plural: &'static str,
    name: &'static str,
    source: Source,
    add: AddObject,
    export: ExportObject,
) -> KnownKind {
    KnownKind { plural, name, source, accept: Accept::Protobuf, add, group: Group::Core, export }
}

const fn calico(plural: &'static str, name: &'static str, source: Source, add: AddObject) -> KnownKind {
    let export = custom::export_custom;
    KnownKind { plural, name, source, accept: Accept::Json, add, group: Group::Calico, export }
}

const fn only(flavour: Flavour, kind: KnownKind) -> KnownKind {
    KnownKind { group: Group::Only(flavour), ..kind }
}

/// Namespace and name are all that is needed of a machine.
const fn kubevirt(plural: &'static str, name: &'static str) -> KnownKind {
    let (source, add, export) = (Source::Machines, machine::add_machine, machine::export_machine);
    KnownKind { plural, name, source, accept: Accept::Metadata, add, group: Group::KubeVirt, export }
}

static KINDS: [KnownKind; 14] = [
    calico("ipamblocks", "IPAMBlock", Source::Blocks, custom::add_block),
    calico("ipamhandles", "IPAMHandle", Source::Handles, custom::add_handle),
    calico("blockaffinities", "BlockAffinity", Source::Affinities, custom::add_affinity),
    calico("ippools", "IPPool", Source::Pools, custom::add_pool),
    calico("ipreservations", "IPReservation", Source::Reservations, custom::add_reservation),
    only(
        Flavour::Classic,
        calico("ipamconfigs", "IPAMConfig", Source::IpamConfig, custom::add_classic_ipam_config),
    ),
    only(
        Flavour::Native,
        calico("ipamconfigurations", "IPAMConfiguration", Source::IpamConfig, custom::add_ipam_config),
    ),
    calico("clusterinformations", "ClusterInformation", Source::ClusterInformation, custom::add_cluster),
    calico(
        "kubecontrollersconfigurations",
        "KubeControllersConfiguration",
        Source::KubeControllersConfiguration,
        custom::add_kube_controllers,
    ),
    core("nodes", "Node", Source::Nodes, node::add_node, node::export_node),
    core("pods", "Pod", Source::Pods, pod::add_pod, pod::export_pod),
    core("services", "Service", Source::Services, service::add_service, service::export_service),
    kubevirt("virtualmachines", "VirtualMachine"),
    kubevirt("virtualmachineinstances", "VirtualMachineInstance"),
];

/// Nodes of which the names alone are of interest.
static NODE_NAMES: KnownKind = KnownKind {
    accept: Accept::Metadata,
    ..core("nodes", "Node", Source::Nodes, node::add_node_name, node::export_node)
};

/// What records addresses.
pub const RECORDS: [Source; 3] = [Source::Blocks, Source::Handles, Source::Affinities];
/// What is few and small.
pub(crate) const CONFIGURATION: [Source; 5] = [
    Source::Pools,
    Source::Reservations,
    Source::IpamConfig,
    Source::ClusterInformation,
    Source::KubeControllersConfiguration,
];

impl KnownKind {
    /// The object without what a check does not need, as JSON that [`add`](Self::add) reads; `None` where it is of no
    /// interest.
    pub(crate) fn reduced(&self, object: &[u8], encoding: Encoding) -> Result<Option<Vec<u8>>, String> {
        (self.export)(object, encoding)
    }

    /// Key and value of the object in an export; `None` where it is of no interest. What cannot be decoded is kept as
    /// it is, so that a check of the export finds it.
    pub(crate) fn export(&self, object: &[u8], encoding: Encoding) -> Option<RawKv> {
        let (namespace, name) = identify(object, encoding);
        let value = match self.reduced(object, encoding) {
            Ok(json) => json?,
            Err(_) => object.to_vec(),
        };
        Some(RawKv { key: path(self.plural, &namespace, &name).into_bytes(), value, mod_revision: 0 })
    }
}

pub(crate) fn by_plural(plural: &str) -> Option<&'static KnownKind> {
    KINDS.iter().find(|kind| kind.plural == plural)
}

/// The kind of that name and `apiVersion`. Other groups have nodes and pods of their own.
pub(crate) fn by_name(name: &str, api_version: &str) -> Option<&'static KnownKind> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let is_in = |kind: &KnownKind| match kind.group {
        Group::Core => group.is_empty(),
        Group::KubeVirt => group == KUBEVIRT_GROUP,
        Group::Calico | Group::Only(_) => {
            [Flavour::Classic, Flavour::Native].map(Flavour::group).contains(&group)
        }
    };
    KINDS.iter().find(|kind| kind.name == name && is_in(kind))
}

/// A kind as a cluster has it.
#[derive(Clone)]
pub(crate) struct Kind {
    pub known: &'static KnownKind,
    /// The API group; empty for the core one.
    pub group: &'static str,
    /// The path of all objects of the kind.
    pub path: String,
}

/// A kind, or which source cannot be read, and why.
pub(crate) type Resolved = Result<Kind, (Source, WhySkipped)>;

impl Kind {
    /// The path of one object; `namespace` is empty for kinds without.
    pub(crate) fn object_path(&self, namespace: &str, name: &str) -> String {
        let (parent, plural) = self.path.rsplit_once('/').unwrap_or(("", self.known.plural));
        let name = segment(name);
        match namespace {
            "" => format!("{}/{name}", self.path),
            namespace => format!("{parent}/namespaces/{}/{plural}/{name}", segment(namespace)),
        }
    }

    /// The path of an object that there need not be, as a list of at most this one.
    pub(crate) fn list_of_one(&self) -> String {
        let (parent, plural) = self.path.rsplit_once('/').unwrap_or(("", self.known.plural));
        match self.known.source {
            Source::Pods | Source::Services => {
                format!("{parent}/namespaces/default/{plural}?fieldSelector=metadata.name%3Ddefault")
            }
            _ => format!("{}?fieldSelector=metadata.name%3Ddefault", self.path),
        }
    }

    /// The permission that a verb on the kind needs.
    pub(crate) fn permission(&self, verb: &'static str) -> Permission {
        Permission { group: self.group.to_owned(), resource: self.known.plural.to_owned(), verb }
    }
}

/// Writes a name so that it is one segment of a path, and not the folder itself or the one above.
pub(crate) fn segment(name: &str) -> String {
    let encoded = utf8_percent_encode(name, UNRESERVED).to_string();
    if name == "." || name == ".." { encoded.replace('.', "%2E") } else { encoded }
}

fn resolve(api: &Api, known: &'static KnownKind) -> Resolved {
    let plural = known.plural;
    let found = |group, path| Ok(Kind { known, group, path });
    match known.group {
        Group::Core => found("", format!("/api/v1/{plural}")),
        Group::Calico | Group::Only(_) => match api.flavour.group() {
            group if api.has(plural) => found(group, api.calico_path(plural)),
            group => Err((known.source, WhySkipped::NotInstalled(format!("{plural}.{group}")))),
        },
        Group::KubeVirt => match api.kubevirt_path(plural) {
            Some(path) => found(KUBEVIRT_GROUP, path),
            None => Err((known.source, WhySkipped::NotInstalled(format!("{plural}.{KUBEVIRT_GROUP}")))),
        },
    }
}

fn kinds_of(api: &Api, source: Source) -> impl Iterator<Item = Resolved> {
    let has = |kind: &&KnownKind| match kind.group {
        Group::Only(flavour) => flavour == api.flavour,
        _ => true,
    };
    KINDS.iter().filter(move |kind| kind.source == source).filter(has).map(|kind| resolve(api, kind))
}

/// The kind that holds a source. Of machines, which have two, the first.
pub(crate) fn find(api: &Api, source: Source) -> Resolved {
    let unknown = || Err((source, WhySkipped::Other("Kubernetes has none".to_owned())));
    kinds_of(api, source).next().unwrap_or_else(unknown)
}

/// Blocks, handles and affinities.
pub(crate) fn records(api: &Api) -> impl Iterator<Item = Resolved> {
    RECORDS.into_iter().map(|source| find(api, source))
}

/// Pools, reservations and configuration.
pub(crate) fn configuration(api: &Api) -> impl Iterator<Item = Resolved> {
    CONFIGURATION.into_iter().map(|source| find(api, source))
}

/// Nodes, services and pods, and machines where KubeVirt is installed.
pub(crate) fn users_of_addresses(api: &Api) -> Vec<Kind> {
    let sources = [Source::Nodes, Source::Services, Source::Pods, Source::Machines];
    sources.into_iter().flat_map(|source| kinds_of(api, source)).flatten().collect()
}

/// As [`users_of_addresses`], with the names of nodes alone.
pub(crate) fn users_with_node_names(api: &Api) -> Vec<Kind> {
    let mut kinds = users_of_addresses(api);
    for kind in kinds.iter_mut().filter(|kind| kind.known.source == Source::Nodes) {
        kind.known = &NODE_NAMES;
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(source: Source) -> Kind {
        find(&Api::default(), source).ok().unwrap()
    }

    #[test]
    fn paths_of_objects() {
        assert_eq!(
            core(Source::Pods).object_path("default", "web-0"),
            "/api/v1/namespaces/default/pods/web-0"
        );
        assert_eq!(core(Source::Nodes).object_path("", "node-1.example"), "/api/v1/nodes/node-1.example");
        assert_eq!(core(Source::Nodes).object_path("", "a/b?\r"), "/api/v1/nodes/a%2Fb%3F%0D");
        assert_eq!(core(Source::Nodes).object_path("", ".."), "/api/v1/nodes/%2E%2E");
    }

    #[test]
    fn what_is_not_installed_is_named() {
        let Err((source, reason)) = find(&Api::default(), Source::Blocks) else {
            panic!("nothing is installed")
        };
        assert_eq!(
            (source, reason.to_string().as_str()),
            (Source::Blocks, "ipamblocks.crd.projectcalico.org is not installed")
        );
        let sources: Vec<Source> =
            users_of_addresses(&Api::default()).iter().map(|kind| kind.known.source).collect();
        assert_eq!(sources, [Source::Nodes, Source::Services, Source::Pods]);
    }
}
