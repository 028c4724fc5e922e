//! The cluster that is measured: one pool and one node.

use calipam_testkit::kube::{Flavour, create, install};
use calipam_testkit::servers::{Etcd, KubeApiserver};
use serde_json::{Value, json};

use crate::Failed;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// A real server with a pool and the node `a`.
pub enum World {
    Etcd(Box<Etcd>),
    Kubernetes(Box<KubeApiserver>),
}

impl World {
    pub fn start(datastore: &str) -> Result<Self, Failed> {
        let spec = json!({"cidr": "10.7.0.0/16", "blockSize": 26, "nodeSelector": "all()"});
        match datastore {
            "etcd" => {
                let etcd = Etcd::start()?;
                let put = |key: String, value: Value| {
                    etcd.with_client(async |mut client| client.put(key, value.to_string(), None).await)
                };
                let object = |kind: &str, name: &str, spec: &Value| json!({"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name}, "spec": spec});
                put(format!("{RESOURCES}/ippools/default"), object("IPPool", "default", &spec))?;
                put(format!("{RESOURCES}/nodes/a"), object("Node", "a", &json!({})))?;
                Ok(Self::Etcd(Box::new(etcd)))
            }
            "kubernetes" => {
                let server = KubeApiserver::start()?;
                let flavour = Flavour::Classic;
                install(&server, flavour)?;
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
                create(&server, "/api/v1/nodes", &[node])?;
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

    /// What goes to the stdin of a plugin.
    pub fn configuration(&self) -> Value {
        let mut configuration = json!({"cniVersion": "0.3.1", "name": "k8s-pod-network", "type": "calico",
            "nodename": "a", "ipam": {"type": "calico-ipam"}, "log_level": "error"});
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
}
