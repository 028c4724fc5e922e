//! Converts Calico 2.x data to entries in the form of Calico 3 (docs/etcdv2.md).

use std::collections::BTreeMap;

use calipam_files::raw::RawKv;
use calipam_model::key::{DEFAULT, IPAM_PREFIX, Key};
use calipam_model::names::KUBERNETES;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client::Node;
use super::path::{CONFIG, HOSTS, POOLS, READY, TUNNEL, Workload, unescape};

/// The JSON of an entry in the form of Calico 3, and the index of etcd v2 that serves as its version.
type ValueAndIndex = (String, i64);

/// Converts keys of the tree, with all keys below them, to entries in the order of the entries' keys. Undecodable
/// values become undecodable entries.
pub(crate) fn convert<'n>(roots: impl IntoIterator<Item = &'n Node>) -> Vec<RawKv> {
    let mut nodes = Vec::new();
    for root in roots {
        root.flatten(&mut nodes);
    }
    let mut converted: BTreeMap<String, ValueAndIndex> = BTreeMap::new();
    let mut hosts: BTreeMap<String, Host<'_>> = BTreeMap::new();
    let mut cluster = Cluster::default();
    for node in nodes {
        let Node {
            key,
            value,
            modified_index: index,
            ..
        } = node;
        let of_host = key.strip_prefix(HOSTS).and_then(|rest| rest.strip_prefix('/'));
        if let Some(rest) = of_host {
            let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
            hosts.entry(unescape(name)).or_default().add(rest, node);
        }
        let Some(value) = value else { continue };
        let entry = if key.starts_with(IPAM_PREFIX) {
            Some((key.clone(), value.clone()))
        } else if let Some(rest) = of_host {
            Workload::parse(rest).map(|workload| (workload.key(rest).to_string(), endpoint(&workload, value)))
        } else if let Some(rest) = key.strip_prefix(POOLS) {
            pool(rest, value)
        } else {
            cluster.add(key, value, *index);
            None
        };
        if let Some((key, value)) = entry {
            converted.insert(key, (value, *index));
        }
    }
    for (name, host) in &hosts {
        let key = Key::Node(name.clone()).to_string();
        converted.insert(key, host.as_node(name));
    }
    if let Some(information) = cluster.information() {
        converted.insert(Key::cluster_information().to_string(), information);
    }

    let mut entries = Vec::with_capacity(converted.len());
    for (key, (value, index)) in converted {
        entries.push(RawKv {
            key: key.into_bytes(),
            value: value.into_bytes(),
            mod_revision: index,
        });
    }
    entries
}

/// Decodes a Calico 2.x value.
///
/// # Errors
/// Returns the text to put into the entry: the stored text, or `{` followed by the error. Neither is valid JSON, so the
/// entry counts as undecodable.
fn decode<T: DeserializeOwned>(value: &str) -> Result<T, String> {
    let json: Value = serde_json::from_str(value).map_err(|_| value.to_owned())?;
    if !json.is_object() {
        return Err("{not an object".to_owned());
    }
    serde_json::from_value(json).map_err(|error| format!("{{{error}"))
}

/// The data of a host.
#[derive(Default)]
struct Host<'n> {
    /// The address of the interface `tunl0`.
    tunnel: Option<&'n Node>,
    /// The names of the host in other systems (Calico 2.6).
    references: Option<&'n str>,
    /// The index of the host's directory.
    index: i64,
}

impl<'n> Host<'n> {
    /// Takes the part of a host that is in a node below it.
    fn add(&mut self, rest: &str, node: &'n Node) {
        match rest {
            "" => self.index = node.modified_index,
            TUNNEL => self.tunnel = Some(node),
            "orchestrator_refs" => self.references = node.value.as_deref(),
            _ => {}
        }
    }

