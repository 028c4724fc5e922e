//! Uses the Kubernetes API for a migration. Reads pods with their controllers, disruption budgets, and annotations that
//! tie pods to a pool; evicts pods, and live-migrates virtual machines.

mod objects;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use calipam_files::objects::Accept;
use jiff::SignedDuration;
use kube::core::{Selector, SelectorExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use self::objects::{DisruptionBudget, requests};
use crate::error::{Failure, Result};
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds::segment;
use crate::kubernetes::client::object::{List, Object, Pod};

/// Number of objects on one page of a list.
const PAGE: usize = 500;
const MIGRATIONS: &str = "virtualmachineinstancemigrations";

/// The controller that replaces a pod after the pod is deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Controller {
    /// `Deployment`, `StatefulSet` and so on; `Node` for static pods.
    pub kind: String,
    pub name: String,
}

/// The data of a pod that a migration needs.
#[derive(Clone, Debug, Default)]
pub struct WorkloadPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The name of the pod's node; empty until the pod is scheduled.
    pub node: String,
    /// `None` if nothing replaces the pod.
    pub controller: Option<Controller>,
    pub labels: BTreeMap<String, String>,
    pub requests: Vec<AddressRequest>,
    /// The addresses that Calico's plugin has recorded in annotations, or else those in the pod's status.
    pub addresses: Vec<IpAddr>,
    /// True if the condition `Ready` is true, and the pod is not being deleted.
    pub ready: bool,
    /// Time from the pod's creation until it last became ready.
    pub ready_after: Option<SignedDuration>,
    pub finished: bool,
    pub host_network: bool,
}

/// An annotation that requests pools or addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRequest {
    pub annotation: &'static str,
    pub value: String,
}

/// A namespace whose annotations request pools.
#[derive(Clone, Debug)]
pub struct RequestingNamespace {
    pub name: String,
    pub requests: Vec<AddressRequest>,
}

#[derive(Clone, Debug)]
pub struct Budget {
    pub namespace: String,
    pub name: String,
    /// Number of pods that may be evicted now.
    pub allowed: i64,
    selector: Option<Selector>,
}

impl Budget {
    /// True if the budget covers the pod. A budget without a selector, or with an invalid one, covers none.
    pub fn covers(&self, pod: &WorkloadPod) -> bool {
        match &self.selector {
            Some(selector) => self.namespace == pod.namespace && selector.matches(&pod.labels),
            None => false,
        }
    }
}

/// The result of a request to evict a pod or to live-migrate its virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicted {
    Yes,
    /// The pod no longer exists, or another pod now has its name.
    Gone,
    /// Rejected for now (429), because a disruption budget does not allow it, or because the API server is overloaded.
    NotNow,
    /// KubeVirt refuses to migrate the virtual machine, for this reason.
    Refused(String),
}

/// The part of the Kubernetes API that a migration needs.
#[derive(Clone, Debug)]
pub struct Workloads {
    pub(crate) client: Arc<KubeClient>,
}

impl Workloads {
    /// Lists all pods.
    ///
    /// # Errors
    /// If the server fails or rejects the request, as for all queries.
    pub async fn pods(&self) -> Result<Vec<WorkloadPod>> {
        let pods: Vec<Pod> = self.list("/api/v1/pods", "pods").await?;
        Ok(pods.into_iter().map(WorkloadPod::from).collect())
    }

    /// Lists the namespaces that request pools for their pods.
    pub async fn namespaces(&self) -> Result<Vec<RequestingNamespace>> {
        let namespaces: Vec<Object> = self.list("/api/v1/namespaces", "namespaces").await?;
        let mut requesting = Vec::new();
        for Object { metadata, .. } in namespaces {
            let requests = requests(&metadata.annotations);
            if !requests.is_empty() {
                requesting.push(RequestingNamespace {
                    name: metadata.name,
                    requests,
                });
            }
        }
        Ok(requesting)
    }

    pub async fn budgets(&self) -> Result<Vec<Budget>> {
        let path = "/apis/policy/v1/poddisruptionbudgets";
        let budgets: Vec<DisruptionBudget> = self.list(path, "poddisruptionbudgets").await?;
        Ok(budgets.into_iter().map(Budget::from).collect())
    }

    /// Evicts this pod, but not a newer pod with the same name, if the disruption budgets allow it.
    pub async fn evict(&self, pod: &WorkloadPod) -> Result<Evicted> {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/eviction",
            segment(&pod.namespace),
            segment(&pod.name)
        );
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"namespace": pod.namespace, "name": pod.name},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        });
        match self.client.post_once(&path, &eviction).await {
            Ok(_) => Ok(Evicted::Yes),
            Err(Failure::NotFound | Failure::Conflict(_)) => Ok(Evicted::Gone),
            Err(Failure::TooManyRequests) => Ok(Evicted::NotNow),
            Err(failure) => Err(self.client.write_error("pods/eviction", failure)),
        }
    }

    /// Requests a live migration of the virtual machine in a pod: KubeVirt starts another pod, moves the machine to it,
    /// and ends this one.
    pub async fn live_migrate(&self, pod: &WorkloadPod, machine: &str) -> Result<Evicted> {
        let namespace = segment(&pod.namespace);
        let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/{MIGRATIONS}");
        let migration = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"namespace": pod.namespace, "generateName": "calipam-"},
            "spec": {"vmiName": machine},
        });
        match self.client.post_once(&path, &migration).await {
            Ok(_) => Ok(Evicted::Yes),
            Err(Failure::TooManyRequests) => Ok(Evicted::NotNow),
            // KubeVirt's webhook rejects a machine that cannot be migrated, or is already being migrated.
            Err(Failure::Refused { message, .. } | Failure::Conflict(message)) => {
                Ok(Evicted::Refused(message))
            }
            Err(failure) => Err(self.client.write_error(MIGRATIONS, failure)),
        }
    }

    /// Reads all items of a list, page by page.
    async fn list<T: DeserializeOwned>(&self, path: &str, what: &str) -> Result<Vec<T>> {
        let mut items = Vec::new();
        let mut page_token = String::new();
        loop {
            let page_path = format!("{path}?limit={PAGE}&continue={}", segment(&page_token));
            let page: Option<List<T>> = self.client.get_json(&page_path, Accept::Json, what).await?;
            let Some(page) = page else {
                return Err(self.client.error(what, Failure::NotFound));
            };
            items.extend(page.items);
            page_token = page.metadata.next;
            if page_token.is_empty() {
                return Ok(items);
            }
        }
    }
}
