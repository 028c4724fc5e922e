//! The users of addresses: endpoints in etcd, and pods on an API server, as the kubelet and Calico's CNI plugin change
//! them (facts 2.12).

use std::collections::VecDeque;
use std::net::IpAddr;

use anyhow::{Result, bail};
use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::store::Target;
use crate::cluster::wire::go_json;
use crate::cluster::{ClusterSpec, Holder, endpoint_of};
use crate::servers::{KubeApiserver, Response};

/// Number of finished and evicted pods that each worker keeps; older ones are deleted.
const ENDED_PODS: usize = 20;

/// The way in which a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The pod is deleted, and its sandbox is removed in time.
    Deleted,
    /// The containers have ended; the pod object stays for a while.
    Finished,
    /// The pod is evicted, since its node is short of a resource.
    Evicted,
    /// Only the sandbox ends. The pod continues in another one, with another handle.
    Restarted,
    /// The pod object disappears but the sandbox was not removed, as after a node crash, so the address leaks.
    Lost,
}

/// The users of one worker's addresses. On etcd, the CNI plugin writes endpoints and does not change pods.
pub(super) struct Users<'t> {
    /// The etcd with the endpoints, if it is the datastore.
    etcd: Option<Client>,
    /// The API server. Without one, there are no pods, and requests for them do nothing.
    server: Option<&'t KubeApiserver>,
    /// Paths of pods that have finished or were evicted.
    ended: VecDeque<String>,
    spec: ClusterSpec,
}

fn path_of(holder: &Holder) -> String {
    format!(
        "/api/v1/namespaces/{}/pods/{}",
        holder.name.namespace, holder.name.pod
    )
}

/// True if the kubelet reports the end of a finished pod first, and then removes the sandbox. False for the opposite
/// order.
fn reports_early(holder: &Holder) -> bool {
    holder.container.starts_with(|c: char| c.is_ascii_digit())
}

impl<'t> Users<'t> {
    pub(super) async fn connect(target: Target<'t>, spec: ClusterSpec) -> Result<Self> {
        let (etcd, server) = match target {
            Target::Etcd(etcd) => (Some(etcd.client().await?), None),
            Target::Kubernetes(server, _) => (None, Some(server)),
            Target::EtcdAndKubernetes(etcd, server) => (Some(etcd.client().await?), Some(server)),
        };
        Ok(Self {
            etcd,
            server,
            ended: VecDeque::new(),
            spec,
        })
    }

    /// Creates the pod, already bound to a node.
    pub(super) fn announce(&self, holder: &Holder) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": holder.name.pod, "labels": {"app": holder.name.app}},
            "spec": {"nodeName": holder.node, "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        });
        let path = format!("/api/v1/namespaces/{}/pods", holder.name.namespace);
        self.ask("POST", &path, &pod, &[201])
    }

    /// Publishes the pod's address, as CNI ADD and the kubelet do after the allocation.
    pub(super) async fn publish(&mut self, holder: &Holder, address: IpAddr) -> Result<()> {
        if let Some(etcd) = &mut self.etcd {
            let endpoint = endpoint_of(&self.spec, holder, &[address]);
            let key = holder.endpoint_key();
            let absent = Compare::version(key.as_str(), CompareOp::Equal, 0);
            let creation = Txn::new()
                .when([absent])
                .and_then([TxnOp::put(key, go_json(&endpoint), None)]);
            assert!(
                etcd.txn(creation).await?.succeeded(),
                "no two pods of a test have one name"
            );
        } else {
            self.annotate(holder, Some(address))?;
        }
        let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
        self.set_status(holder, &status)
    }

    /// Withdraws the published address of the pod, before its sandbox is removed and IPAM releases the address.
    pub(super) async fn withdraw(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        match ending {
            Ending::Lost => self.delete(&path_of(holder), 0)?,
            Ending::Deleted => self.delete(&path_of(holder), 30)?,
            Ending::Evicted => self.set_status(holder, &json!({"phase": "Failed", "reason": "Evicted"}))?,
            Ending::Finished if reports_early(holder) => {
                self.set_status(holder, &json!({"phase": "Succeeded"}))?;
            }
            Ending::Finished | Ending::Restarted => {}
        }
        match &mut self.etcd {
            Some(etcd) => Ok(etcd.delete(holder.endpoint_key(), None).await.map(drop)?),
            None if ending == Ending::Lost => Ok(()),
            None => self.annotate(holder, None),
        }
    }

    /// Ends the pod after its address was released. A finished pod keeps its address in its status.
    pub(super) fn clean_up(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        match ending {
            Ending::Deleted | Ending::Lost => return self.delete(&path_of(holder), 0),
            Ending::Restarted => return Ok(()),
            Ending::Finished if !reports_early(holder) => {
                self.set_status(holder, &json!({"phase": "Succeeded"}))?;
            }
            Ending::Finished | Ending::Evicted => {}
        }
        self.ended.push_back(path_of(holder));
        if self.ended.len() > ENDED_PODS
            && let Some(oldest) = self.ended.pop_front()
        {
            self.delete(&oldest, 0)?;
        }
        Ok(())
    }

    /// Writes the address to the pod, or blanks it, as the CNI plugin does on the Kubernetes datastore.
    fn annotate(&self, holder: &Holder, address: Option<IpAddr>) -> Result<()> {
        let network = address
            .map(|address| IpNet::from(address).to_string())
            .unwrap_or_default();
        let annotations = json!({"cni.projectcalico.org/containerID": holder.container,
            "cni.projectcalico.org/podIP": network, "cni.projectcalico.org/podIPs": network});
        self.ask(
            "PATCH",
            &path_of(holder),
            &json!({"metadata": {"annotations": annotations}}),
            &[200],
        )
    }

    fn set_status(&self, holder: &Holder, status: &Value) -> Result<()> {
        self.ask(
            "PATCH",
            &format!("{}/status", path_of(holder)),
            &json!({"status": status}),
            &[200],
        )
    }

    fn delete(&self, path: &str, grace: u32) -> Result<()> {
        self.ask(
            "DELETE",
            path,
            &json!({"gracePeriodSeconds": grace}),
            &[200, 202, 404],
        )
    }

    /// Sends a request. Any status but one of `statuses` is an error.
    fn ask(&self, method: &str, path: &str, body: &Value, statuses: &[u16]) -> Result<()> {
        let Some(server) = &self.server else { return Ok(()) };
        let Response { status, body } = server.request(method, path, &body.to_string())?;
        if statuses.contains(&status) {
            return Ok(());
        }
        bail!("{method} {path}: {status} {body}")
    }
}
