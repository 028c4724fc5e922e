//! Pods (facts 2.12).

use calipam_model::pod::{Annotations, MachineReference, Pod, PodParts, PodRequest};
use calipam_model::snapshot::{FieldDefect, Snapshot, Versioned};
use calipam_model::time::parse_time;
use jiff::Timestamp;

use super::containers::{self, Container, all_ended_at};
use super::list_splitter::Encoding;
use super::meta::{Labels, Meta, OwnerReference, Parts, Wanted};
use super::wire::{Text, message};
use super::{Added, Result, export};

pub const CNI_IP: &str = "cni.projectcalico.org/podIP";
pub const CNI_IPS: &str = "cni.projectcalico.org/podIPs";
const CONTAINER_ID: &str = "cni.projectcalico.org/containerID";
pub const NO_IPAM: &str = "cni.projectcalico.org/ipAddrsNoIpam";
pub const V4_POOLS: &str = "cni.projectcalico.org/ipv4pools";
pub const V6_POOLS: &str = "cni.projectcalico.org/ipv6pools";
pub const FIXED: &str = "cni.projectcalico.org/ipAddrs";
pub(super) const FAMILIES: &str = "cni.projectcalico.org/ipFamilies";
const FLOATING: &str = "cni.projectcalico.org/floatingIPs";
const MAC: &str = "cni.projectcalico.org/hwAddr";
const SOURCE_PREFIXES: &str = "cni.projectcalico.org/allowedSourcePrefixes";
/// The label of a pod that is the target of a KubeVirt machine's live migration.
const MIGRATION: &str = "kubevirt.io/migrationJobUID";
const AWS_IPS: &str = "vpc.amazonaws.com/pod-ips";
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// The name of the network status annotation in early Multus versions.
const NETWORKS_STATUS: &str = "k8s.v1.cni.cncf.io/networks-status";

const WANTED: Wanted = Wanted {
    labels: Labels::Only(&[MIGRATION]),
    annotations: &[
        CNI_IP,
        CNI_IPS,
        CONTAINER_ID,
        NO_IPAM,
        V4_POOLS,
        V6_POOLS,
        FIXED,
        FAMILIES,
        FLOATING,
        MAC,
        SOURCE_PREFIXES,
        AWS_IPS,
        NETWORK_STATUS,
        NETWORKS_STATUS,
    ],
    owners: true,
};

/// The conditions that are true once a pod's sandbox has a network.
const NETWORKED: [&str; 2] = [HAS_SANDBOX, "Ready"];
/// The condition that is false while the pod has no sandbox with a network.
const HAS_SANDBOX: &str = "PodReadyToStartContainers";

type PodObject<'a> = Parts<'a, Spec<'a>, Status<'a>>;

message! {
    Spec {
        10 "nodeName" node_name: Text<'a>,
        11 "hostNetwork" host_network: bool,
    }
}

message! {
    Status {
        1 "phase" phase: Text<'a>,
        6 "podIP" ip: Text<'a>,
        12 "podIPs" ips: Vec<Ip<'a>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        2 "conditions" conditions: Vec<Condition<'a>>,
        #[serde(
            deserialize_with = "containers::from_json",
            serialize_with = "containers::to_json",
            skip_serializing_if = "Vec::is_empty"
        )]
        8 "containerStatuses" container_statuses: Vec<Container>,
        #[serde(deserialize_with = "containers::from_json", skip_serializing)]
        10 "initContainerStatuses" init_container_statuses: Vec<Container>,
        #[serde(deserialize_with = "containers::from_json", skip_serializing)]
        13 "ephemeralContainerStatuses" ephemeral_container_statuses: Vec<Container>,
    }
}

