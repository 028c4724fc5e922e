//! The CNI plugin's requests to Kubernetes: a namespace's labels, a pod's virtual machine, data for the migration from
//! host-local, and the annotation of the installed plugin. Each query is a single request, without discovery.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calipam_files::objects::{Accept, IPIP, KUBEVIRT_GROUP};
use calipam_model::cidr::parse_go_address;
use calipam_model::plugin::INSTALLED;
use http::Method;
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Failure, Result};
use crate::kubernetes::client::kinds::{UNRESERVED, segment};
use crate::kubernetes::client::object::{List, Metadata, Object, Owner, Pod};
use crate::kubernetes::client::{Answer, KubeClient};

/// The version of KubeVirt's API that Calico uses.
const KUBEVIRT_VERSION: &str = "v1";
/// The label of a pod to which a machine is being migrated.
const MIGRATION: &str = "kubevirt.io/migrationJobUID";

/// The pod that runs an instance of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherPod {
    pub instance_name: String,
    /// The UID of the instance, according to the pod.
    pub instance_uid: String,
    /// The UID of the live migration to this pod, if there is one.
    pub migration: Option<String>,
}

/// The result of [`KubeClient::launcher`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LauncherLookup {
    /// There is no such pod.
    NoPod,
    /// The pod runs no virtual machine instance.
    OtherPod,
    Launcher(LauncherPod),
}

/// A virtual machine, or a running instance of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualMachine {
    pub uid: String,
    pub is_being_deleted: bool,
    /// The virtual machine that an instance belongs to.
    pub machine: Option<String>,
}

/// A node's data for the migration from host-local.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddresses {
    pub pod_cidr: String,
    /// The address of the IPIP tunnel, if one is set.
    pub tunnel: Option<String>,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAddress {
    pub namespace: String,
    pub name: String,
    pub address: IpAddr,
}

impl KubeClient {
    /// The labels of a namespace; `None` if there is no such namespace.
    ///
    /// # Errors
    /// If the server fails, rejects the request, or does not answer in time, as for all queries.
    pub async fn namespace_labels(&self, name: &str) -> Result<Option<BTreeMap<String, String>>> {
        let path = format!("/api/v1/namespaces/{}", segment(name));
        let namespace: Option<Object> = self.get_json(&path, Accept::Json, "namespaces").await?;
        Ok(namespace.map(|namespace| namespace.metadata.labels))
    }

