//! A small cluster as lists of kubectl in a file, on an API server, and in etcd.

use std::collections::BTreeMap;
use std::path::PathBuf;

use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::service::Service;
use calipam_testkit::cluster::wire::key;
use calipam_testkit::kube::create_in_etcd;
use calipam_testkit::servers::KubeApiserver;
use calipam_testkit::values;
use etcd_client::DeleteOptions;
use serde_json::{Value, json};

use super::super::program::{self, Run, calipam};

/// The objects of a cluster, which are written to a file as a list of kubectl.
pub(super) struct Lists {
    items: Vec<Value>,
    folder: tempfile::TempDir,
}

pub(super) const CREATED: &str = "2026-06-01T08:00:00Z";

impl Lists {
    pub(super) fn new(pools: &[(&str, Value)], nodes: &[(&str, Value)]) -> Self {
        let mut lists = Self {
            items: Vec::new(),
            folder: tempfile::tempdir().unwrap(),
        };
        for (name, spec) in pools {
            lists.object("IPPool", name, spec.clone());
        }
        for (name, labels) in nodes {
            lists.add(json!({"kind": "Node", "apiVersion": "v1", "spec": {},
                "metadata": {"name": name, "labels": labels, "creationTimestamp": CREATED},
                "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}));
        }
        let information = json!({"calicoVersion": "v3.31.2", "datastoreReady": true,
            "clusterGUID": "0f0e1d2c3b4a59687786951423324150", "clusterType": "k8s,bgp,kdd"});
        lists.object("ClusterInformation", "default", information);
        // The creation time of the newest pod counts as the time of the data, here an hour later.
        lists.pod(
            "kube-system/clock",
            "",
            json!({}),
            "2026-06-01T09:00:00Z",
            Some("192.0.2.9"),
        );
        lists
    }

    /// Creates a cluster with one pool and the node `n1`.
    pub(super) fn of_pool(name: &str, cidr: &str, spec: Value) -> Self {
        Self::new(&[(name, pool(cidr, spec))], &[("n1", json!({}))])
    }

    pub(super) fn add(&mut self, item: Value) {
        self.items.push(item);
    }

    /// Adds one of Calico's objects.
    pub(super) fn object(&mut self, kind: &str, name: &str, spec: Value) {
        self.add(
            json!({"kind": kind, "apiVersion": "crd.projectcalico.org/v1", "spec": spec,
            "metadata": {"name": name, "creationTimestamp": CREATED}}),
        );
    }

    pub(super) fn namespace(&mut self, name: &str, labels: Value, annotations: Value) {
        let metadata =
            json!({"name": name, "labels": labels, "annotations": annotations, "creationTimestamp": CREATED});
        self.add(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": metadata}));
    }

    /// Adds the settings of the allocator.
    pub(super) fn settings(&mut self, spec: Value) {
        self.object("IPAMConfig", "default", spec);
    }

    pub(super) fn pod(
        &mut self,
        name: &str,
        node: &str,
        annotations: Value,
        created: &str,
        address: Option<&str>,
    ) {
        let (namespace, name) = name.split_once('/').unwrap();
        let mut annotations = annotations;
        if let Some(address) = address {
            // The annotations of the CNI plugin.
            annotations["cni.projectcalico.org/podIPs"] = address.into();
            annotations["cni.projectcalico.org/podIP"] = address.into();
        }
        let status = match address {
            Some(address) => json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}),
            None => json!({"phase": "Pending"}),
        };
        self.add(json!({"kind": "Pod", "apiVersion": "v1", "status": status,
            "spec": {"nodeName": node, "hostNetwork": namespace == "kube-system"},
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations, "creationTimestamp": created}}));
    }

    pub(super) fn stuck(&mut self, name: &str, node: &str) {
        self.pod(name, node, json!({}), CREATED, None);
    }

    /// Changes a pod.
    pub(super) fn edit_pod(&mut self, name: &str, edit: impl FnOnce(&mut Value)) {
        let (namespace, name) = name.split_once('/').unwrap();
        let mut items = self.items.iter_mut();
        let is_it = |item: &Value| {
            item["kind"] == "Pod"
                && item["metadata"]["namespace"] == namespace
                && item["metadata"]["name"] == name
        };
        edit(items.find(|item| is_it(item)).unwrap());
    }

    /// Changes each object of a kind.
    pub(super) fn edit_each(&mut self, kind: &str, edit: impl Fn(&mut Value)) {
        self.items
            .iter_mut()
            .filter(|item| item["kind"] == kind)
            .for_each(edit);
    }

    /// Changes the object that was added last.
    pub(super) fn edit_last(&mut self, edit: impl FnOnce(&mut Value)) {
        edit(self.items.last_mut().unwrap());
    }

    /// Adds annotations to all pods.
    pub(super) fn annotate_pods(&mut self, annotations: &Value) {
        for pod in self.items.iter_mut().filter(|item| item["kind"] == "Pod") {
            let known = pod["metadata"]["annotations"].as_object_mut().unwrap();
            known.extend(annotations.as_object().unwrap().clone());
        }
    }

    pub(super) fn delete_pod(&mut self, name: &str) {
        let (namespace, name) = name.split_once('/').unwrap();
        self.items.retain(|item| {
            let metadata = &item["metadata"];
            item["kind"] != "Pod" || metadata["namespace"] != namespace || metadata["name"] != name
        });
    }

    pub(super) fn delete_pods(&mut self, node: &str) {
        self.items
            .retain(|item| item["kind"] != "Pod" || item["spec"]["nodeName"] != node);
    }

    /// Adds a service of type LoadBalancer. Its UID is the one from which [`Self::service_block`] derives handles.
    pub(super) fn service(&mut self, name: &str, spec: Value, annotations: Value, ingress: &[&str]) {
        let ingress: Vec<Value> = ingress
            .iter()
            .map(|address| json!({"ip": address, "ipMode": "VIP"}))
            .collect();
        let mut whole = json!({"type": "LoadBalancer", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]});
        whole
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        let Service {
            namespace, name, uid, ..
        } = service(name);
        self.add(json!({"kind": "Service", "apiVersion": "v1", "spec": whole,
            "status": {"loadBalancer": {"ingress": ingress}},
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "annotations": annotations,
                "creationTimestamp": CREATED}}));
    }

    /// Adds a block of the controller for services. The services have its first addresses.
    pub(super) fn service_block(&mut self, cidr: &str, services: &[&str]) {
        let record = |name: &&str| {
            let service = service(name);
            json!({"handle_id": service.handle(), "secondary": {"namespace": service.namespace,
                "service": service.name, "type": "LoadBalancer", "timestamp": "2026-05-20 10:12:00 +0000 UTC"}})
        };
        let mut block = values::block(cidr, "virtual:load-balancer", services.iter().map(record));
        (block["deleted"], block["strictAffinity"]) = (false.into(), false.into());
        let name = cidr.replace([':', '.', '/'], "-");
        self.object("IPAMBlock", &name, block);
        self.affinity(AffinityType::Virtual, "load-balancer", cidr);
    }

    /// Adds the configuration of kube-controllers, with these controllers besides `node`.
    pub(super) fn controllers(&mut self, more: Value) {
        let mut controllers = json!({"node": {"leakGracePeriod": "15m0s"}});
        controllers
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.object(
            "KubeControllersConfiguration",
            "default",
            json!({ "controllers": controllers }),
        );
    }

    /// Sets the version of Calico.
    pub(super) fn version(&mut self, version: &str) {
        let information = self
            .items
            .iter_mut()
            .find(|item| item["kind"] == "ClusterInformation")
            .unwrap();
        information["spec"]["calicoVersion"] = version.into();
    }

    /// Adds a block of a node. Pods use its first `taken` addresses.
    pub(super) fn block(&mut self, cidr: &str, node: &str, taken: usize) {
        let net: calipam_model::IpNet = cidr.parse().unwrap();
        let name = cidr.replace([':', '.', '/'], "-");
        let record = |at: usize| {
            let id = format!("{:0>64}", format!("{:x}{at:x}", name.len()));
            json!({"handle_id": format!("k8s-pod-network.{id}{name}"),
                "secondary": {"namespace": "apps", "node": node, "pod": format!("{name}-{at}"), "timestamp": "2026-05-20 10:12:00 +0000 UTC"}})
        };
        let mut block = values::block(cidr, format!("host:{node}"), (0..taken).map(record));
        (block["deleted"], block["strictAffinity"]) = (false.into(), false.into());
        self.object("IPAMBlock", &name, block);
        self.affinity(AffinityType::Host, node, cidr);
        for at in 0..taken {
            let address = calipam_model::cidr::address_at(net, at as u32).to_string();
            self.pod(
                &format!("apps/{name}-{at}"),
                node,
                json!({}),
                CREATED,
                Some(&address),
            );
        }
    }

    /// Adds a block of a node, with the ordinal, pod and container of each record.
    pub(super) fn owned_block(&mut self, cidr: &str, node: &str, records: &[(usize, &str, &str)]) {
        let record = |(ordinal, pod, container): &(usize, &str, &str)| {
            let (namespace, pod) = pod.split_once('/').unwrap();
            let owner = json!({"namespace": namespace, "node": node, "pod": pod,
                "timestamp": "2026-05-20 10:12:00 +0000 UTC"});
            (
                *ordinal,
                json!({"handle_id": format!("k8s-pod-network.{container}"), "secondary": owner}),
            )
        };
        let mut block = values::block(
            cidr,
            format!("host:{node}"),
            values::sparse(records.iter().map(record)),
        );
        (block["deleted"], block["strictAffinity"]) = (false.into(), false.into());
        self.object("IPAMBlock", &cidr.replace([':', '.', '/'], "-"), block);
        self.affinity(AffinityType::Host, node, cidr);
    }

    /// Adds a confirmed affinity, with the labels by which Calico finds it.
    fn affinity(&mut self, kind: AffinityType, node: &str, cidr: &str) {
        let spec = json!({"state": "confirmed", "node": node, "cidr": cidr, "deleted": "false",
            "type": kind.to_string()});
        let name = format!("{node}-{}", cidr.replace([':', '.', '/'], "-"));
        self.object("BlockAffinity", &name, spec);
        let key = AffinityKey {
            kind,
            node: node.to_owned(),
            cidr: cidr.parse().unwrap(),
        };
        let labels: BTreeMap<&str, String> = key.labels().into_iter().collect();
        self.items.last_mut().unwrap()["metadata"]["labels"] = json!(labels);
    }

    /// Adds a block of a node, with all addresses in cooldown.
    pub(super) fn cooling_block(&mut self, cidr: &str, node: &str, released: &str) {
        self.block(cidr, node, 0);
        let block = self
            .items
            .iter_mut()
            .rev()
            .find(|item| item["kind"] == "IPAMBlock")
            .unwrap();
        let size = block["spec"]["unallocated"]
            .as_array_mut()
            .map(std::mem::take)
            .unwrap()
            .len();
        block["spec"]["allocations"] = vec![json!(0); size].into();
        block["spec"]["attributes"] = json!([{"releasedAt": released}]);
    }

    pub(super) fn path(&self) -> PathBuf {
        let path = self.folder.path().join("cluster.json");
        let list = json!({"kind": "List", "apiVersion": "v1", "items": self.items});
        std::fs::write(&path, list.to_string()).unwrap();
        path
    }

    pub(super) fn run(&self, line: &str) -> Run {
        calipam(&format!("{line} --datastore {}", self.path().display()))
    }

    pub(super) fn findings(&self) -> Vec<String> {
        findings(|line| self.run(line))
    }

    pub(super) fn answer(&self, about: &str) -> (i32, String) {
        answer(about, |line| self.run(line))
    }

    /// Replaces all objects of an API server, and also writes Calico's objects to etcd.
    pub(super) fn write_to(&self, server: &KubeApiserver) {
        let mut of_kubernetes: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for (number, item) in self.items.iter().enumerate() {
            let mut item = item.clone();
            if item["metadata"]["uid"].is_null() {
                item["metadata"]["uid"] = format!("{number:08}-0000-4000-8000-000000000000").into();
            }
            of_kubernetes
                .entry(registry(item["kind"].as_str().unwrap()))
                .or_default()
                .push(item);
        }
        let of_etcd: Vec<(String, String)> = self.items.iter().filter_map(etcd_entry).collect();
        server
            .etcd()
            .with_client(async |mut client| {
                // The server needs its own namespaces, so they are kept.
                for prefix in REGISTRIES[1..]
                    .iter()
                    .map(|(_, prefix)| *prefix)
                    .chain(["/calico/"])
                {
                    client
                        .delete(prefix, Some(DeleteOptions::new().with_prefix()))
                        .await?;
                }
                for (key, value) in of_etcd {
                    client.put(key, value, None).await?;
                }
                Ok(())
            })
            .unwrap();
        for (prefix, objects) in of_kubernetes {
            create_in_etcd(server, prefix, &objects).unwrap();
        }
    }
}

