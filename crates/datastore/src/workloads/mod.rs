//! Questions of a migration to Kubernetes: who brings a pod back that goes, which budgets limit that, and which annotations tie pods to a
//! pool; the eviction of a pod, and the live migration of a virtual machine.

mod objects;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use calipam_files::objects::Accept;
use jiff::SignedDuration;
use serde::de::DeserializeOwned;
use serde_json::json;

use self::objects::{DisruptionBudget, LabelSelector, List, Object, Pod, asks};
use crate::client::kubernetes::KubeClient;
use crate::client::kubernetes::kinds::segment;
use crate::error::{Failure, Result};
use crate::store::Datastore;

/// Objects of one page of a list.
const PAGE: usize = 500;
const MIGRATIONS: &str = "virtualmachineinstancemigrations";
/// The annotations of Calico's CNI plugin by which a pod or namespace asks for pools, and a pod for addresses.
const ASKING: [&str; 4] = [
    "cni.projectcalico.org/ipv4pools",
    "cni.projectcalico.org/ipv6pools",
    "cni.projectcalico.org/ipAddrs",
    "cni.projectcalico.org/ipAddrsNoIpam",
];

/// What brings a pod back that goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Controller {
    /// `Deployment`, `StatefulSet` and so on; `Node` for static pods.
    pub kind: String,
    pub name: String,
}

/// What a migration asks about a pod.
#[derive(Clone, Debug, Default)]
pub struct WorkloadPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Empty while it is not scheduled.
    pub node: String,
    /// `None`: nothing brings it back.
    pub controller: Option<Controller>,
    pub labels: BTreeMap<String, String>,
    pub asks: Vec<Asks>,
    /// Those that Calico's plugin notes, else those of the status.
    pub addresses: Vec<IpAddr>,
    /// Its condition `Ready` is true, and no one has deleted it.
    pub ready: bool,
    /// From its creation until it was last ready.
    pub ready_after: Option<SignedDuration>,
    pub finished: bool,
    pub host_network: bool,
}

/// An annotation by which something asks for pools or addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asks {
    pub annotation: &'static str,
    pub value: String,
}

/// A namespace whose annotations ask for pools.
#[derive(Clone, Debug)]
pub struct AskingNamespace {
    pub name: String,
    pub asks: Vec<Asks>,
}

/// A disruption budget.
#[derive(Clone, Debug)]
pub struct Budget {
    pub namespace: String,
    pub name: String,
    /// How many pods may be evicted now.
    pub allowed: i64,
    selector: Option<LabelSelector>,
}

impl Budget {
    /// True if it counts the pod. One without a selector counts none.
    pub fn covers(&self, pod: &WorkloadPod) -> bool {
        self.namespace == pod.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
    }
}

/// What came of asking for the eviction of a pod, or the live migration of its virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicted {
    Yes,
    /// It is not there any more, or another pod of its name is.
    Gone,
    /// A disruption budget does not allow it now (429).
    NotNow,
    /// KubeVirt does not migrate the machine, for this reason.
    Refused(String),
}

/// Kubernetes, as a migration asks it.
#[derive(Clone, Debug)]
pub struct Workloads {
    client: Arc<KubeClient>,
}

impl Datastore {
    /// The Kubernetes of the cluster; `None` if none is named, or the data is a file.
    pub fn workloads(&self) -> Option<Workloads> {
        Some(Workloads { client: Arc::clone(self.kubernetes()?) })
    }
}

impl Workloads {
    /// All pods.
    ///
    /// # Errors
    /// If the server fails or refuses. So it is for all questions.
    pub async fn pods(&self) -> Result<Vec<WorkloadPod>> {
        let pods: Vec<Pod> = self.list("/api/v1/pods", "pods").await?;
        Ok(pods.into_iter().map(WorkloadPod::from).collect())
    }

    /// The namespaces that ask for pools for their pods.
    pub async fn namespaces(&self) -> Result<Vec<AskingNamespace>> {
        let namespaces: Vec<Object> = self.list("/api/v1/namespaces", "namespaces").await?;
        let asking = |Object { metadata }| {
            let asks = asks(&metadata.annotations);
            (!asks.is_empty()).then_some(AskingNamespace { name: metadata.name, asks })
        };
        Ok(namespaces.into_iter().filter_map(asking).collect())
    }

    pub async fn budgets(&self) -> Result<Vec<Budget>> {
        let path = "/apis/policy/v1/poddisruptionbudgets";
        let budgets: Vec<DisruptionBudget> = self.list(path, "poddisruptionbudgets").await?;
        let budget = |DisruptionBudget { metadata, spec, status }| Budget {
            namespace: metadata.namespace,
            name: metadata.name,
            allowed: status.disruptions_allowed,
            selector: spec.selector,
        };
        Ok(budgets.into_iter().map(budget).collect())
    }

    /// Asks Kubernetes to evict this very pod. Budgets are respected: it is Kubernetes that decides.
    pub async fn evict(&self, pod: &WorkloadPod) -> Result<Evicted> {
        let path =
            format!("/api/v1/namespaces/{}/pods/{}/eviction", segment(&pod.namespace), segment(&pod.name));
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"namespace": pod.namespace, "name": pod.name},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        });
        match self.client.post_once(&path, eviction.to_string().into_bytes()).await {
            Ok(_) => Ok(Evicted::Yes),
            Err(Failure::NotFound | Failure::Conflict(_)) => Ok(Evicted::Gone),
            Err(Failure::TooManyRequests) => Ok(Evicted::NotNow),
            Err(failure) => Err(self.client.write_error("pods/eviction", failure)),
        }
    }

    /// Asks KubeVirt for a live migration of the virtual machine of a pod, whose controller is a VirtualMachineInstance. It starts another
    /// pod, hands the machine over to it, and ends this one.
    pub async fn live_migrate(&self, pod: &WorkloadPod, machine: &str) -> Result<Evicted> {
        let namespace = segment(&pod.namespace);
        let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/{MIGRATIONS}");
        let migration = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"namespace": pod.namespace, "generateName": "calipam-"},
            "spec": {"vmiName": machine},
        });
        match self.client.post_once(&path, migration.to_string().into_bytes()).await {
            Ok(_) => Ok(Evicted::Yes),
            Err(Failure::TooManyRequests) => Ok(Evicted::NotNow),
            // KubeVirt's webhook: the machine cannot be migrated, or is being migrated.
            Err(Failure::Refused { message, .. } | Failure::Conflict(message)) => {
                Ok(Evicted::Refused(message))
            }
            Err(failure) => Err(self.client.write_error(MIGRATIONS, failure)),
        }
    }

    async fn list<T: DeserializeOwned>(&self, path: &str, what: &str) -> Result<Vec<T>> {
        let mut items = Vec::new();
        let mut next = String::new();
        loop {
            let page = format!("{path}?limit={PAGE}&continue={}", segment(&next));
            let list: Option<List<T>> = self.client.get_json(&page, Accept::Json, what).await?;
            let list = list.ok_or_else(|| self.client.error(what, Failure::NotFound))?;
            items.extend(list.items.unwrap_or_default());
            next = list.metadata.next;
            if next.is_empty() {
                return Ok(items);
            }
        }
    }
}