    /// Finds the virtual machine instance that a pod runs.
    pub async fn launcher(&self, namespace: &str, pod: &str) -> Result<LauncherLookup> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", segment(namespace), segment(pod));
        let Some(pod) = self.get_json::<Object>(&path, Accept::Json, "pods").await? else {
            return Ok(LauncherLookup::NoPod);
        };
        match launcher_pod(pod.metadata) {
            Some(launcher) => Ok(LauncherLookup::Launcher(launcher)),
            None => Ok(LauncherLookup::OtherPod),
        }
    }

    /// The instance of a virtual machine; `None` if there is none.
    pub async fn instance(&self, namespace: &str, name: &str) -> Result<Option<VirtualMachine>> {
        self.kubevirt(namespace, "virtualmachineinstances", name).await
    }

    /// A virtual machine; `None` if there is none.
    pub async fn machine(&self, namespace: &str, name: &str) -> Result<Option<VirtualMachine>> {
        self.kubevirt(namespace, "virtualmachines", name).await
    }

    /// Reads an object of KubeVirt, with the virtual machine that owns it.
    async fn kubevirt(&self, namespace: &str, plural: &str, name: &str) -> Result<Option<VirtualMachine>> {
        let namespace = segment(namespace);
        let name = segment(name);
        let path =
            format!("/apis/{KUBEVIRT_GROUP}/{KUBEVIRT_VERSION}/namespaces/{namespace}/{plural}/{name}");
        let object: Option<Object> = self.get_json(&path, Accept::Json, plural).await?;
        let Some(Object { metadata, .. }) = object else {
            return Ok(None);
        };

        let owner = metadata
            .owner_references
            .into_iter()
            .find(|owner| is_kubevirt(owner, "VirtualMachine"));
        let machine = owner.map(|owner| owner.name).filter(|name| !name.is_empty());
        Ok(Some(VirtualMachine {
            uid: metadata.uid,
            is_being_deleted: metadata.deletion_timestamp.is_some(),
            machine,
        }))
    }

    /// The addresses of a node; `None` if there is no such node.
    pub async fn node_addresses(&self, name: &str) -> Result<Option<NodeAddresses>> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Spec {
            #[serde(rename = "podCIDR")]
            pod_cidr: String,
        }
        let path = format!("/api/v1/nodes/{}", segment(name));
        let node: Option<Object<Spec>> = self.get_json(&path, Accept::Json, "nodes").await?;
        let Some(Object {
            mut metadata, spec, ..
        }) = node
        else {
            return Ok(None);
        };
        let tunnel = metadata.annotations.remove(IPIP);
        Ok(Some(NodeAddresses {
            pod_cidr: spec.pod_cidr,
            tunnel: tunnel.filter(|text| !text.is_empty()),
            version: metadata.resource_version,
        }))
    }

    /// Writes the IPIP tunnel address to a node that has not changed since it was read; returns false if it has. The
    /// patch goes to the node's status, the only part that Calico may patch; a patch of the status can set annotations.
    pub async fn set_tunnel_address(
        &self,
        name: &str,
        read: &NodeAddresses,
        address: IpAddr,
    ) -> Result<bool> {
        let change = json!({
            "metadata": {"resourceVersion": read.version, "annotations": {IPIP: address.to_string()}},
        });
        let path = format!("/api/v1/nodes/{}/status", segment(name));
        let written = self.write(Method::PATCH, &path, &change).await;
        self.unless_conflict(written, "nodes")
    }

    /// Records in a node's annotation which plugin assigns the node's addresses. `None` removes the annotation. Other
    /// changes to the node are neither checked nor overwritten.
    pub async fn note_plugin(&self, node: &str, plugin: Option<&str>) -> Result<()> {
        let change = json!({"metadata": {"annotations": {INSTALLED: plugin}}});
        let path = format!("/api/v1/nodes/{}", segment(node));
        match self.write(Method::PATCH, &path, &change).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.write_error("nodes", failure)),
        }
    }

    /// The addresses of a node's pods in both families.
    pub async fn pods_on(&self, node: &str) -> Result<Vec<PodAddress>> {
        let selector = format!("spec.nodeName={node}");
        let selector = utf8_percent_encode(&selector, UNRESERVED);
        let path = format!("/api/v1/pods?fieldSelector={selector}");
        let pods: Option<List<Pod>> = self.get_json(&path, Accept::Json, "pods").await?;

        let mut addresses = Vec::new();
        for pod in pods.iter().flat_map(|list| &list.items) {
            addresses.extend(pod_addresses(pod));
        }
        Ok(addresses)
    }

    /// Locks or unlocks the datastore for the plugins of all nodes, with the field `datastoreReady` of the cluster
    /// information. Returns false if the cluster information changed at the same time.
    pub async fn set_datastore_ready(&self, ready: bool) -> Result<bool> {
        const WHAT: &str = "clusterinformations";
        let path = format!("{}/default", self.api().calico_path(WHAT));
        let Some(mut object) = self.get_json::<Value>(&path, Accept::Json, WHAT).await? else {
            return Err(self.error(WHAT, Failure::NotFound));
        };
        let field = &mut object["spec"]["datastoreReady"];
        if *field == ready {
            return Ok(true);
        }
        *field = ready.into();
        let written = self.write(Method::PUT, &path, &object).await;
        self.unless_conflict(written, WHAT)
    }

    /// Converts the result of a write: false if the object has changed since it was read.
    fn unless_conflict(&self, written: Result<Answer, Failure>, what: &str) -> Result<bool> {
        match written {
            Ok(_) => Ok(true),
            Err(Failure::Conflict(_)) => Ok(false),
            Err(failure) => Err(self.write_error(what, failure)),
        }
    }
}

/// Returns the instance that a pod with this metadata runs; `None` if it runs none.
fn launcher_pod(metadata: Metadata) -> Option<LauncherPod> {
    let instance = metadata
        .owner_references
        .into_iter()
        .find(|owner| is_kubevirt(owner, "VirtualMachineInstance") && owner.controller)?;
    let migration = metadata.labels.get(MIGRATION).filter(|uid| !uid.is_empty());
    Some(LauncherPod {
        instance_name: instance.name,
        instance_uid: instance.uid,
        migration: migration.cloned(),
    })
}

/// Returns the addresses in a pod's status, without those that cannot be parsed.
fn pod_addresses(pod: &Pod) -> Vec<PodAddress> {
    let mut addresses: BTreeSet<IpAddr> = BTreeSet::new();
    for listed in &pod.status.addresses {
        addresses.extend(parse_go_address(&listed.ip));
    }
    addresses.extend(parse_go_address(&pod.status.address));

    let mut pod_addresses = Vec::new();
    for address in addresses {
        pod_addresses.push(PodAddress {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            address,
        });
    }
    pod_addresses
}

fn is_kubevirt(owner: &Owner, kind: &str) -> bool {
    owner.kind == kind && owner.api_version == format!("{KUBEVIRT_GROUP}/{KUBEVIRT_VERSION}")
}