message! { Ip { 1 "ip" ip: Text<'a> } }
message! { Condition { 1 "type" kind: Text<'a>, 2 "status" status: Text<'a> } }

pub(crate) fn add_pod(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) -> Added {
    Ok(PodObject::read(object, encoding, WANTED)?.add(snapshot))
}

/// Reduces a pod to the part that an export keeps, without its environment and volumes.
pub(crate) fn export_pod(object: &[u8], encoding: Encoding) -> Result<Option<Vec<u8>>> {
    let mut pod = PodObject::read(object, encoding, WANTED)?;
    pod.metadata = pod.metadata.for_export(WANTED);
    // Only the end of the last container is kept, and only if no container could be running.
    pod.status.container_statuses = match pod.status.ended_at() {
        Some(end) => vec![Container::Ended(Some(end))],
        None => Vec::new(),
    };
    pod.status
        .conditions
        .retain(|condition| condition.is_networked() || condition.lacks_sandbox());
    export("Pod", pod)
}

impl PodObject<'_> {
    /// Adds the pod to the snapshot, without the parts that calipam does not need. Returns its fields that cannot be
    /// read.
    fn add(&self, snapshot: &mut Snapshot) -> Vec<FieldDefect> {
        let meta = &self.metadata;
        let parts = PodParts {
            namespace: &meta.namespace,
            name: &meta.name,
            node: &self.spec.node_name,
            phase: &self.status.phase,
            ready: self.status.conditions.iter().any(Condition::is_networked),
            lacks_sandbox: self.status.conditions.iter().any(Condition::lacks_sandbox),
            ended_at: self.status.ended_at(),
            host_network: self.spec.host_network,
            deleted: meta.deleted.as_deref().and_then(parse_time),
            deleting: meta.deleted.is_some(),
            status_ips: self.status.ips.iter().map(|ip| &*ip.ip).collect(),
            status_ip: &self.status.ip,
            cni_ips: meta.annotation(CNI_IPS),
            cni_ip: meta.annotation(CNI_IP),
            container_id: meta.annotation(CONTAINER_ID).unwrap_or_default(),
            created: meta.created_at(),
            aws_ips: meta.annotation(AWS_IPS),
            network_status: meta.annotation(NETWORK_STATUS),
            networks_status: meta.annotation(NETWORKS_STATUS),
            machine: self.machine(),
            request: self.request(),
        };
        let (pod, defects) = Pod::new(&parts);
        snapshot.newest_creation = snapshot.newest_creation.max(meta.created_at());
        snapshot.pods.push(Versioned {
            value: pod,
            revision: meta.revision(),
        });
        defects
    }

    /// Returns the name of the KubeVirt machine that is running in the pod; `None` for other pods.
    fn machine(&self) -> Option<&str> {
        let owner = self.instance()?;
        let group = owner.api_version.split('/').next();
        if group != Some("kubevirt.io") || !self.metadata.name.starts_with("virt-launcher-") {
            return None;
        }
        Some(&owner.name)
    }

    /// The controlling owner reference to a VirtualMachineInstance.
    fn instance(&self) -> Option<&OwnerReference<'_>> {
        let mut owners = self.metadata.owner_references.iter();
        owners.find(|owner| owner.controller && *owner.kind == *"VirtualMachineInstance")
    }

    /// Reads what the pod asks the CNI plugin for.
    fn request(&self) -> PodRequest {
        let meta = &self.metadata;
        let launcher = self.instance().filter(|owner| {
            *owner.api_version == *"kubevirt.io/v1" && meta.name.starts_with("virt-launcher-")
        });
        PodRequest {
            annotations: annotations(meta),
            machine: launcher.map(|owner| MachineReference {
                name: owner.name.to_string(),
                uid: owner.uid.to_string(),
            }),
            migration: meta.label(MIGRATION).unwrap_or_default().to_owned(),
        }
    }
}

/// The annotations with which a pod or namespace requests addresses.
pub(super) fn annotations(meta: &Meta<'_>) -> Annotations {
    let text = |name: &str| meta.annotation(name).unwrap_or_default().to_owned();
    Annotations {
        pools: [text(V4_POOLS), text(V6_POOLS)],
        families: text(FAMILIES),
        addresses: text(FIXED),
        no_ipam: text(NO_IPAM),
        floating: meta.annotation(FLOATING).map(str::to_owned),
        mac: text(MAC),
        source_prefixes: text(SOURCE_PREFIXES),
    }
}

impl Status<'_> {
    /// The time at which the last container ended; `None` if one of them runs.
    fn ended_at(&self) -> Option<Timestamp> {
        let kinds = [
            &self.container_statuses,
            &self.init_container_statuses,
            &self.ephemeral_container_statuses,
        ];
        all_ended_at(kinds.into_iter().flatten())
    }
}

impl Condition<'_> {
    fn is_networked(&self) -> bool {
        NETWORKED.contains(&&*self.kind) && *self.status == *"True"
    }

    fn lacks_sandbox(&self) -> bool {
        *self.kind == *HAS_SANDBOX && *self.status == *"False"
    }
}
