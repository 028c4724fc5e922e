//! Pods on an API server, as the kubelet and Calico's CNI plugin change them (facts 2.12).

use std::collections::VecDeque;
use std::net::IpAddr;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::users::Ending;
use crate::cluster::Holder;
use crate::kube::Connection;
use crate::servers::{KubeApiserver, Response};

/// Number of finished and evicted pods that each worker keeps; older ones are deleted.
const ENDED_PODS: usize = 20;

/// The pods of one worker.
pub(super) struct Pods {
    connection: Connection,
    /// Paths of pods that have finished or were evicted.
    ended: VecDeque<String>,
}

fn path_of(holder: &Holder) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", holder.name.namespace, holder.name.pod)
}

/// True if the kubelet reports the end of a finished pod first, and then removes the sandbox. False for the opposite
/// order.
fn reports_early(holder: &Holder) -> bool {
    holder.container.starts_with(|c: char| c.is_ascii_digit())
}

impl Pods {
    pub(super) fn connect(server: &KubeApiserver) -> Result<Self> {
        Ok(Self { connection: Connection::open(server)?, ended: VecDeque::new() })
    }

    /// Sends a request. Any status but one of `statuses` is an error.
    fn ask(&mut self, method: &str, path: &str, body: &Value, statuses: &[u16]) -> Result<()> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let Response { status, body } = self.connection.request(method, path, &body)?;
        if statuses.contains(&status) {
            return Ok(());
        }
        bail!("{method} {path}: {status} {body}")
    }

    /// Creates the pod, already bound to a node.
    pub(super) fn announce(&mut self, holder: &Holder) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": holder.name.pod, "labels": {"app": holder.name.app}},
            "spec": {"nodeName": holder.node, "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        });
        let path = format!("/api/v1/namespaces/{}/pods", holder.name.namespace);
        self.ask("POST", &path, &pod, &[201])
    }

    /// Writes the address to the pod, as the CNI plugin does on the Kubernetes datastore.
    pub(super) fn annotate(&mut self, holder: &Holder, address: IpAddr) -> Result<()> {
        let network = format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 });
        let annotations = json!({"cni.projectcalico.org/containerID": holder.container,
            "cni.projectcalico.org/podIP": network, "cni.projectcalico.org/podIPs": network});
        self.patch(&path_of(holder), &json!({"metadata": {"annotations": annotations}}))
    }

    /// Removes the address from the pod, but not the container's ID.
    pub(super) fn blank(&mut self, holder: &Holder) -> Result<()> {
        let blank = json!({"cni.projectcalico.org/podIP": "", "cni.projectcalico.org/podIPs": ""});
        self.patch(&path_of(holder), &json!({"metadata": {"annotations": blank}}))
    }

    /// Reports that the pod is running at an address, as the kubelet does.
    pub(super) fn set_address(&mut self, holder: &Holder, address: IpAddr) -> Result<()> {
        let address = address.to_string();
        let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
        self.patch(&format!("{}/status", path_of(holder)), &json!({"status": status}))
    }

    /// Changes a pod before its sandbox is removed.
    pub(super) fn begin_end(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        let path = path_of(holder);
        match ending {
            Ending::Lost => self.delete(&path, 0),
            Ending::Deleted => self.delete(&path, 30),
            Ending::Evicted => self.set_phase(&path, "Failed", Some("Evicted")),
            Ending::Finished if reports_early(holder) => self.set_phase(&path, "Succeeded", None),
            Ending::Finished | Ending::Restarted => Ok(()),
        }
    }

    /// Changes a pod after its sandbox was removed. A finished pod keeps its address in its status.
    pub(super) fn end(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        let path = path_of(holder);
        match ending {
            Ending::Deleted | Ending::Lost => return self.delete(&path, 0),
            Ending::Restarted => return Ok(()),
            Ending::Finished if !reports_early(holder) => self.set_phase(&path, "Succeeded", None)?,
            Ending::Finished | Ending::Evicted => {}
        }
        self.ended.push_back(path);
        if self.ended.len() > ENDED_PODS
            && let Some(oldest) = self.ended.pop_front()
        {
            self.delete(&oldest, 0)?;
        }
        Ok(())
    }

    fn set_phase(&mut self, path: &str, phase: &str, reason: Option<&str>) -> Result<()> {
        let status = json!({"status": {"phase": phase, "reason": reason}});
        self.patch(&format!("{path}/status"), &status)
    }

    fn patch(&mut self, path: &str, patch: &Value) -> Result<()> {
        self.ask("PATCH", path, patch, &[200])
    }

    fn delete(&mut self, path: &str, grace: u32) -> Result<()> {
        let path = format!("{path}?gracePeriodSeconds={grace}");
        self.ask("DELETE", &path, &Value::Null, &[200, 202, 404])
    }
}
