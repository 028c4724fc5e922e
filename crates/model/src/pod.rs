//! Kubernetes pods, reduced to their use of addresses (facts 2.12).

mod named;
mod request;

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

pub use self::request::{Annotations, MachineReference, Namespace, PodRequest};

use self::named::Named;
use crate::key::Key;
use crate::stored::FieldDefect;
use crate::text::{TextRef, boxed_texts, text_at};

/// Bits for the sources in a pod that name its addresses. Several sources can name the same address.
pub mod evidence {
    /// A sum of these bits.
    pub type Bits = u8;

    /// `status.podIPs` or `status.podIP`.
    pub const STATUS: u8 = 1;
    /// The annotations `cni.projectcalico.org/podIPs` and `…/podIP`, which the CNI plugin writes.
    pub const CNI: u8 = 2;
    /// The annotation `k8s.v1.cni.cncf.io/network-status`, or `networks-status`, its older name.
    pub const NETWORK_STATUS: u8 = 4;
    /// The annotation `vpc.amazonaws.com/pod-ips`.
    pub const AWS: u8 = 8;
    /// The annotation `cni.projectcalico.org/ipAddrsNoIpam`: the address bypasses IPAM.
    pub const NO_IPAM: u8 = 16;
    /// Added to [`NETWORK_STATUS`] for an address in a network other than the default one. The pod's `status` does not
    /// list such an address.
    pub const SECONDARY: u8 = 32;
    /// The annotation `cni.projectcalico.org/floatingIPs`: packets to the address are sent to the pod, and IPAM does not
    /// know of it.
    pub const FLOATING: u8 = 64;
}

/// The fields of a pod object; missing ones are empty.
#[derive(Clone, Debug, Default)]
pub struct PodParts<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `spec.nodeName`.
    pub node: &'a str,
    /// `status.phase`.
    pub phase: &'a str,
    /// True if the condition `PodReadyToStartContainers` or `Ready` is true: the sandbox has a network.
    pub ready: bool,
    /// True if the condition `PodReadyToStartContainers` is false: the pod has no sandbox with a network. After a reboot
    /// of its node, the kubelet leaves the phase of such a pod at `Running`.
    pub lacks_sandbox: bool,
    /// The end of the last container, from `status.containerStatuses` and similar fields; `None` if one could still be
    /// running or the end is unknown.
    pub ended_at: Option<Timestamp>,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// `metadata.deletionTimestamp`.
    pub deleted: Option<Timestamp>,
    /// True if `metadata.deletionTimestamp` is set, even if it cannot be read.
    pub deleting: bool,
    /// `status.podIPs[].ip`.
    pub status_ips: Vec<&'a str>,
    /// `status.podIP`.
    pub status_ip: &'a str,
    /// The annotation `cni.projectcalico.org/podIPs`: comma-separated. `None` if absent.
    pub cni_ips: Option<&'a str>,
    /// The annotation `cni.projectcalico.org/podIP`. Present but empty if the CNI plugin has torn the pod down.
    pub cni_ip: Option<&'a str>,
    /// The annotation `cni.projectcalico.org/containerID`.
    pub container_id: &'a str,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// The annotation `vpc.amazonaws.com/pod-ips`: comma-separated.
    pub aws_ips: Option<&'a str>,
    /// The annotation `k8s.v1.cni.cncf.io/network-status`: a JSON list of objects with `ips`.
    pub network_status: Option<&'a str>,
    /// The annotation `k8s.v1.cni.cncf.io/networks-status`: the name that early Multus versions used for
    /// `network-status`.
    pub networks_status: Option<&'a str>,
    /// The controlling owner of kind `VirtualMachineInstance` in the group `kubevirt.io`.
    pub machine: Option<&'a str>,
    /// The pod's request for addresses.
    pub request: PodRequest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Namespace, name, node, container ID and machine, packed.
    text: Box<[u8]>,
    addresses: Box<[(IpAddr, u8)]>,
    /// The request in annotations, labels and owner references; most pods have none.
    pub request: Option<Box<PodRequest>>,
    /// The creation time, in seconds since 1970; 0 if unknown.
    created: u32,
    /// True if the pod has finished. Finished pods own no addresses.
    pub finished: bool,
    /// The time at which the pod finished; `None` if it has not, or the time is unknown.
    pub finished_at: Option<Timestamp>,
    /// True if the pod was deleted. The object remains until the containers have ended.
    pub deleting: bool,
    /// The deletion time of a pod whose annotation is blank, but whose containers are not known to have ended. It can
    /// still use the address in its status. Calico counts it as finished at once.
    pub leaving_since: Option<Timestamp>,
    /// True if the pod uses the node's network and has no address of its own.
    pub host_network: bool,
    /// True if the phase is `Running`.
    pub running: bool,
    /// True if the sandbox has a network, so that the status is not from an earlier sandbox.
    pub ready: bool,
    /// True if the pod is known to have no sandbox with a network, whatever its phase.
    pub lacks_sandbox: bool,
    /// True if one of the CNI plugin's annotations with addresses is present, even if empty.
    pub has_cni_annotation: bool,
}

