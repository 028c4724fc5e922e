//! A real server with a pool and some nodes.

use std::io::{Read, Write};
use std::net::TcpStream;

use calipam_model::snapshot::DatastoreKind;
use calipam_testkit::kube::{Flavour, create, install};
use calipam_testkit::servers::{Etcd, KubeApiserver};
use serde_json::{Value, json};

use crate::Failed;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";
/// The pool, and the prefix length of its blocks.
pub const POOL: &str = "10.0.0.0/16";
pub const BLOCK_SIZE: u8 = 26;

pub enum World {
    Etcd(Box<Etcd>),
    Kubernetes(Box<KubeApiserver>),
}

/// The name of a node, counted from 0, as in simulations.
pub fn node_name(index: u32) -> String {
    format!("node-{}", index + 1)
}

impl World {
    pub fn start(datastore: &str, nodes: u32) -> Result<Self, Failed> {
        let spec = json!({"cidr": POOL, "blockSize": BLOCK_SIZE, "nodeSelector": "all()"});
        match datastore {
            "etcd" => {
                let etcd = Etcd::start()?;
                let put = |key: String, value: Value| {
                    etcd.with_client(async |mut client| client.put(key, value.to_string(), None).await)
                };
                let object = |kind: &str, name: &str, spec: &Value| json!({"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name}, "spec": spec});
                put(format!("{RESOURCES}/ippools/default"), object("IPPool", "default", &spec))?;
                for name in (0..nodes).map(node_name) {
                    put(format!("{RESOURCES}/nodes/{name}"), object("Node", &name, &json!({})))?;
                }
                Ok(Self::Etcd(Box::new(etcd)))
            }
            "kubernetes" => {
                let server = KubeApiserver::start()?;
                let flavour = Flavour::Classic;
                install(&server, flavour)?;
                let node =
                    |name: String| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
                let nodes: Vec<Value> = (0..nodes).map(node_name).map(node).collect();
                create(&server, "/api/v1/nodes", &nodes)?;
                let namespace =
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
                server.request("POST", "/api/v1/namespaces", &namespace.to_string())?;
                let pool = json!({"apiVersion": flavour.api_version(), "kind": "IPPool",
                    "metadata": {"name": "default"}, "spec": spec});
                create(&server, &flavour.path("ippools"), &[pool])?;
                Ok(Self::Kubernetes(Box::new(server)))
            }
            other => Err(format!("{other} is not a datastore").into()),
        }
    }

    pub fn kind(&self) -> DatastoreKind {
        match self {
            Self::Etcd(_) => DatastoreKind::Etcd,
            Self::Kubernetes(_) => DatastoreKind::Kubernetes,
        }
    }

    /// What goes to the stdin of the plugin of a node.
    pub fn configuration(&self, node: &str, lock: &str) -> Value {
        let mut configuration = json!({"cniVersion": "1.1.0", "name": "k8s-pod-network", "type": "calico",
            "nodename": node, "ipam": {"type": "calico-ipam"}, "log_level": "error", "ipam_lock_file": lock});
        match self {
            Self::Etcd(etcd) => {
                configuration["datastore_type"] = "etcdv3".into();
                configuration["etcd_endpoints"] = etcd.endpoint().into();
            }
            Self::Kubernetes(server) => {
                configuration["datastore_type"] = "kubernetes".into();
                configuration["kubernetes"] = json!({"kubeconfig": server.kubeconfig()});
            }
        }
        configuration
    }

    /// Requests that the server has done for plugins since it started.
    pub fn requests(&self) -> Result<u64, Failed> {
        let (text, is_counted): (String, fn(&str) -> bool) = match self {
            Self::Etcd(etcd) => (metrics(etcd.port())?, |line| {
                line.starts_with("grpc_server_handled_total{")
                    && line.contains("grpc_service=\"etcdserverpb.KV\"")
            }),
            Self::Kubernetes(server) => (server.request("GET", "/metrics", "")?.body, |line| {
                let of_plugins = [
                    "ipamblocks",
                    "ipamhandles",
                    "blockaffinities",
                    "ipamconfigs",
                    "ippools",
                    "ipreservations",
                ];
                let resource = |name: &&str| line.contains(&format!("resource=\"{name}\""));
                let is_core = line.contains("resource=\"nodes\"") || line.contains("resource=\"namespaces\"");
                line.starts_with("apiserver_request_total{")
                    && !line.contains("verb=\"WATCH\"")
                    && (of_plugins.iter().any(resource) || (is_core && line.contains("verb=\"GET\"")))
            }),
        };
        let counts = text.lines().filter(|line| is_counted(line)).filter_map(|line| line.rsplit_once(' '));
        Ok(counts.filter_map(|(_, count)| count.parse::<f64>().ok()).sum::<f64>() as u64)
    }
}

/// What etcd says about itself.
fn metrics(port: u16) -> Result<String, Failed> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: etcd\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
