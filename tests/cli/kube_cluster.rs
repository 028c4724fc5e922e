//! A small cluster with Calico's objects on a test's API server.

use calipam_model::affinity::{AffinityKey, AffinityType};
use std::process::Command;

use calipam_testkit::kube::{Flavour, Kinds, Lease, create, create_in_etcd, lease};
use calipam_testkit::servers::KubeApiserver;
use calipam_testkit::values;
use serde_json::{Value, json};

use super::program::{Run, Words, items, prepare};

/// A cluster with one pool, whose blocks have 64 addresses.
pub(super) struct KubeCluster {
    pub server: Lease,
    flavour: Flavour,
}

/// An allocation: its ordinal in the block, and its handle with the owner's attributes.
pub(super) struct Record {
    pub ordinal: u64,
    pub attribute: Value,
}

impl Record {
    /// Creates the record of a pod.
    pub(super) fn of_pod(ordinal: u64, namespace: &str, pod: &str, node: &str) -> Self {
        let handle = format!("k8s-pod-network.{namespace}-{pod}");
        Self::new(
            ordinal,
            &handle,
            json!({"namespace": namespace, "node": node, "pod": pod}),
        )
    }

    /// Creates a record that is older than the grace period.
    pub(super) fn new(ordinal: u64, handle: &str, mut owner: Value) -> Self {
        owner["timestamp"] = "2026-05-01 10:12:00.123456789 +0000 UTC".into();
        Self {
            ordinal,
            attribute: json!({"handle_id": handle, "secondary": owner}),
        }
    }
}

impl KubeCluster {
    /// Starts a server with Calico's kinds and configuration.
    pub(super) fn start(flavour: Flavour) -> Self {
        Self::start_as(flavour, "0f0e1d2c3b4a59687786951423324150")
    }

    /// Starts a server with Calico's kinds and configuration, and with some nodes.
    pub(super) fn with_nodes(flavour: Flavour, names: &[&str]) -> Self {
        let cluster = Self::start(flavour);
        names.iter().for_each(|name| cluster.add_node(name, json!({})));
        cluster
    }

    /// Starts a server for a cluster with this GUID.
    pub(super) fn start_as(flavour: Flavour, guid: &str) -> Self {
        let server = lease(Kinds::Calico(flavour)).unwrap();
        let cluster = Self { server, flavour };
        let info = json!({"clusterGUID": guid, "calicoVersion": "v3.32.1", "datastoreReady": true});
        cluster.add("clusterinformations", "ClusterInformation", "default", info);
        let value = json!({"cidr": "10.0.0.0/16", "blockSize": 26});
        cluster.add("ippools", "IPPool", "default-ipv4-ippool", value);
        let config = json!({"strictAffinity": false, "autoAllocateBlocks": true});
        match flavour {
            Flavour::Classic => cluster.add("ipamconfigs", "IPAMConfig", "default", config),
            Flavour::Native => cluster.add("ipamconfigurations", "IPAMConfiguration", "default", config),
        }
        cluster
    }

    /// Creates one of Calico's objects.
    pub(super) fn add(&self, plural: &str, kind: &str, name: &str, spec: Value) {
        self.create(
            plural,
            json!({"kind": kind, "metadata": {"name": name}, "spec": spec}),
        );
    }

    fn create(&self, plural: &str, mut object: Value) {
        object["apiVersion"] = self.flavour.api_version().into();
        create(&self.server, &self.flavour.path(plural), &[object]).unwrap();
    }

    /// Creates a namespace.
    pub(super) fn add_namespace(&self, name: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(&self.server, "/api/v1/namespaces", &[object]).unwrap();
    }

