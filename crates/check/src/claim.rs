//! The owner that a record claims for an address (facts, section 4).

use calipam_model::attributes::{AttributeRef, OwnerMap};
use calipam_model::handle::MACHINE_SEPARATOR;
use calipam_model::names::RANDOM_SUFFIX;
use calipam_model::node::TunnelKind;
use calipam_model::service::Service;
use calipam_model::snapshot::{Snapshot, Source};
use calipam_model::text::TextRef;

/// The shortest run of hexadecimal digits that counts as a container ID.
const MIN_CONTAINER_ID: usize = 12;

/// The first character of the hash that replaces a machine's name if the name is too long for a handle.
const HASH: char = '_';

/// The owner that a record claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim<'s> {
    /// No owner: the address is cooling down after its release.
    Cooling,
    /// Windows, which reserves the address and never assigns it.
    WindowsReserved,
    /// No owner: the record has no handle and no attributes.
    Anonymous,
    /// A node's tunnel.
    Tunnel { kind: TunnelKind, node: String },
    /// A LoadBalancer service.
    Service,
    /// A KubeVirt machine.
    Machine,
    /// A pod, named by the attributes.
    Pod {
        namespace: TextRef<'s>,
        pod: TextRef<'s>,
        node: Option<TextRef<'s>>,
    },
    /// A container, named by the ID at the end of the handle.
    Container(String),
    /// A pod, named by the handle `<namespace>.<pod>`, as in Calico 2.x. The record has no attributes.
    LegacyPod { namespace: String, pod: String },
    /// An owner from bare CNI or another program. The attributes name no pod, tunnel, service or machine. The handle
    /// can end with a container ID of any form.
    Foreign { handle: String },
    /// An unknown owner. The record has only a handle, whose form is not known, or only attributes, which name no
    /// owner.
    Unknown,
}

impl<'s> Claim<'s> {
    pub fn node(&self) -> Option<String> {
        match self {
            Self::Pod { node, .. } => node.map(|node| node.to_string()),
            Self::Tunnel { node, .. } => Some(node.clone()),
            _ => None,
        }
    }

    /// Returns the owner that a record claims.
    pub fn of(record: &AttributeRef<'s>) -> Self {
        if record.is_cooling() {
            return Self::Cooling;
        }
        if record.is_windows_reserved() {
            return Self::WindowsReserved;
        }
        let attributes = record.owner();
        let owner = attributes.owner();
        if owner.is_machine || record.alternate().is_some_and(|other| other.owner().is_machine) {
            return Self::Machine;
        }
        // Like Calico's collector, never look for a pod without a name or a namespace.
        if let (Some(namespace), Some(pod)) = (owner.namespace, owner.pod)
            && !namespace.is_empty()
            && !pod.is_empty()
        {
            return Self::Pod {
                namespace,
                pod,
                node: owner.node,
            };
        }
        if record.is_anonymous() {
            return Self::Anonymous;
        }

        let handle = record.clean_handle().map(|handle| handle.to_string());
        let handle = handle.unwrap_or_default();
        if let Some(claim) = Self::of_type(&attributes, &handle) {
            return claim;
        }
        let claim = Self::of_handle(&handle);
        let is_legacy_or_unknown = matches!(claim, Self::LegacyPod { .. } | Self::Unknown);
        // Records of Calico 2.x have no attributes.
        if is_legacy_or_unknown && !attributes.is_empty() && !handle.is_empty() {
            return Self::Foreign { handle };
        }
        claim
    }

    /// Returns the service or tunnel that the attribute `type` names; `None` for any other type. Without an attribute
    /// for it, the node of a tunnel is in the handle.
    fn of_type(owner: &OwnerMap<'s>, handle: &str) -> Option<Self> {
        let type_name = owner.get("type")?.to_string();
        if type_name == "LoadBalancer" {
            return Some(Self::Service);
        }
        let kind = TunnelKind::ALL
            .into_iter()
            .find(|kind| kind.attribute() == type_name)?;
        let node = match owner.get("node") {
            Some(node) => node.to_string(),
            None => handle.strip_prefix(kind.handle_prefix())?.to_owned(),
        };
        Some(Self::Tunnel { kind, node })
    }

