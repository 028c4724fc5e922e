//! The kinds that are read: where they lie, and what becomes of their objects.

use calipam_model::snapshot::Source;

use super::client::Accept;
use super::discovery::{Api, Flavour};
use super::object::{self, AddObject};
use crate::error::Permission;

/// A kind of objects.
#[derive(Clone)]
pub(super) struct Kind {
    pub source: Source,
    /// What it is called in errors and paths of findings: the plural.
    pub plural: &'static str,
    /// The API group; empty for the core one.
    pub group: &'static str,
    /// The path of all objects of the kind.
    pub path: String,
    pub accept: Accept,
    pub add: AddObject,
}

impl Kind {
    /// A built-in kind.
    fn core(source: Source, plural: &'static str, add: AddObject) -> Self {
        Self { source, plural, group: "", path: format!("/api/v1/{plural}"), accept: Accept::Protobuf, add }
    }

    /// The path of one object; `namespace` is empty for kinds without.
    pub fn object_path(&self, namespace: &str, name: &str) -> String {
        let (parent, plural) = self.path.rsplit_once('/').unwrap_or(("", self.plural));
        let name = escape(name);
        match namespace {
            "" => format!("{}/{name}", self.path),
            namespace => format!("{parent}/namespaces/{}/{plural}/{name}", escape(namespace)),
        }
    }

    /// The permission that a verb on the kind needs.
    pub fn permission(&self, verb: &'static str) -> Permission {
        Permission { group: self.group.to_owned(), resource: self.plural.to_owned(), verb }
    }
}

/// A kind of Calico's, or why it cannot be read.
type Found = Result<Kind, (Source, String)>;

fn calico(api: &Api, source: Source, plural: &'static str, add: AddObject) -> Found {
    let group = api.flavour.group();
    match api.has(plural) {
        true => Ok(Kind { source, plural, group, path: api.calico_path(plural), accept: Accept::Json, add }),
        false => Err((source, format!("{plural}.{group} is not installed"))),
    }
}

pub(super) fn blocks(api: &Api) -> Found {
    calico(api, Source::Blocks, "ipamblocks", object::add_block)
}

pub(super) fn handles(api: &Api) -> Found {
    calico(api, Source::Handles, "ipamhandles", object::add_handle)
}

pub(super) fn affinities(api: &Api) -> Found {
    calico(api, Source::Affinities, "blockaffinities", object::add_affinity)
}

pub(super) fn ipam_config(api: &Api) -> Found {
    match api.flavour {
        Flavour::Classic => calico(api, Source::IpamConfig, "ipamconfigs", object::add_classic_ipam_config),
        Flavour::Native => calico(api, Source::IpamConfig, "ipamconfigurations", object::add_ipam_config),
    }
}

/// Pools, reservations and configuration: few and small.
pub(super) fn configuration(api: &Api) -> Vec<Found> {
    vec![
        calico(api, Source::Pools, "ippools", object::add_pool),
        calico(api, Source::Reservations, "ipreservations", object::add_reservation),
        ipam_config(api),
        calico(api, Source::ClusterInformation, "clusterinformations", object::add_cluster),
        calico(
            api,
            Source::KubeControllersConfiguration,
            "kubecontrollersconfigurations",
            object::add_kube_controllers,
        ),
    ]
}

pub(super) fn nodes() -> Kind {
    Kind::core(Source::Nodes, "nodes", object::add_node)
}

/// Nodes of which the names alone are of interest.
pub(super) fn node_names() -> Kind {
    Kind { accept: Accept::Metadata, ..Kind::core(Source::Nodes, "nodes", object::add_node_name) }
}

pub(super) fn pods() -> Kind {
    Kind::core(Source::Pods, "pods", object::add_pod)
}

pub(super) fn services() -> Kind {
    Kind::core(Source::Services, "services", object::add_service)
}

/// Virtual machines and their instances; none where KubeVirt is not installed.
pub(super) fn machines(api: &Api) -> Vec<Kind> {
    let kinds = ["virtualmachines", "virtualmachineinstances"].into_iter().filter_map(|plural| {
        let path = api.kubevirt_path(plural)?;
        let (source, add, accept) = (Source::Machines, object::add_machine as AddObject, Accept::Metadata);
        Some(Kind { source, plural, group: "kubevirt.io", path, accept, add })
    });
    kinds.collect()
}

/// Writes a name so that it is one segment of a path.
fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => escaped.push(char::from(byte)),
            b'.' if name != "." && name != ".." => escaped.push('.'),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_objects() {
        assert_eq!(pods().object_path("default", "web-0"), "/api/v1/namespaces/default/pods/web-0");
        assert_eq!(nodes().object_path("", "node-1.example"), "/api/v1/nodes/node-1.example");
        assert_eq!(nodes().object_path("", "a/b?\r"), "/api/v1/nodes/a%2Fb%3F%0D");
        assert_eq!(nodes().object_path("", ".."), "/api/v1/nodes/%2E%2E");
    }

    #[test]
    fn what_is_not_installed_is_named() {
        let Err((source, reason)) = blocks(&Api::default()) else { panic!("nothing is installed") };
        assert_eq!(
            (source, reason.as_str()),
            (Source::Blocks, "ipamblocks.crd.projectcalico.org is not installed")
        );
        assert!(machines(&Api::default()).is_empty());
    }
}
