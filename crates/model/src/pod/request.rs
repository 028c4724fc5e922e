//! The parts of pods and namespaces with which they request addresses, as they were written. Calico's plugin reads them,
//! and so does the allocator's answer for a pod (`calipam_assign::Request`).

use std::collections::BTreeMap;

/// Annotations with which a pod or its namespace requests addresses. For Calico, an empty annotation is an absent one,
/// except for [`Self::floating`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Annotations {
    /// `cni.projectcalico.org/ipv4pools` and `…/ipv6pools`: JSON lists of pool names and CIDRs.
    pub pools: [String; 2],
    /// `cni.projectcalico.org/ipFamilies`: a JSON list of `IPv4` and `IPv6` (Calico 3.30 and later).
    pub families: String,
    /// `cni.projectcalico.org/ipAddrs`: a JSON list of addresses. Counts for pods only.
    pub addresses: String,
    /// `cni.projectcalico.org/ipAddrsNoIpam`: a JSON list of addresses that bypass IPAM. Counts for pods only.
    pub no_ipam: String,
    /// `cni.projectcalico.org/floatingIPs`: a JSON list of addresses. Counts for pods only. With Kubernetes as datastore, an
    /// empty text is a list that cannot be read.
    pub floating: Option<String>,
    /// `cni.projectcalico.org/hwAddr`: a MAC address. Counts for pods only.
    pub mac: String,
    /// `cni.projectcalico.org/allowedSourcePrefixes`: a JSON list of CIDRs. Counts for pods only.
    pub source_prefixes: String,
}

/// The request of a pod, besides what its node and namespace say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodRequest {
    pub annotations: Annotations,
    /// The VirtualMachineInstance (`kubevirt.io/v1`) that runs in the pod. Calico's plugin takes a pod with another API
    /// version in its owner reference for an ordinary one.
    pub machine: Option<MachineReference>,
    /// The label `kubevirt.io/migrationJobUID`; empty unless the pod is the target of a live migration.
    pub migration: String,
}

impl From<Annotations> for PodRequest {
    fn from(annotations: Annotations) -> Self {
        Self {
            annotations,
            ..Self::default()
        }
    }
}

/// A pod's controlling owner reference to a VirtualMachineInstance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MachineReference {
    pub name: String,
    pub uid: String,
}

/// The parts of a namespace that determine the addresses of its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    pub labels: BTreeMap<String, String>,
    pub annotations: Annotations,
}