#[derive(Clone, Copy)]
enum Field {
    Namespace,
    Name,
    Node,
    ContainerId,
    Machine,
}

impl Pod {
    /// Builds a pod from the parts of its object. Omits invalid addresses, and reports them unless they are only
    /// requested.
    pub fn new(parts: &PodParts<'_>) -> (Self, Vec<FieldDefect>) {
        let fields = [
            parts.namespace,
            parts.name,
            parts.node,
            parts.container_id,
            parts.machine.unwrap_or(""),
        ];
        let mut named = Named::default();
        named.read(parts);

        // The plugin empties its annotation when it has torn down the network of a pod that is being deleted.
        let is_emptied = |annotation: Option<&str>| parts.deleting && annotation == Some("");
        let has_ended = matches!(parts.phase, "Failed" | "Succeeded" | "Completed");
        let finished = has_ended || is_emptied(parts.cni_ip) || is_emptied(parts.aws_ips);
        let is_in_status = named
            .addresses
            .iter()
            .any(|(_, sources)| sources & evidence::STATUS != 0);
        let may_be_leaving = finished && !has_ended && parts.ended_at.is_none() && is_in_status;

        let created = parts
            .created
            .and_then(|time| u32::try_from(time.as_second()).ok());
        let has_request = parts.request != PodRequest::default();
        let pod = Self {
            text: boxed_texts(&fields),
            addresses: named.addresses.into_boxed_slice(),
            request: has_request.then(|| Box::new(parts.request.clone())),
            created: created.unwrap_or(0),
            finished,
            finished_at: parts.ended_at.filter(|_| finished),
            deleting: parts.deleting,
            leaving_since: parts.deleted.filter(|_| may_be_leaving),
            host_network: parts.host_network,
            running: parts.phase == "Running",
            ready: parts.ready,
            lacks_sandbox: parts.lacks_sandbox,
            has_cni_annotation: parts.cni_ip.is_some() || parts.cni_ips.is_some(),
        };
        (pod, named.defects)
    }

    pub fn key(&self) -> Key {
        Key::Pod {
            namespace: self.namespace().to_string(),
            name: self.name().to_string(),
        }
    }