    /// Creates a node.
    pub(super) fn add_node(&self, name: &str, annotations: Value) {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations}});
        create(&self.server, "/api/v1/nodes", &[object]).unwrap();
    }

    /// Creates a block, its affinity, and the handles of its records. `owner` is a node, or `virtual:load-balancer`.
    pub(super) fn add_block(&self, cidr: &str, owner: &str, records: &[Record]) {
        let (kind, owner) = owner.split_once(':').unwrap_or(("host", owner));
        let name = cidr.replace(['.', '/'], "-");
        let held = records.iter().map(|r| (r.ordinal as usize, r.attribute.clone()));
        let mut spec = values::block(cidr, format!("{kind}:{owner}"), values::sparse(held));
        (spec["deleted"], spec["strictAffinity"]) = (false.into(), false.into());
        spec["sequenceNumber"] = 1777630272123457000_u64.into();
        for ordinal in records.iter().map(|record| record.ordinal) {
            let number = 1777630272123456789_u64 + ordinal;
            spec["sequenceNumberForAllocation"][ordinal.to_string()] = number.into();
        }
        self.add("ipamblocks", "IPAMBlock", &name, spec);
        let key = AffinityKey {
            kind: AffinityType::parse(kind),
            node: owner.to_owned(),
            cidr: cidr.parse().unwrap(),
        };
        let labels: serde_json::Map<String, Value> = key
            .labels()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let deleted = if self.flavour == Flavour::Classic {
            json!("false")
        } else {
            json!(false)
        };
        let spec =
            json!({"cidr": cidr, "node": owner, "state": "confirmed", "type": kind, "deleted": deleted});
        let metadata = json!({"name": format!("{owner}-{name}"), "labels": labels});
        self.create(
            "blockaffinities",
            json!({"kind": "BlockAffinity", "metadata": metadata, "spec": spec}),
        );
        for id in records
            .iter()
            .filter_map(|record| record.attribute["handle_id"].as_str())
        {
            let spec = json!({"handleID": id, "block": {cidr: 1}, "deleted": false});
            self.add("ipamhandles", "IPAMHandle", &id.to_lowercase(), spec);
        }
    }

    /// Stores pods in the server's etcd, since only a kubelet can set some of their states. Each pod needs a unique
    /// UID.
    pub(super) fn add_pods(&self, pods: &[Value]) {
        create_in_etcd(&self.server, "/registry/pods/", pods).unwrap();
    }

    /// Runs the program on the cluster.
    pub(super) fn run(&self, arguments: &(impl Words + ?Sized)) -> Run {
        Run::of(self.command(arguments))
    }

    /// Prepares a run of the program on the cluster.
    pub(super) fn command(&self, arguments: &(impl Words + ?Sized)) -> Command {
        let mut command = prepare(arguments);
        command.args(connection(&self.server).words());
        command
    }

    /// Checks the cluster, and lists findings as `severity code subject [reasons]`.
    pub(super) fn findings(&self) -> Vec<String> {
        let report = self.run("check -o json --settle 0").json();
        let line = |finding: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let reasons = finding["evidence"]["reasons"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let words = [
                &finding["severity"],
                &finding["code"],
                &finding["subject"]["name"],
            ]
            .map(text);
            words
                .into_iter()
                .chain(reasons.iter().map(text))
                .collect::<Vec<_>>()
                .join(" ")
        };
        items(&report["findings"]).iter().map(line).collect()
    }
}

/// Returns the options that name a server.
pub(super) fn connection(server: &KubeApiserver) -> String {
    format!(
        "--datastore kubernetes --kubeconfig {}",
        server.kubeconfig().display()
    )
}

/// Creates a running pod with one address in its status, and a UID from `number`.
pub(super) fn pod(namespace: &str, name: &str, node: &str, address: &str, number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": "2026-05-01T10:00:00Z",
            "uid": format!("00000000-0000-0000-0000-{number:012}")},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    })
}

/// Creates the annotations of the CNI plugin.
pub(super) fn cni_annotations(container: &str, address: &str) -> Value {
    json!({"cni.projectcalico.org/containerID": container, "cni.projectcalico.org/podIP": format!("{address}/32"),
        "cni.projectcalico.org/podIPs": format!("{address}/32")})
}
