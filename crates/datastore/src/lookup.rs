//! The CNI plugin's queries to Kubernetes: a namespace's labels, a pod's machine, and data for the migration from
//! host-local. A query is one request, without discovery.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use calipam_files::objects::{Accept, KUBEVIRT_GROUP};
use calipam_model::plugin::INSTALLED;
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::client::kubernetes::KubeClient;
use crate::client::kubernetes::kinds::{UNRESERVED, segment};
use crate::error::{Failure, Result};
use crate::settings::KubernetesSettings;

/// The version of KubeVirt's API that Calico uses.
const KUBEVIRT_VERSION: &str = "v1";
/// The label of a pod to which a machine is being migrated.
const MIGRATION: &str = "kubevirt.io/migrationJobUID";
/// The annotation in which Calico keeps a node's IPIP tunnel address.
const TUNNEL: &str = "projectcalico.org/IPv4IPIPTunnelAddr";
/// A connection to an API server for single queries.
#[derive(Clone, Debug)]
pub struct Lookup {
    client: Arc<KubeClient>,
}

/// The needed part of `metadata`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
}

/// The pod that runs an instance of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherPod {
    pub instance_name: String,
    /// The UID of the instance, according to the pod.
    pub instance_uid: String,
    /// The UID of the live migration to this pod, if there is one.
    pub migration: Option<String>,
}

