//! The kinds of etcd keys, and the names of their objects (facts 1.1, 2.2, 2.3).

use ipnet::IpNet;

use crate::kube::form::MAX_NAME;

/// The annotation with Calico's own metadata in the classic API group.
pub(super) const METADATA: &str = "projectcalico.org/metadata";

/// An object that an etcd key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'k> {
    Block(IpNet),
    Affinity {
        kind: &'k str,
        holder: &'k str,
        net: IpNet,
    },
    Handle(&'k str),
    IpamConfig,
    /// A resource of the v3 API, by its plural.
    Resource(&'k str),
}

impl<'k> Place<'k> {
    pub(super) fn of(key: &'k str) -> Result<Self, String> {
        if let Some(rest) = key.strip_prefix("/calico/resources/v3/projectcalico.org/") {
            let (plural, _) = rest.split_once('/').ok_or("it names no resource")?;
            return match plural {
                "ipamconfigurations" => {
                    Err("in Kubernetes it is one object with the allocator's settings".into())
                }
                _ => Ok(Self::Resource(plural)),
            };
        }
        let rest = key.strip_prefix("/calico/ipam/v2/").ok_or("it is no key of IPAM")?;
        let parts: Vec<&str> = rest.split('/').collect();
        match parts[..] {
            ["config"] => Ok(Self::IpamConfig),
            ["handle", id] => Ok(Self::Handle(id)),
            ["assignment", family, "block", dashed] => Ok(Self::Block(net(family, dashed)?)),
            [kind @ ("host" | "virtual"), holder, family, "block", dashed] => {
                Ok(Self::Affinity { kind, holder, net: net(family, dashed)? })
            }
            [_, _, _, "block", _] => Err("the type of an affinity is not part of its name".into()),
            _ => Err("no kind of object stands for it".into()),
        }
    }
}

/// The CIDR at the end of a key.
fn net(family: &str, dashed: &str) -> Result<IpNet, String> {
    let text = dashed.replacen('-', "/", 1);
    let net: IpNet = text.parse().map_err(|_| format!("{text} is not a CIDR, so it gives no name"))?;
    let own = if net.addr().is_ipv4() { "ipv4" } else { "ipv6" };
    if family == own { Ok(net) } else { Err("object names contain no family that could be wrong".into()) }
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

/// Returns the plural of a kind that is not Calico's as a constant.
pub(super) fn known_plural(plural: &str) -> Option<&'static str> {
    FOREIGN.into_iter().map(|(known, ..)| known).find(|known| *known == plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let v4: IpNet = "10.244.1.0/26".parse().unwrap();
        let block = "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-26";
        assert_eq!(Place::of(block), Ok(Place::Block(v4)));
        let affinity = "/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.244.1.0-26";
        let place = Place::Affinity { kind: "virtual", holder: "load-balancer", net: v4 };
        assert_eq!(Place::of(affinity), Ok(place));
        assert_eq!(Place::of("/calico/ipam/v2/handle/a.b"), Ok(Place::Handle("a.b")));
        for key in [
            "/calico/ipam/v2/assignment/ipv6/block/10.244.1.0-26",
            "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-66",
            "/calico/ipam/v2/@/node-1/ipv4/block/10.244.1.0-26",
            "/calico/ipam/v2/handle/a/b",
            "/calico/ipam/v2/host/node-1",
            "/registry/pods/default/a",
        ] {
            assert!(Place::of(key).is_err(), "{key}");
        }
    }

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