/// The kinds, each with the prefix of its objects in the etcd of an API server.
const REGISTRIES: [(&str, &str); 10] = [
    ("Namespace", "/registry/namespaces/"),
    ("Pod", "/registry/pods/"),
    ("Node", "/registry/minions/"),
    ("Service", "/registry/services/specs/"),
    (
        "KubeControllersConfiguration",
        "/registry/crd.projectcalico.org/kubecontrollersconfigurations/",
    ),
    ("IPPool", "/registry/crd.projectcalico.org/ippools/"),
    ("IPAMBlock", "/registry/crd.projectcalico.org/ipamblocks/"),
    (
        "BlockAffinity",
        "/registry/crd.projectcalico.org/blockaffinities/",
    ),
    ("IPAMConfig", "/registry/crd.projectcalico.org/ipamconfigs/"),
    (
        "ClusterInformation",
        "/registry/crd.projectcalico.org/clusterinformations/",
    ),
];

fn registry(kind: &str) -> &'static str {
    REGISTRIES.iter().find(|(of, _)| *of == kind).unwrap().1
}

/// Returns the key and the value of an object in Calico's etcd format, or `None` for pods.
fn etcd_entry(item: &Value) -> Option<(String, String)> {
    let (spec, metadata) = (&item["spec"], &item["metadata"]);
    let name = metadata["name"].as_str().unwrap();
    let cidr = || spec["cidr"].as_str().unwrap().parse().unwrap();
    let resource = |plural: &str, spec: &Value| {
        let value = json!({"kind": item["kind"], "apiVersion": "projectcalico.org/v3", "metadata": metadata, "spec": spec});
        (key::resource(plural, name), value)
    };
    let (key, value) = match item["kind"].as_str().unwrap() {
        "IPPool" => resource("ippools", spec),
        "ClusterInformation" => resource("clusterinformations", spec),
        "KubeControllersConfiguration" => resource("kubecontrollersconfigurations", spec),
        "Node" => resource(
            "nodes",
            &json!({"orchRefs": [{"nodeName": name, "orchestrator": "k8s"}]}),
        ),
        "IPAMBlock" => (key::block(cidr()), spec.clone()),
        "BlockAffinity" => {
            let node = spec["node"].as_str().unwrap();
            let kind = spec["type"].as_str().unwrap();
            (
                key::affinity(kind, node, cidr()),
                json!({"state": "confirmed", "deleted": false}),
            )
        }
        "IPAMConfig" => {
            let mut config = spec.clone();
            for (old, new) in [
                ("strictAffinity", "strict_affinity"),
                ("autoAllocateBlocks", "auto_allocate_blocks"),
            ] {
                config[new] = config.as_object_mut().unwrap().remove(old).unwrap();
            }
            (key::IPAM_CONFIG.to_owned(), config)
        }
        _ => return None,
    };
    Some((key, value.to_string()))
}