    /// The host as a node of Calico 3. Its version is the index of the tunnel address, or of the host's directory if
    /// there is no tunnel.
    fn as_node(&self, name: &str) -> ValueAndIndex {
        let references = match self.references.map(serde_json::from_str::<Value>) {
            Some(Ok(references @ Value::Array(_))) => references,
            // Calico 2.x uses the same name for a host and its Kubernetes node.
            _ => json!([{"orchestrator": KUBERNETES, "nodeName": name}]),
        };
        let mut address = None;
        let mut index = self.index;
        if let Some(tunnel) = self.tunnel {
            index = tunnel.modified_index;
            let text = tunnel.value.as_deref().unwrap_or_default().trim();
            if !text.is_empty() {
                address = Some(text);
            }
        }
        let spec = json!({"bgp": {"ipv4IPIPTunnelAddr": address}, "orchRefs": references});
        (resource(name, &spec), index)
    }
}

/// A resource in the form of Calico 3, as JSON.
fn resource(name: &str, spec: &Value) -> String {
    json!({"metadata": {"name": name}, "spec": spec}).to_string()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawPool {
    cidr: Option<String>,
    ipip_mode: Option<String>,
    masquerade: Option<bool>,
    /// False or unset if the allocator must not use the pool.
    ipam: Option<bool>,
    disabled: Option<bool>,
}

/// Converts a pool. `rest` is the part of its path after `/calico/v1/ipam`.
fn pool(rest: &str, value: &str) -> Option<(String, String)> {
    let name = rest
        .strip_prefix("/v4/pool/")
        .or_else(|| rest.strip_prefix("/v6/pool/"))?;
    let name = name.split('/').next()?;
    let converted = decode(value).map(|pool: RawPool| {
        let spec = json!({
            "cidr": pool.cidr,
            "ipipMode": pool.ipip_mode,
            "natOutgoing": pool.masquerade,
            "disabled": pool.disabled == Some(true) || pool.ipam != Some(true),
        });
        resource(name, &spec)
    });
    let value = converted.unwrap_or_else(|undecodable| undecodable);
    Some((Key::Pool(name.to_owned()).to_string(), value))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawEndpoint {
    active_instance_id: Option<String>,
    ipv4_nets: Option<Vec<String>>,
    ipv6_nets: Option<Vec<String>>,
}

/// Converts the endpoint of a workload. A value that cannot be decoded becomes a text that cannot be decoded either.
fn endpoint(workload: &Workload, value: &str) -> String {
    let raw: RawEndpoint = match decode(value) {
        Ok(raw) => raw,
        Err(undecodable) => return undecodable,
    };

    let mut networks = raw.ipv4_nets.unwrap_or_default();
    networks.extend(raw.ipv6_nets.unwrap_or_default());
    let mut spec = json!({
        "node": workload.host,
        "orchestrator": workload.orchestrator,
        "endpoint": workload.endpoint,
        "containerID": raw.active_instance_id,
        "ipNetworks": networks,
    });
    match workload.pod() {
        Some((_, pod)) => spec["pod"] = pod.into(),
        None => spec["workload"] = workload.workload.as_str().into(),
    }
    resource("", &spec)
}

/// The cluster information, gathered from several keys.
#[derive(Default)]
struct Cluster {
    /// The fields that were found.
    spec: serde_json::Map<String, Value>,
    index: i64,
}

impl Cluster {
    /// Takes a field of the cluster information from its own key in Calico 2.x.
    fn add(&mut self, key: &str, value: &str, index: i64) {
        let field = match key.strip_prefix(CONFIG) {
            Some("/ClusterGUID") => "clusterGUID",
            Some("/ClusterType") => "clusterType",
            Some("/CalicoVersion") => "calicoVersion",
            _ if key == READY => "datastoreReady",
            _ => return,
        };
        let is_ready = key == READY;
        let value = if is_ready {
            Value::Bool(value.trim() == "true")
        } else {
            value.trim().into()
        };
        // The version is that of the flag `Ready`, the only part of this object that calipam writes.
        if is_ready || !self.spec.contains_key("datastoreReady") {
            self.index = index;
        }
        self.spec.insert(field.to_owned(), value);
    }

    /// The cluster information of Calico 3; `None` if no field of it was found.
    fn information(self) -> Option<ValueAndIndex> {
        if self.spec.is_empty() {
            return None;
        }
        // Calico 3 has one such object, which is named `default`.
        let value = resource(DEFAULT, &Value::Object(self.spec));
        Some((value, self.index))
    }
}

#[cfg(test)]
mod tests {
    use calipam_model::snapshot::{DefectKind, Snapshot};

    use super::*;

    fn snapshot(entries: &[(&str, Option<&str>)]) -> Snapshot {
        let node = |(index, (key, value)): (usize, &(&str, Option<&str>))| Node {
            key: (*key).to_owned(),
            value: value.map(str::to_owned),
            modified_index: 10 + index as i64,
            ..Node::default()
        };
        let nodes: Vec<Node> = entries.iter().enumerate().map(node).collect();
        let mut snapshot = Snapshot::default();
        for kv in convert(&nodes).iter() {
            snapshot.add_entry(&kv.key, &kv.value, kv.mod_revision);
        }
        snapshot
    }

    #[test]
    fn a_cluster_of_calico_2() {
        let found = snapshot(&[
            ("/calico/ipam/v2/host/n1/ipv4/block/192.168.106.64-26", Some("{}")),
            ("/calico/ipam/v2/host/n1/ipv6/block", None),
            (
                "/calico/ipam/v2/handle/kube-system.web-0",
                Some(r#"{"block":{"192.168.106.64/26":1}}"#),
            ),
            (
                "/calico/v1/ipam/v4/pool/192.168.0.0-16",
                Some(
                    r#"{"cidr":"192.168.0.0/16","ipip":"tunl0","ipip_mode":"always","masquerade":true,"ipam":true,"disabled":false}"#,
                ),
            ),
            (
                "/calico/v1/ipam/v4/pool/10.0.0.0-16",
                Some(r#"{"cidr":"10.0.0.0/16"}"#),
            ),
            ("/calico/v1/host/n1", None),
            (
                "/calico/v1/host/n1/config/IpInIpTunnelAddr",
                Some("192.168.106.64"),
            ),
            (
                "/calico/v1/host/n1/workload/k8s/kube-system.web-0/endpoint/eth0",
                Some(
                    r#"{"state":"active","active_instance_id":"3f9a","ipv4_nets":["192.168.106.67/32"],"ipv6_nets":[]}"#,
                ),
            ),
            ("/calico/v1/host/n2", None),
            ("/calico/v1/Ready", Some("true")),
            ("/calico/v1/config/ClusterGUID", Some("0f0e")),
        ]);
        assert_eq!(found.defects, []);
        assert_eq!(
            found.affinities[0].value.state,
            calipam_model::affinity::AffinityState::Confirmed
        );
        let pools: Vec<_> = found
            .pools
            .iter()
            .map(|p| (p.value.name.as_str(), p.value.is_enabled()))
            .collect();
        assert_eq!(pools, [("10.0.0.0-16", false), ("192.168.0.0-16", true)]);
        let nodes: Vec<_> = found
            .nodes
            .iter()
            .map(|n| (n.value.name.as_str(), n.value.tunnels.len()))
            .collect();
        assert_eq!(nodes, [("n1", 1), ("n2", 0)]);
        let endpoint = &found.endpoints[0].value;
        assert!(
            endpoint.namespace() == *"kube-system" && endpoint.pod() == *"web-0" && endpoint.node() == *"n1"
        );
        assert_eq!(endpoint.addresses().next().unwrap().to_string(), "192.168.106.67");
        let cluster = found.cluster.unwrap();
        assert_eq!(
            (cluster.guid.as_str(), cluster.datastore_ready),
            ("0f0e", Some(true))
        );
    }

    #[test]
    fn undecodable_values_are_defects() {
        let path = "/calico/v1/host/n1/workload/k8s/a.b/endpoint/eth0";
        for value in ["", "{", r#"{"ipv4_nets":5}"#, "[]", "null,", r#""text""#] {
            let found = snapshot(&[(path, Some(value))]);
            assert!(
                matches!(&found.defects[..], [defect] if matches!(defect.kind, DefectKind::Value(_))),
                "{value}"
            );
            assert!(found.endpoints.is_empty());
        }
        let found = snapshot(&[("/calico/v1/ipam/v4/pool/10.0.0.0-16", Some(r#"{"cidr":7}"#))]);
        assert_eq!((found.pools.len(), found.defects.len()), (0, 1));
        let found = snapshot(&[("/calico/v1/host/n1/config/IpInIpTunnelAddr", Some("none"))]);
        assert_eq!((found.nodes.len(), found.defects.len()), (1, 1));
    }
}
