//! The kinds of etcd keys, and the names of their objects (facts 1.1, 2.2, 2.3).

use ipnet::IpNet;

use crate::kube::form::MAX_NAME;

/// The annotation with Calico's own metadata in the classic API group.
pub(super) const METADATA: &str = "projectcalico.org/metadata";

/// The CIDR at the end of a key. The names of objects contain no family, so they cannot express a wrong one.
pub(super) fn net(family: &str, dashed: &str) -> Option<IpNet> {
    let net: IpNet = dashed.replacen('-', "/", 1).parse().ok()?;
    (family == if net.addr().is_ipv4() { "ipv4" } else { "ipv6" }).then_some(net)
}

/// True for a valid name of a Kubernetes object: small letters, digits, dashes and dots.
pub(super) fn is_object_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.iter().all(|b| inner(*b) || *b == b'-')
            && bytes.first().copied().is_some_and(inner)
            && bytes.last().copied().is_some_and(inner)
    };
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

/// The kinds that are not Calico's: plural, kind and API version.
pub(super) const FOREIGN: [(&str, &str, &str); 5] = [
    ("nodes", "Node", "v1"),
    ("pods", "Pod", "v1"),
    ("services", "Service", "v1"),
    ("virtualmachines", "VirtualMachine", "kubevirt.io/v1"),
    ("virtualmachineinstances", "VirtualMachineInstance", "kubevirt.io/v1"),
];

/// The row of a kind that is not Calico's.
pub(in crate::cluster) fn foreign_kind(plural: &str) -> Option<(&'static str, &'static str, &'static str)> {
    FOREIGN.into_iter().find(|(known, ..)| *known == plural)
}

/// The row of one of Calico's kinds.
pub(super) fn calico_kind(plural: &str) -> Option<(&'static str, &'static str)> {
    KINDS.into_iter().find(|(known, _)| *known == plural)
}

/// Calico's kinds with the same name in both API groups: plural and kind.
pub(super) const KINDS: [(&str, &str); 7] = [
    ("ipamblocks", "IPAMBlock"),
    ("ipamhandles", "IPAMHandle"),
    ("blockaffinities", "BlockAffinity"),
    ("ippools", "IPPool"),
    ("ipreservations", "IPReservation"),
    ("clusterinformations", "ClusterInformation"),
    ("kubecontrollersconfigurations", "KubeControllersConfiguration"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_names() {
        for (name, legal) in [
            ("node-1", true),
            ("a.b--c", true),
            ("A", false),
            ("a\r\nb", false),
            ("a..b", false),
            ("-a", false),
        ] {
            assert_eq!(is_object_name(name), legal, "{name:?}");
        }
    }
}
