//! What an owner record says about whose address it is (facts section 4).

use calipam_model::attributes::{AttributeRef, OwnerMap};
use calipam_model::endpoint::Endpoint;
use calipam_model::node::TunnelKind;
use calipam_model::text::TextRef;

use crate::index::{Index, Owner};

/// Shortest run of hexadecimal digits that counts as a container ID.
const MIN_CONTAINER_ID: usize = 12;

/// Whose address a record says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim<'s> {
    /// Nobody's: the address cools down after its release.
    Cooling,
    /// Windows': the ordinal is never handed out.
    WindowsReserved,
    /// It does not say: no handle and no attributes.
    Anonymous,
    /// A tunnel's of a node.
    Tunnel {
        /// The kind.
        kind: TunnelKind,
        /// The node.
        node: String,
    },
    /// A LoadBalancer service's.
    Service,
    /// A KubeVirt machine's.
    Machine,
    /// A pod's, by attributes.
    Pod {
        /// Its namespace.
        namespace: TextRef<'s>,
        /// Its name.
        pod: TextRef<'s>,
        /// The node on which it ran.
        node: Option<TextRef<'s>>,
    },
    /// A container's, by the ID at the end of the handle.
    Container(String),
    /// A pod's, by the handle `<namespace>.<pod>` of Calico 2.x.
    LegacyPod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        pod: String,
    },
    /// A handle that follows none of the known forms.
    Unknown,
}

impl<'s> Claim<'s> {
    /// Reads a record.
    pub fn of(record: &AttributeRef<'s>) -> Self {
        if record.is_cooling() {
            return Self::Cooling;
        }
        if record.is_windows_reserved() {
            return Self::WindowsReserved;
        }
        let owner = record.owner();
        if is_machine(&owner) || record.alternate().is_some_and(|a| is_machine(&a)) {
            return Self::Machine;
        }
        if let (Some(namespace), Some(pod)) = (owner.get("namespace"), owner.get("pod")) {
            return Self::Pod { namespace, pod, node: owner.get("node") };
        }
        if record.is_anonymous() {
            return Self::Anonymous;
        }
        let handle = record.clean_handle().map(|h| h.to_string()).unwrap_or_default();
        Self::of_type(&owner, &handle).unwrap_or_else(|| Self::of_handle(&handle))
    }

    /// By the attribute `type`.
    fn of_type(owner: &OwnerMap<'s>, handle: &str) -> Option<Self> {
        let kind = owner.get("type")?.to_string();
        if kind == "LoadBalancer" {
            return Some(Self::Service);
        }
        let kind = TunnelKind::ALL.into_iter().find(|k| k.attribute() == kind)?;
        let node = owner.get("node").map(|n| n.to_string());
        let node = node.or_else(|| handle.strip_prefix(kind.handle_prefix()).map(str::to_owned))?;
        Some(Self::Tunnel { kind, node })
    }

    /// By the form of the handle alone.
    fn of_handle(handle: &str) -> Self {
        let tunnel = |k: TunnelKind| Some((k, handle.strip_prefix(k.handle_prefix())?));
        if let Some((kind, node)) = TunnelKind::ALL.into_iter().find_map(tunnel) {
            return Self::Tunnel { kind, node: node.to_owned() };
        }
        if handle.starts_with("lb-") {
            return Self::Service;
        }
        if handle.split('.').nth(1) == Some("vmi") {
            return Self::Machine;
        }
        let tail = handle.rsplit('.').next().unwrap_or(handle);
        if is_container_id(tail) || handle.starts_with("k8s-pod-network.") {
            return Self::Container(tail.to_owned());
        }
        match handle.split_once('.') {
            Some((namespace, pod)) if !namespace.is_empty() && !pod.is_empty() => {
                Self::LegacyPod { namespace: namespace.to_owned(), pod: pod.to_owned() }
            }
            _ => Self::Unknown,
        }
    }

    /// True where only a source that was not read could tell whether the owner lives: services and
    /// machines, which etcd does not hold.
    pub fn needs_unread_source(&self) -> bool {
        matches!(self, Self::Service | Self::Machine)
    }
}

/// True for text that is a container ID by its form.
fn is_container_id(text: &str) -> bool {
    text.len() >= MIN_CONTAINER_ID && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_machine(owner: &OwnerMap<'_>) -> bool {
    owner.get("vmi-name").is_some() || owner.get("vmi-uid").is_some() || owner.get("vm-uid").is_some()
}

/// True where the record names the owner as the one whose address it is. An anonymous record, and one
/// whose handle follows no known form, names everybody; a record of something that was not read is
/// not held against anybody.
pub fn names_owner(record: &AttributeRef<'_>, owner: Owner, index: &Index<'_>) -> bool {
    match Claim::of(record) {
        Claim::Cooling | Claim::WindowsReserved => false,
        Claim::Anonymous | Claim::Unknown | Claim::Service | Claim::Machine => true,
        Claim::Tunnel { node, .. } => match owner {
            Owner::Tunnel(place, _) => index.snapshot.nodes[place as usize].value.name == node,
            Owner::Endpoint(_) => false,
        },
        claim => match owner {
            Owner::Endpoint(place) => {
                let endpoint = index.endpoint(place);
                names_endpoint(&claim, endpoint, index) || alternate_names(record, endpoint)
            }
            Owner::Tunnel(..) => false,
        },
    }
}

/// True where the claim is that of the endpoint's pod or container.
pub fn names_endpoint(claim: &Claim<'_>, endpoint: &Endpoint, index: &Index<'_>) -> bool {
    match claim {
        Claim::Pod { namespace, pod, node } => {
            endpoint.namespace() == *namespace
                && endpoint.pod() == *pod
                && node.is_none_or(|node| same_node(node, endpoint.node(), index))
        }
        Claim::Container(id) => endpoint.container_id() == *id.as_str(),
        Claim::LegacyPod { namespace, pod } => {
            let by_pod = endpoint.namespace() == *namespace.as_str() && endpoint.pod() == *pod.as_str();
            by_pod || endpoint.workload() == *format!("{namespace}.{pod}").as_str()
        }
        _ => false,
    }
}

/// True where the other side of a live migration is the endpoint's pod.
fn alternate_names(record: &AttributeRef<'_>, endpoint: &Endpoint) -> bool {
    record.alternate().is_some_and(|other| {
        other.get("namespace") == Some(endpoint.namespace()) && other.get("pod") == Some(endpoint.pod())
    })
}

/// True where two names mean one node: they are equal, or one is the Kubernetes name of the other.
fn same_node(a: TextRef<'_>, b: TextRef<'_>, index: &Index<'_>) -> bool {
    let kubernetes =
        |name: TextRef<'_>| index.node(&name.to_string()).and_then(|n| n.kubernetes_name.as_deref());
    a == b || kubernetes(a).is_some_and(|k| b == *k) || kubernetes(b).is_some_and(|k| a == *k)
}
