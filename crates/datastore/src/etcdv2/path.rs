//! The paths of Calico 2.x objects (docs/etcdv2.md).

use calipam_model::key::Key;
use calipam_model::names::{EndpointName, KUBERNETES, endpoint_name};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

pub(crate) const IPAM: &str = "/calico/ipam/v2";
pub(crate) const HOSTS: &str = "/calico/v1/host";
pub(crate) const POOLS: &str = "/calico/v1/ipam";
/// The configuration of Felix for all hosts.
pub(crate) const CONFIG: &str = "/calico/v1/config";
/// The flag that is `true` if the datastore may be used.
pub(crate) const READY: &str = "/calico/v1/Ready";

/// The key below a host with the address of its interface `tunl0`.
pub(super) const TUNNEL: &str = "config/IpInIpTunnelAddr";

/// The namespace in the keys of workloads without a namespace.
pub(super) const NO_NAMESPACE: &str = "default";
/// The prefix of endpoint names that contain a whole path, because the path cannot be derived from the usual parts of a
/// name.
const BY_PATH: &str = "path:";

/// The path of an object with a single key; `None` for objects with several keys, and for objects that are not in etcd.
pub(crate) fn path(key: &Key) -> Option<String> {
    match key {
        Key::Block(_) | Key::Affinity(_) | Key::Handle(_) | Key::IpamConfig | Key::IpamHost(_) => {
            Some(key.to_string())
        }
        Key::Pool(name) => {
            let family = if name.contains(':') { "v6" } else { "v4" };
            Some(format!("{POOLS}/{family}/pool/{name}"))
        }
        Key::Endpoint { namespace, name } => endpoint_path(namespace, name),
        _ => None,
    }
}

/// The paths under which an object's data is stored.
pub(crate) fn sources(key: &Key) -> Vec<String> {
    match key {
        Key::Node(name) => vec![format!("{HOSTS}/{}", escape(name))],
        Key::ClusterInformation(_) => vec![CONFIG.to_owned(), READY.to_owned()],
        key => path(key).into_iter().collect(),
    }
}

/// The parts of a workload endpoint's path.
pub(super) struct Workload {
    pub host: String,
    pub orchestrator: String,
    pub workload: String,
    pub endpoint: String,
}

impl Workload {
    /// Reads the part after `/calico/v1/host/` in the path of an endpoint.
    pub(super) fn parse(rest: &str) -> Option<Self> {
        let segments: Vec<String> = rest.split('/').map(unescape).collect();
        match segments.as_slice() {
            [host, workload, orchestrator, id, endpoint, name]
                if workload == "workload" && endpoint == "endpoint" =>
            {
                Some(Self {
                    host: host.clone(),
                    orchestrator: orchestrator.clone(),
                    workload: id.clone(),
                    endpoint: name.clone(),
                })
            }
            _ => None,
        }
    }

    /// Namespace and pod, if the workload is a pod.
    pub(super) fn pod(&self) -> Option<(&str, &str)> {
        if self.orchestrator != KUBERNETES {
            return None;
        }
        let (namespace, pod) = self.workload.split_once('.')?;
        if namespace.is_empty() || pod.is_empty() {
            return None;
        }
        Some((namespace, pod))
    }

    /// The key of the endpoint's entry, from which the path can be reconstructed.
    pub(super) fn key(&self, rest: &str) -> Key {
        let (namespace, workload) = self.pod().unwrap_or((NO_NAMESPACE, &self.workload));
        let name = endpoint_name(&self.host, &self.orchestrator, workload, &self.endpoint);
        let has_slash = namespace.contains('/') || name.contains('/');
        if !has_slash
            && let Some(path) = endpoint_path(namespace, &name)
            && path.ends_with(&format!("{HOSTS}/{rest}"))
        {
            return Key::Endpoint {
                namespace: namespace.to_owned(),
                name,
            };
        }
        // The path cannot be reconstructed from these parts, so the key contains all of it.
        Key::Endpoint {
            namespace: NO_NAMESPACE.to_owned(),
            name: format!("{BY_PATH}{}", utf8_percent_encode(rest, NON_ALPHANUMERIC)),
        }
    }
}

/// The path of an endpoint in Calico 2.x; `None` if the name has another form.
fn endpoint_path(namespace: &str, name: &str) -> Option<String> {
    if let Some(encoded) = name.strip_prefix(BY_PATH) {
        return Some(format!(
            "{HOSTS}/{}",
            percent_decode_str(encoded).decode_utf8().ok()?
        ));
    }
    let EndpointName {
        node,
        orchestrator,
        workload,
        endpoint,
    } = EndpointName::parse(name)?;
    // The workload of a pod has a name like `<namespace>.<pod>`.
    let workload = if orchestrator == KUBERNETES {
        format!("{namespace}.{workload}")
    } else {
        workload
    };
    let [node, orchestrator, workload, endpoint] =
        [node, orchestrator, workload, endpoint].map(|part| escape(&part));
    Some(format!(
        "{HOSTS}/{node}/workload/{orchestrator}/{workload}/endpoint/{endpoint}"
    ))
}

/// Escapes a name for a path, as Calico 2.x does.
fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

pub(super) fn unescape(segment: &str) -> String {
    segment.replace("%2F", "/").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_endpoint_can_be_told_from_its_key() {
        for (rest, name) in [
            (
                "node-1/workload/k8s/kube-system.web-0/endpoint/eth0",
                "kube-system/node--1-k8s-web--0-eth0",
            ),
            (
                "node-1/workload/libnetwork/libnetwork/endpoint/0a1b",
                "default/node--1-libnetwork-libnetwork-0a1b",
            ),
            (
                "node-1/workload/cni/default.x/endpoint/eth0",
                "default/node--1-cni-default.x-eth0",
            ),
            ("node-1/workload/k8s/no-namespace/endpoint/eth0", "default/path:"),
            ("node-1/workload/k8s/a.b%2Fc/endpoint/eth0", "default/path:"),
            ("node-1/workload/k8s/a.b%2fc/endpoint/eth0", "default/path:"),
            ("-/workload/-/-/endpoint/-", "default/path:"),
        ] {
            let key = Workload::parse(rest).unwrap().key(rest);
            let Key::Endpoint {
                namespace,
                name: found,
            } = &key
            else {
                panic!("{key:?}")
            };
            assert!(
                format!("{namespace}/{found}").starts_with(name),
                "{namespace}/{found}"
            );
            assert_eq!(path(&key).unwrap(), format!("{HOSTS}/{rest}"));
            assert!(!found.contains('/'));
        }
        assert!(Workload::parse("node-1/config/IpInIpTunnelAddr").is_none());
    }
}
