//! Kinds by the names that files have for them.

use calipam_model::snapshot::Source;
use serde_json::Value;

use super::custom::export_custom;
use super::machine::export_machine;
use super::meta::identify;
use super::node::export_node;
use super::path;
use super::pod::export_pod;
use super::service::export_service;
use super::{
    AddObject, add_affinity, add_block, add_classic_ipam_config, add_cluster, add_handle, add_ipam_config,
    add_kube_controllers, add_machine, add_node, add_pod, add_pool, add_reservation, add_service,
};
use crate::kube::items::Encoding;
use crate::raw::RawKv;

/// A kind of objects: by its plural, by its name, and what becomes of its objects.
pub(in crate::kube) struct KnownKind {
    pub plural: &'static str,
    pub name: &'static str,
    pub source: Source,
    pub add: AddObject,
    export: ExportObject,
}

/// What an export keeps of an object; `None` where it is of no interest.
type ExportObject = fn(&[u8], Encoding) -> Result<Option<Value>, String>;

const fn kind(plural: &'static str, name: &'static str, source: Source, add: AddObject) -> KnownKind {
    let export: ExportObject = match source {
        Source::Nodes => export_node,
        Source::Pods => export_pod,
        Source::Services => export_service,
        Source::Machines => export_machine,
        _ => export_custom,
    };
    KnownKind { plural, name, source, add, export }
}

impl KnownKind {
    /// Key and value of the object in an export; `None` where it is of no interest. What does not decode is kept as it
    /// is, so that a check of the export finds it.
    pub fn export(&self, object: &[u8], encoding: Encoding) -> Option<RawKv> {
        let (namespace, name) = identify(object, encoding);
        let value = match (self.export)(object, encoding) {
            Ok(Some(json)) => json.to_string().into_bytes(),
            Ok(None) => return None,
            Err(_) => object.to_vec(),
        };
        Some(RawKv { key: path(self.plural, &namespace, &name).into_bytes(), value, mod_revision: 0 })
    }
}

static KINDS: [KnownKind; 14] = [
    kind("ipamblocks", "IPAMBlock", Source::Blocks, add_block),
    kind("ipamhandles", "IPAMHandle", Source::Handles, add_handle),
    kind("blockaffinities", "BlockAffinity", Source::Affinities, add_affinity),
    kind("ipamconfigs", "IPAMConfig", Source::IpamConfig, add_classic_ipam_config),
    kind("ipamconfigurations", "IPAMConfiguration", Source::IpamConfig, add_ipam_config),
    kind("ippools", "IPPool", Source::Pools, add_pool),
    kind("ipreservations", "IPReservation", Source::Reservations, add_reservation),
    kind("clusterinformations", "ClusterInformation", Source::ClusterInformation, add_cluster),
    kind(
        "kubecontrollersconfigurations",
        "KubeControllersConfiguration",
        Source::KubeControllersConfiguration,
        add_kube_controllers,
    ),
    kind("nodes", "Node", Source::Nodes, add_node),
    kind("pods", "Pod", Source::Pods, add_pod),
    kind("services", "Service", Source::Services, add_service),
    kind("virtualmachines", "VirtualMachine", Source::Machines, add_machine),
    kind("virtualmachineinstances", "VirtualMachineInstance", Source::Machines, add_machine),
];

/// The kind with that plural.
pub(in crate::kube) fn by_plural(plural: &str) -> Option<&'static KnownKind> {
    KINDS.iter().find(|kind| kind.plural == plural)
}

/// The kind of that name and `apiVersion`. Other groups have nodes and pods of their own.
pub(in crate::kube) fn by_name(name: &str, api_version: &str) -> Option<&'static KnownKind> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let expected: &[&str] = match KINDS.iter().find(|kind| kind.name == name)?.source {
        Source::Nodes | Source::Pods | Source::Services => &[""],
        Source::Machines => &["kubevirt.io"],
        _ => &["crd.projectcalico.org", "projectcalico.org"],
    };
    KINDS.iter().find(|kind| kind.name == name && expected.contains(&group))
}
