//! The kinds to read, and their paths in a cluster.

use calipam_files::objects::kinds::{Group, KINDS, NODE_NAMES};
use calipam_files::objects::{KUBEVIRT_GROUP, KnownKind};
use calipam_model::snapshot::{Source, WhySkipped};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::discovery::Api;
use crate::error::Permission;

/// All characters that are escaped in a URL, even those that are special only in some of its parts.
pub(crate) const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The sources of IPAM's records.
pub const RECORDS: [Source; 3] = [Source::Blocks, Source::Handles, Source::Affinities];
/// Sources with few and small objects.
pub(crate) const CONFIGURATION: [Source; 5] = [
    Source::Pools,
    Source::Reservations,
    Source::IpamConfig,
    Source::ClusterInformation,
    Source::KubeControllersConfiguration,
];

/// A known kind that a cluster has, and its path there.
#[derive(Clone)]
pub(crate) struct Kind {
    pub known: &'static KnownKind,
    /// The API group; empty for the core one.
    pub group: &'static str,
    /// The path of all objects of the kind.
    pub path: String,
}

/// A kind, or else the source that cannot be read and the reason why.
pub(crate) type Resolved = Result<Kind, (Source, WhySkipped)>;

impl Kind {
    /// The path of one object; `namespace` is empty for kinds without namespaces.
    pub(crate) fn object_path(&self, namespace: &str, name: &str) -> String {
        let name = segment(name);
        if namespace.is_empty() {
            return format!("{}/{name}", self.path);
        }
        let namespace = segment(namespace);
        let (parent, plural) = self.path.rsplit_once('/').unwrap_or(("", self.known.plural));
        format!("{parent}/namespaces/{namespace}/{plural}/{name}")
    }

    /// The path of a list of the objects named `default`: at most one object, or for machines at most one in each
    /// namespace.
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
        Permission {
            group: self.group.to_owned(),
            resource: self.known.plural.to_owned(),
            verb,
        }
    }
}

/// Escapes a name as one segment of a path, even if it is `.` or `..`.
pub(crate) fn segment(name: &str) -> String {
    let encoded = utf8_percent_encode(name, UNRESERVED).to_string();
    if name == "." || name == ".." {
        encoded.replace('.', "%2E")
    } else {
        encoded
    }
}

/// Finds a kind in the API; otherwise returns the reason why its source is skipped.
fn resolve(api: &Api, known: &'static KnownKind) -> Resolved {
    let group = match known.group {
        Group::Core => "",
        Group::Calico | Group::Only(_) => api.flavour.group(),
        Group::KubeVirt => KUBEVIRT_GROUP,
    };
    match path_of(api, known) {
        Some(path) => Ok(Kind { known, group, path }),
        None => {
            let missing_kind = format!("{}.{group}", known.plural);
            Err((known.source, WhySkipped::NotInstalled(missing_kind)))
        }
    }
}

/// The path of all objects of a kind; `None` if the cluster does not have the kind.
fn path_of(api: &Api, known: &KnownKind) -> Option<String> {
    let plural = known.plural;
    match known.group {
        Group::Core => Some(format!("/api/v1/{plural}")),
        Group::Calico | Group::Only(_) => api.has(plural).then(|| api.calico_path(plural)),
        Group::KubeVirt => api.kubevirt_path(plural),
    }
}

/// Finds the kinds of a source, without those of another flavour of Calico's API.
fn kinds_of(api: &Api, source: Source) -> impl Iterator<Item = Resolved> {
    let is_of_flavour = |kind: &KnownKind| match kind.group {
        Group::Only(flavour) => flavour == api.flavour,
        _ => true,
    };
    KINDS
        .iter()
        .filter(move |kind| kind.source == source && is_of_flavour(kind))
        .map(|kind| resolve(api, kind))
}

/// The kind of a source's objects. Machines have two kinds, of which this returns the first.
pub(crate) fn find(api: &Api, source: Source) -> Resolved {
    match kinds_of(api, source).next() {
        Some(resolved) => resolved,
        None => Err((source, WhySkipped::Other("Kubernetes has none".to_owned()))),
    }
}

/// The kinds of objects that use addresses: nodes, services and pods, and machines if KubeVirt is installed.
pub(crate) fn users_of_addresses(api: &Api) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for source in [Source::Nodes, Source::Services, Source::Pods, Source::Machines] {
        // Kinds that are not installed are left out.
        kinds.extend(kinds_of(api, source).flatten());
    }
    kinds
}

/// Like [`users_of_addresses`], but with only the names and creation times of the nodes.
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
        assert_eq!(
            core(Source::Nodes).object_path("", "node-1.example"),
            "/api/v1/nodes/node-1.example"
        );
        assert_eq!(
            core(Source::Nodes).object_path("", "a/b?\r"),
            "/api/v1/nodes/a%2Fb%3F%0D"
        );
        assert_eq!(core(Source::Nodes).object_path("", ".."), "/api/v1/nodes/%2E%2E");
    }

    #[test]
    fn kinds_that_are_not_installed_are_named() {
        let Err((source, reason)) = find(&Api::default(), Source::Blocks) else {
            panic!("nothing is installed")
        };
        assert_eq!(
            (source, reason.to_string().as_str()),
            (
                Source::Blocks,
                "ipamblocks.crd.projectcalico.org is not installed"
            )
        );
        let sources: Vec<Source> = users_of_addresses(&Api::default())
            .iter()
            .map(|kind| kind.known.source)
            .collect();
        assert_eq!(sources, [Source::Nodes, Source::Services, Source::Pods]);
    }
}