/// The running instance of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub uid: String,
    pub is_being_deleted: bool,
    pub machine: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualMachine {
    pub uid: String,
    pub is_being_deleted: bool,
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

impl Lookup {
    pub async fn connect(settings: &KubernetesSettings) -> Result<Self> {
        Ok(Self { client: KubeClient::connect_unasked(settings).await? })
    }

    /// Uses an existing connection.
    pub fn through(client: Arc<KubeClient>) -> Self {
        Self { client }
    }

    /// The labels of a namespace; `None` if there is no such namespace.
    ///
    /// # Errors
    /// If the server fails, rejects the request, or does not answer in time, as for all queries.
    pub async fn namespace_labels(&self, name: &str) -> Result<Option<BTreeMap<String, String>>> {
        let found: Option<Object> =
            self.get(&format!("/api/v1/namespaces/{}", segment(name)), "namespaces").await?;
        Ok(found.map(|namespace| namespace.metadata.labels.unwrap_or_default()))
    }

    /// The instance that a pod runs. The outer `None` means that there is no such pod; the inner one that it runs none.
    pub async fn launcher(&self, namespace: &str, pod: &str) -> Result<Option<Option<LauncherPod>>> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", segment(namespace), segment(pod));
        let Some(found) = self.get::<Object>(&path, "pods").await? else { return Ok(None) };
        let labels = found.metadata.labels.unwrap_or_default();
        let migration = labels.get(MIGRATION).filter(|uid| !uid.is_empty()).cloned();
        let owners = found.metadata.owner_references.unwrap_or_default();
        let instance = owners
            .into_iter()
            .find(|owner| is_kubevirt(owner, "VirtualMachineInstance") && owner.controller == Some(true));
        Ok(Some(instance.map(|owner| LauncherPod {
            instance_name: owner.name,
            instance_uid: owner.uid,
            migration,
        })))
    }

    /// The instance of a virtual machine; `None` if there is none.
    pub async fn instance(&self, namespace: &str, name: &str) -> Result<Option<Instance>> {
        let found: Option<Object> = self
            .get(&kubevirt_path(namespace, "virtualmachineinstances", name), "virtualmachineinstances")
            .await?;
        Ok(found.map(|Object { metadata }| {
            let owners = metadata.owner_references.unwrap_or_default();
            let machine = owners.into_iter().find(|owner| is_kubevirt(owner, "VirtualMachine"));
            Instance {
                uid: metadata.uid,
                is_being_deleted: metadata.deletion_timestamp.is_some(),
                machine: machine.map(|owner| owner.name).filter(|name| !name.is_empty()),
            }
        }))
    }

    /// A virtual machine; `None` if there is none.
    pub async fn machine(&self, namespace: &str, name: &str) -> Result<Option<VirtualMachine>> {
        let found: Option<Object> =
            self.get(&kubevirt_path(namespace, "virtualmachines", name), "virtualmachines").await?;
        Ok(found.map(|Object { metadata }| VirtualMachine {
            uid: metadata.uid,
            is_being_deleted: metadata.deletion_timestamp.is_some(),
        }))
    }

    /// The addresses of a node; `None` if there is no such node.
    pub async fn node_addresses(&self, name: &str) -> Result<Option<NodeAddresses>> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Node {
            metadata: Metadata,
            spec: Spec,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Spec {
            #[serde(rename = "podCIDR")]
            pod_cidr: String,
        }
        let found: Option<Node> = self.get(&format!("/api/v1/nodes/{}", segment(name)), "nodes").await?;
        Ok(found.map(|node| {
            let tunnel = node.metadata.annotations.and_then(|mut all| all.remove(TUNNEL));
            NodeAddresses {
                pod_cidr: node.spec.pod_cidr,
                tunnel: tunnel.filter(|text| !text.is_empty()),
                version: node.metadata.resource_version,
            }
        }))
    }

    /// Writes the IPIP tunnel address to a node that has not changed since it was read. Patches the status, annotations
    /// included: Calico may patch nothing else in a node. Returns false if the node has changed.
    pub async fn set_tunnel_address(
        &self,
        name: &str,
        read: &NodeAddresses,
        address: IpAddr,
    ) -> Result<bool> {
        let change = json!({
            "metadata": {"resourceVersion": read.version, "annotations": {TUNNEL: address.to_string()}},
        });
        let path = format!("/api/v1/nodes/{}/status", segment(name));
        match self.client.patch(&path, change.to_string().into_bytes()).await {
            Ok(_) => Ok(true),
            Err(Failure::Conflict(_)) => Ok(false),
            Err(failure) => Err(self.client.write_error("nodes", failure)),
        }
    }

    /// Records the plugin that assigns a node's addresses, or with `None` that it is unknown. Writes only this
    /// annotation, whatever else has changed in the node.
    pub async fn note_plugin(&self, node: &str, plugin: Option<&str>) -> Result<()> {
        let change = json!({"metadata": {"annotations": {INSTALLED: plugin}}});
        let path = format!("/api/v1/nodes/{}", segment(node));
        let written = self.client.patch(&path, change.to_string().into_bytes()).await;
        written.map(drop).map_err(|failure| self.client.write_error("nodes", failure))
    }

    /// The addresses of a node's pods in both families.
    pub async fn pods_on(&self, node: &str) -> Result<Vec<PodAddress>> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Pod {
            metadata: Metadata,
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            #[serde(rename = "podIP")]
            first: String,
            #[serde(rename = "podIPs")]
            all: Vec<Address>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Address {
            ip: String,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Pods {
            items: Vec<Pod>,
        }
        let selector = format!("spec.nodeName={node}");
        let selector = utf8_percent_encode(&selector, UNRESERVED);
        let found: Option<Pods> = self.get(&format!("/api/v1/pods?fieldSelector={selector}"), "pods").await?;

        let addresses = |Pod { metadata, status }: Pod| {
            let all = status.all.into_iter().map(|address| address.ip);
            let parsed: BTreeSet<IpAddr> =
                all.chain([status.first]).filter_map(|text| text.parse().ok()).collect();
            parsed.into_iter().map(move |address| PodAddress {
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                address,
            })
        };
        Ok(found.unwrap_or_default().items.into_iter().flat_map(addresses).collect())
    }

    /// Locks or unlocks the datastore for the plugins of all nodes: `datastoreReady` of the cluster information.
    /// Returns false if the cluster information changed at the same time.
    pub async fn set_datastore_ready(&self, ready: bool) -> Result<bool> {
        const WHAT: &str = "clusterinformations";
        let path = format!("{}/default", self.client.api().calico_path(WHAT));
        let missing = || self.client.error(WHAT, Failure::NotFound);
        let mut object: Value = self.get(&path, WHAT).await?.ok_or_else(missing)?;
        if object["spec"]["datastoreReady"] == ready {
            return Ok(true);
        }
        object["spec"]["datastoreReady"] = ready.into();
        match self.client.put(&path, object.to_string().into_bytes()).await {
            Ok(_) => Ok(true),
            Err(Failure::Conflict(_)) => Ok(false),
            Err(failure) => Err(self.client.write_error(WHAT, failure)),
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, what: &str) -> Result<Option<T>> {
        self.client.get_json(path, Accept::Json, what).await
    }
}

fn is_kubevirt(owner: &Owner, kind: &str) -> bool {
    owner.kind == kind && owner.api_version == format!("{KUBEVIRT_GROUP}/{KUBEVIRT_VERSION}")
}

fn kubevirt_path(namespace: &str, plural: &str, name: &str) -> String {
    let (namespace, name) = (segment(namespace), segment(name));
    format!("/apis/{KUBEVIRT_GROUP}/{KUBEVIRT_VERSION}/namespaces/{namespace}/{plural}/{name}")
}