    /// Returns the owner that the form of a handle suggests, without looking at attributes.
    pub fn of_handle(handle: &str) -> Self {
        for kind in TunnelKind::ALL {
            if let Some(node) = handle.strip_prefix(kind.handle_prefix()) {
                let node = node.to_owned();
                return Self::Tunnel { kind, node };
            }
        }
        // Network names are arbitrary. For example, `lb-net.<container>` belongs to a container, and in
        // `prod.net.vmi.<machine>`, the network name contains a dot. A service's handle is `lb-` and a hash, which
        // contains no dot.
        if handle.starts_with("lb-") && !handle.contains('.') {
            return Self::Service;
        }
        if is_of_machine(handle) {
            return Self::Machine;
        }
        let tail = handle.rsplit('.').next().unwrap_or(handle);
        if is_container_id(tail) || handle.starts_with("k8s-pod-network.") {
            return Self::Container(tail.to_owned());
        }
        match handle.split_once('.') {
            Some((namespace, pod)) if !namespace.is_empty() && !pod.is_empty() => Self::LegacyPod {
                namespace: namespace.to_owned(),
                pod: pod.to_owned(),
            },
            _ => Self::Unknown,
        }
    }

    /// Returns the namespace and name of the pod that the claim names.
    pub fn pod(&self) -> Option<(String, String)> {
        match self {
            Self::Pod { namespace, pod, .. } => Some((namespace.to_string(), pod.to_string())),
            Self::LegacyPod { namespace, pod } => Some((namespace.clone(), pod.clone())),
            _ => None,
        }
    }

    /// Returns true if the claim names a service or a virtual machine, but objects of that kind were not read. They are
    /// not stored in etcd.
    pub fn needs_unread_source(&self, snapshot: &Snapshot) -> bool {
        matches!(unread(snapshot, self), Some(Unread::Services | Unread::Machines))
    }
}

/// Sources that could show an owner, but were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    Services,
    Machines,
    /// Nodes, or both endpoints and pods.
    Users,
}

/// Returns the sources that could show a record's owner, if they were not read in full.
pub fn unread(snapshot: &Snapshot, claim: &Claim<'_>) -> Option<Unread> {
    let has_read = |source| snapshot.has_read(source);
    if *claim == Claim::Service && !has_read(Source::Services) {
        return Some(Unread::Services);
    }
    if *claim == Claim::Machine && !has_read(Source::Machines) {
        return Some(Unread::Machines);
    }

    let shows_workloads = has_read(Source::Endpoints) || has_read(Source::Pods);
    if shows_workloads && has_read(Source::Nodes) {
        None
    } else {
        Some(Unread::Users)
    }
}

/// Returns the type and name of an owner, such as `pod` and `namespace/name`, or `tunnel` and the attribute `type`.
pub fn describe(claim: &Claim<'_>, attribute: &AttributeRef<'_>) -> (&'static str, String) {
    let value_of = |key: &str| {
        attribute
            .get(key)
            .map(|value| value.to_string())
            .unwrap_or_default()
    };
    let handle = attribute.clean_handle().unwrap_or(TextRef::EMPTY);
    match claim {
        Claim::Machine => {
            let namespace = value_of("namespace");
            let machine = value_of("vmi-name");
            // The active owner's attributes do not name a machine that is only the alternate owner.
            let is_unnamed = namespace.is_empty() && machine.is_empty();
            let name = if is_unnamed {
                handle.to_string()
            } else {
                format!("{namespace}/{machine}")
            };
            ("virtual machine", name)
        }
        Claim::Pod { namespace, pod, .. } => ("pod", format!("{namespace}/{pod}")),
        Claim::LegacyPod { namespace, pod } => ("pod", format!("{namespace}/{pod}")),
        Claim::Service => (
            "service",
            format!("{}/{}", value_of("namespace"), value_of("service")),
        ),
        Claim::Tunnel { kind, .. } => ("tunnel", kind.attribute().to_owned()),
        _ => ("other", handle.to_string()),
    }
}