/// Returns a service with its name and UID, from which its handle follows.
fn service(name: &str) -> Service {
    let (namespace, name) = name.split_once('/').unwrap();
    let sum = name.bytes().fold(7_u64, |sum, byte| {
        (sum * 31 + u64::from(byte)) % 1_000_000_000_000
    });
    let uid = format!("11111111-2222-4333-8444-{sum:012}");
    Service {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid,
        ..Service::default()
    }
}

/// Lists the findings about missing addresses as `severity code subject`.
pub(super) fn findings(run: impl Fn(&str) -> Run) -> Vec<String> {
    let rules = "node-without-addresses,pod-without-address,pool-nearly-full";
    let report = run(&format!("check --rule {rules} -o json --settle 0")).json();
    program::findings(&report, &["severity", "code", "name"])
}

/// Returns the exit code and first line of an explanation.
pub(super) fn answer(about: &str, run: impl Fn(&str) -> Run) -> (i32, String) {
    let run = run(&format!("explain {about}"));
    (run.code, run.stdout.lines().next().unwrap_or_default().to_owned())
}

pub(super) fn pool(cidr: &str, more: Value) -> Value {
    let mut spec = json!({"cidr": cidr, "blockSize": if cidr.contains(':') { 122 } else { 26 }, "nodeSelector": "all()",
        "allowedUses": ["Workload", "Tunnel"], "assignmentMode": "Automatic", "vxlanMode": "Always", "ipipMode": "Never"});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    spec
}
