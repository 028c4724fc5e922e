//! Names of Calico objects in Kubernetes.

use calipam_model::affinity::AffinityKey;
use calipam_model::digest::sha256_hex;
use calipam_model::handle;
use calipam_model::key::Key;
use calipam_model::names::MAX_OBJECT_NAME;
use calipam_model::{IpNet, cidr};

/// The number of hexadecimal digits in a shortened name's hash.
const HASH_DIGITS: usize = 11;

/// A block's CIDR, from its name. `None` if no CIDR has that name.
pub fn cidr_of_block(name: &str) -> Option<IpNet> {
    let (address, prefix) = name.rsplit_once('-')?;
    // Names have dashes for the separators of both IPv4 and IPv6.
    for separator in [".", ":"] {
        let text = format!("{}/{prefix}", address.replace('-', separator));
        if let Some(cidr) = cidr::parse_cidr(&text)
            && cidr::resource_name(cidr) == name
        {
            return Some(cidr);
        }
    }
    None
}

/// An affinity's name: the names of its holder and its block, shortened if too long.
pub fn affinity_name(key: &AffinityKey) -> String {
    let block = cidr::resource_name(key.cidr);
    let name = format!("{}-{block}", key.node);
    if name.len() < MAX_OBJECT_NAME {
        return name;
    }
    let hash = sha256_hex(format!("{}+{block}", key.node));
    let mut node_length = (MAX_OBJECT_NAME - 1).saturating_sub(block.len() + 2 + HASH_DIGITS);
    while !key.node.is_char_boundary(node_length) {
        node_length -= 1;
    }
    format!("{}-{block}-{}", &key.node[..node_length], &hash[..HASH_DIGITS])
}

/// An object's kind and name in Kubernetes, after the namespace if it has one: `IPAMBlock 10-244-1-0-26`.
pub fn object_name(key: &Key) -> String {
    let (kind, name) = match key {
        Key::Block(cidr) => ("IPAMBlock", cidr::resource_name(*cidr)),
        Key::Affinity(key) => ("BlockAffinity", affinity_name(key)),
        Key::Handle(id) => ("IPAMHandle", handle::resource_name(id)),
        Key::IpamConfig => ("IPAMConfig", "default".to_owned()),
        Key::Pool(name) => ("IPPool", name.clone()),
        Key::Reservation(name) => ("IPReservation", name.clone()),
        Key::Node(name) => ("Node", name.clone()),
        Key::ClusterInformation(name) => ("ClusterInformation", name.clone()),
        Key::KubeControllersConfiguration(name) => ("KubeControllersConfiguration", name.clone()),
        Key::IpamConfiguration(name) => ("IPAMConfiguration", name.clone()),
        Key::Pod { namespace, name } => ("Pod", format!("{namespace}/{name}")),
        Key::Service { namespace, name } => ("Service", format!("{namespace}/{name}")),
        // The others are only in etcd.
        other => return other.to_string(),
    };
    format!("{kind} {name}")
}

#[cfg(test)]
mod tests {
    use calipam_model::affinity::AffinityType;

    use super::*;

    fn affinity(node: &str, cidr: &str) -> AffinityKey {
        AffinityKey {
            kind: AffinityType::Host,
            node: node.into(),
            cidr: cidr.parse().unwrap(),
        }
    }

    #[test]
    fn names_of_blocks_read_back() {
        for (cidr, name) in [
            ("10.244.1.0/26", "10-244-1-0-26"),
            ("fd00:10:244::/122", "fd00-10-244---122"),
            ("::/122", "---122"),
            (
                "fd00:10:244:0:ba7e:3418:63ba:b980/122",
                "fd00-10-244-0-ba7e-3418-63ba-b980-122",
            ),
        ] {
            let cidr: IpNet = cidr.parse().unwrap();
            assert_eq!(cidr::resource_name(cidr), name);
            assert_eq!(cidr_of_block(name), Some(cidr));
        }
        for name in [
            "",
            "x",
            "10-244-1-0",
            "10-244-1-7-26",
            "10-244-1-0-99",
            "FD00---122",
            "node-1-10-0-0-0-26",
        ] {
            assert_eq!(cidr_of_block(name), None, "{name}");
        }
    }

    #[test]
    fn objects_have_their_kind_and_name() {
        let block = Key::Block("10.244.1.0/26".parse().unwrap());
        assert_eq!(object_name(&block), "IPAMBlock 10-244-1-0-26");
        let key = Key::Affinity(affinity("node-1", "10.244.1.0/26"));
        assert_eq!(object_name(&key), "BlockAffinity node-1-10-244-1-0-26");
        assert_eq!(
            object_name(&Key::Handle("k8s-pod-network.Ab".into())),
            "IPAMHandle k8s-pod-network.ab"
        );
        assert_eq!(object_name(&Key::Node("a".into())), "Node a");
    }

    #[test]
    fn names_of_affinities_stay_legal() {
        assert_eq!(
            affinity_name(&affinity("node-1", "10.244.1.0/29")),
            "node-1-10-244-1-0-29"
        );
        let fits = affinity_name(&affinity(&"n".repeat(238), "10.244.1.0/26"));
        assert_eq!(fits.len(), 252);
        assert!(fits.ends_with("n-10-244-1-0-26"));
        let long = affinity_name(&affinity(&"n".repeat(239), "10.244.1.0/26"));
        assert_eq!(long.len(), 252);
        assert!(
            long.starts_with(&"n".repeat(226)) && !long.starts_with(&"n".repeat(227)),
            "{long}"
        );
        assert_ne!(long, affinity_name(&affinity(&"n".repeat(240), "10.244.1.0/26")));
        let cut = affinity_name(&affinity(&format!("x{}", "ä".repeat(200)), "10.244.1.0/26"));
        assert_eq!(cut.len(), 252 - 1, "no character is cut in two");
    }
}