    pub fn namespace(&self) -> TextRef<'_> {
        self.field(Field::Namespace)
    }

    pub fn name(&self) -> TextRef<'_> {
        self.field(Field::Name)
    }

    /// The node; empty while the pod is not scheduled.
    pub fn node(&self) -> TextRef<'_> {
        self.field(Field::Node)
    }

    /// The sandbox ID, from the annotation; can be empty.
    pub fn container_id(&self) -> TextRef<'_> {
        self.field(Field::ContainerId)
    }

    /// The pod's KubeVirt machine; empty for other pods.
    pub fn machine(&self) -> TextRef<'_> {
        self.field(Field::Machine)
    }

    /// True if the pod is older than `age`.
    pub fn is_older_than(&self, age: SignedDuration, now: Timestamp) -> bool {
        if self.created == 0 {
            return false;
        }
        let created = Timestamp::from_second(self.created.into());
        created.is_ok_and(|created| now.duration_since(created) > age)
    }

    /// True for a pod that should have an address on its node, but does not have one yet. The status decides if it names
    /// an address or says that there is no sandbox. Otherwise, a running pod or one with an annotation counts as served.
    pub fn waits(&self) -> bool {
        let needs_none = self.finished || self.deleting || self.host_network || self.node().is_empty();
        if needs_none || self.ready || self.named_by(evidence::STATUS).next().is_some() {
            return false;
        }
        !self.has_network()
    }

    /// True if the pod has a network: a running pod, unless the kubelet says that there is no sandbox, or one with an
    /// address in a CNI plugin's annotation, which the plugin writes before the kubelet writes the status.
    pub fn has_network(&self) -> bool {
        if self.running {
            return !self.lacks_sandbox;
        }
        self.named_by(evidence::CNI | evidence::AWS).next().is_some()
    }

    /// True if Calico's CNI plugin has torn down the sandbox in the annotation, and the pod waits for another one: the
    /// annotation with the address is blank, and the kubelet says that a pod that ran has no sandbox.
    pub fn has_lost_sandbox(&self) -> bool {
        self.has_blank_annotation() && self.running && self.waits() && !self.container_id().is_empty()
    }

    /// True if the CNI plugin's annotation with addresses is present, but names none.
    pub fn has_blank_annotation(&self) -> bool {
        self.has_cni_annotation && self.named_by(evidence::CNI).next().is_none()
    }

    /// True if Calico's CNI plugin has left an annotation, as it does if the datastore is Kubernetes. Pods of other
    /// plugins have no such annotation.
    pub fn is_annotated(&self) -> bool {
        self.has_cni_annotation || !self.container_id().is_empty()
    }

    /// Addresses with the sources that name them: a sum of [`evidence`] bits.
    pub fn evidence(&self) -> &[(IpAddr, evidence::Bits)] {
        &self.addresses
    }

    /// Addresses that the pod owns. A pod that is finished or uses the node's network has none. Otherwise the first
    /// existing source counts: the CNI annotation (even if empty), the status, the AWS annotation. Addresses that
    /// bypass IPAM are omitted.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let owns = !self.finished && !self.host_network;
        let first_source = if self.has_cni_annotation {
            evidence::CNI
        } else if self.named_by(evidence::STATUS).next().is_some() {
            evidence::STATUS
        } else {
            evidence::AWS
        };
        let is_own = move |sources: evidence::Bits| {
            let is_named = sources & first_source != 0;
            let bypasses_ipam = sources & evidence::NO_IPAM != 0;
            owns && is_named && !bypasses_ipam
        };
        self.addresses
            .iter()
            .filter(move |(_, sources)| is_own(*sources))
            .map(|(address, _)| *address)
    }

    /// Addresses that some source names, even if the pod might not own them. A record of such an address is not
    /// reported as leaked. Finished pods and those in the node's network have none.
    pub fn mentioned(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let counts = !self.finished && !self.host_network;
        self.addresses
            .iter()
            .filter(move |_| counts)
            .map(|(address, _)| *address)
    }

    /// The annotation with which the pod has an address without IPAM, by its short name; `None` for any other address.
    pub fn annotation_of(&self, address: IpAddr) -> Option<&'static str> {
        let (_, sources) = self.addresses.iter().find(|(named, _)| *named == address)?;
        if sources & evidence::NO_IPAM != 0 {
            Some("ipAddrsNoIpam")
        } else if *sources == evidence::FLOATING {
            Some("floatingIPs")
        } else {
            None
        }
    }

    /// True if both pods have the same names, node, sandbox and addresses, and the same state: running, finished or
    /// neither. Ignores other fields, such as readiness and deletion.
    pub fn uses_the_same(&self, other: &Self) -> bool {
        self.text == other.text
            && self.addresses == other.addresses
            && self.finished == other.finished
            && self.host_network == other.host_network
            && self.running == other.running
            && self.has_cni_annotation == other.has_cni_annotation
    }

    /// Addresses that one of these sources names.
    pub fn named_by(&self, wanted: evidence::Bits) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses
            .iter()
            .filter(move |(_, sources)| sources & wanted != 0)
            .map(|(address, _)| *address)
    }

    fn field(&self, field: Field) -> TextRef<'_> {
        text_at(&self.text, field as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_ipam(json: &str) -> PodRequest {
        Annotations {
            no_ipam: json.to_owned(),
            ..Annotations::default()
        }
        .into()
    }

    fn owned(parts: &PodParts<'_>) -> Vec<String> {
        Pod::new(parts).0.addresses().map(|a| a.to_string()).collect()
    }

    #[test]
    fn the_annotation_counts_before_the_status() {
        let mut parts = PodParts {
            status_ips: vec!["10.0.0.1", "fd00::1"],
            phase: "Running",
            ..PodParts::default()
        };
        assert_eq!(owned(&parts), ["10.0.0.1", "fd00::1"]);
        parts.cni_ip = Some("10.0.0.2/32");
        parts.cni_ips = Some("10.0.0.2/32,fd00::2/128");
        assert_eq!(owned(&parts), ["10.0.0.2", "fd00::2"]);
        parts.cni_ip = Some("");
        parts.cni_ips = Some("");
        assert_eq!(owned(&parts), [""; 0]);
        assert_eq!(Pod::new(&parts).0.mentioned().count(), 2);
    }

    #[test]
    fn a_pod_waits_until_something_names_an_address() {
        let waiting = PodParts {
            node: "n",
            phase: "Pending",
            request: Annotations {
                families: "x".to_owned(),
                ..Annotations::default()
            }
            .into(),
            created: Some(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(60)),
            ..PodParts::default()
        };
        let pod = |parts: &PodParts<'_>| Pod::new(parts).0;
        assert!(pod(&waiting).waits());
        assert_eq!(*pod(&waiting).request.unwrap(), waiting.request);
        let age = |secs| {
            pod(&waiting).is_older_than(
                SignedDuration::from_mins(1),
                Timestamp::from_second(secs).unwrap(),
            )
        };
        assert!(age(121) && !age(120));
        for parts in [
            PodParts {
                node: "",
                ..waiting.clone()
            },
            PodParts {
                host_network: true,
                ..waiting.clone()
            },
            PodParts {
                status_ip: "10.0.0.1",
                ..waiting.clone()
            },
            PodParts {
                cni_ip: Some("10.0.0.1/32"),
                ..waiting.clone()
            },
            PodParts {
                phase: "Running",
                ..waiting.clone()
            },
            PodParts {
                deleting: true,
                ..waiting.clone()
            },
        ] {
            assert!(!pod(&parts).waits(), "{parts:?}");
        }
        let rebooted = PodParts {
            phase: "Running",
            lacks_sandbox: true,
            ..waiting.clone()
        };
        assert!(pod(&rebooted).waits());
        assert!(
            pod(&PodParts {
                request: PodRequest::default(),
                ..waiting
            })
            .request
            .is_none()
        );
    }

    #[test]
    fn an_ipv4_address_in_ipv6_form_is_read_as_ipv4() {
        let mapped = PodParts {
            status_ip: "::ffff:10.0.0.1",
            phase: "Running",
            ..PodParts::default()
        };
        assert_eq!(owned(&mapped), ["10.0.0.1"]);
    }

    #[test]
    fn finished_and_host_networked_pods_own_nothing() {
        let running = PodParts {
            status_ip: "10.0.0.1",
            phase: "Running",
            ..PodParts::default()
        };
        for parts in [
            PodParts {
                phase: "Failed",
                ..running.clone()
            },
            PodParts {
                phase: "Succeeded",
                ..running.clone()
            },
            PodParts {
                host_network: true,
                ..running.clone()
            },
            PodParts {
                deleting: true,
                cni_ip: Some(""),
                ..running.clone()
            },
        ] {
            let (pod, _) = Pod::new(&parts);
            assert_eq!(
                (pod.addresses().count(), pod.mentioned().count()),
                (0, 0),
                "{parts:?}"
            );
        }
        let found = owned(&PodParts {
            deleting: true,
            cni_ip: Some("10.0.0.1/32"),
            ..running.clone()
        });
        assert_eq!(found, ["10.0.0.1"]);
        assert_eq!(
            owned(&PodParts {
                phase: "Unknown",
                ..running
            }),
            ["10.0.0.1"]
        );
    }

    #[test]
    fn other_evidence_protects_or_bypasses() {
        let parts = PodParts {
            status_ips: vec!["10.0.0.1", "10.0.0.9"],
            request: no_ipam(r#"["10.0.0.9"]"#),
            network_status: Some(r#"[{"name":"x","ips":["10.0.0.1","10.0.0.3"]},{"name":"y"}]"#),
            container_id: "3f9a",
            ..PodParts::default()
        };
        let (pod, defects) = Pod::new(&parts);
        assert!(defects.is_empty() && pod.container_id() == *"3f9a");
        assert_eq!(owned(&parts), ["10.0.0.1"]);
        assert_eq!(pod.mentioned().count(), 3);
        let old = PodParts {
            networks_status: Some(r#"[{"ips":["10.0.0.7"]}]"#),
            ..parts.clone()
        };
        assert_eq!(Pod::new(&old).0.mentioned().count(), 4);
        let broken = PodParts {
            status_ip: "10.0.0.x",
            network_status: Some("{"),
            ..PodParts::default()
        };
        assert_eq!(Pod::new(&broken).1.len(), 2);
    }
}