fn is_container_id(text: &str) -> bool {
    text.len() >= MIN_CONTAINER_ID && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the possible container IDs at the end of a handle `<network>.<container ID>`. Either part can contain
/// dots. A handle without a network is itself a container ID.
pub fn container_ids(handle: &str) -> impl Iterator<Item = &str> {
    let after_dots = handle.match_indices('.').map(|(dot, _)| &handle[dot + 1..]);
    after_dots.chain([handle]).filter(|tail| !tail.is_empty())
}

/// Returns true if the record belongs to the service, by its attributes or else by the hash in the handle.
pub fn names_service(record: &AttributeRef<'_>, service: &Service) -> bool {
    if service.is_internal {
        return false;
    }
    if let Some(namespace) = record.get("namespace")
        && let Some(name) = record.get("service")
    {
        return namespace == *service.namespace.as_str() && name == *service.name.as_str();
    }
    record
        .clean_handle()
        .is_some_and(|handle| handle == *service.handle().as_str())
}

/// Returns the namespaces and names of virtual machines that a record could mean. A handle can mean several machines if
/// its network's name contains `.vmi.`. It names none if it contains a hash.
pub fn machines_of(record: &AttributeRef<'_>) -> Vec<(String, String)> {
    let mut machines = Vec::new();
    let owner = record.owner();
    if let Some(machine) = owner.get("vmi-name") {
        // Like Calico's collector, never look for a machine without a name and a namespace.
        let namespace = owner.get("namespace").unwrap_or(TextRef::EMPTY);
        if !namespace.is_empty() && !machine.is_empty() {
            machines.push((namespace.to_string(), machine.to_string()));
        }
        return machines;
    }

    let Some(handle) = record.clean_handle().map(|handle| handle.to_string()) else {
        return machines;
    };
    for name in after_networks(&handle) {
        if let Some((namespace, machine)) = name.split_once('.') {
            machines.push((namespace.to_owned(), machine.to_owned()));
        }
    }
    machines
}

/// The prefix of the names of pods that run virtual machines.
const LAUNCHER: &str = "virt-launcher-";
/// The length of the longest prefix that Kubernetes keeps in a generated name.
const LONGEST_PREFIX: usize = 58;

pub(crate) fn is_launcher(pod: TextRef<'_>) -> bool {
    pod.starts_with(LAUNCHER)
}

/// Returns true if KubeVirt could have given this name to a pod of the machine: `virt-launcher-`, the machine's name up
/// to its first dot, and random characters. If machine names differ only after a dot, or after 44 characters, their
/// pods look alike.
pub(crate) fn may_be_launcher_of(pod: &str, machine: &str) -> bool {
    let mut prefix = format!("{LAUNCHER}{}-", machine.split('.').next().unwrap_or_default());
    prefix.truncate(prefix.floor_char_boundary(LONGEST_PREFIX));
    let Some(suffix) = pod.strip_prefix(&prefix) else {
        return false;
    };
    suffix.len() == RANDOM_SUFFIX && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns the parts of a machine's handle that could follow the network and [`MACHINE_SEPARATOR`].
fn after_networks(handle: &str) -> impl Iterator<Item = &str> {
    handle
        .match_indices(MACHINE_SEPARATOR)
        .map(|(position, _)| &handle[position + MACHINE_SEPARATOR.len()..])
}

/// Returns true if `<namespace>.<machine>` or its hash follows the network. A container ID after [`MACHINE_SEPARATOR`] belongs to
/// a container on a network whose name ends with `.vmi`.
fn is_of_machine(handle: &str) -> bool {
    after_networks(handle).any(|name| name.contains('.') || name.starts_with(HASH))
}
