//! The users of addresses: pods on an API server, and endpoints in etcd.

use std::net::IpAddr;

use anyhow::Result;
use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};

use super::pods::Pods;
use super::store::Target;
use crate::cluster::wire::go_json;
use crate::cluster::{ClusterSpec, Holder, endpoint_of};

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
pub(super) struct Users {
    /// The etcd with the endpoints, if it is the datastore.
    etcd: Option<Client>,
    pods: Option<Pods>,
    spec: ClusterSpec,
}

impl Users {
    pub(super) async fn connect(target: Target<'_>, spec: ClusterSpec) -> Result<Self> {
        let (endpoint, server) = match target {
            Target::Etcd(endpoint) => (Some(endpoint), None),
            Target::Kubernetes(server, _) => (None, Some(server)),
            Target::EtcdAndKubernetes(endpoint, server) => (Some(endpoint), Some(server)),
        };
        let etcd = match endpoint {
            Some(endpoint) => Some(Client::connect([endpoint], None).await?),
            None => None,
        };
        Ok(Self { etcd, pods: server.map(Pods::connect).transpose()?, spec })
    }

    /// Creates the pod, already bound to a node.
    pub(super) fn announce(&mut self, holder: &Holder) -> Result<()> {
        self.pods.as_mut().map_or(Ok(()), |pods| pods.announce(holder))
    }

    /// Publishes the pod's address, as CNI ADD does after the allocation.
    pub(super) async fn publish(&mut self, holder: &Holder, address: IpAddr) -> Result<()> {
        if let Some(etcd) = &mut self.etcd {
            let endpoint = endpoint_of(&self.spec, holder, &[address]);
            let key = holder.endpoint_key();
            let absent = Compare::version(key.as_str(), CompareOp::Equal, 0);
            let creation = Txn::new().when([absent]).and_then([TxnOp::put(key, go_json(&endpoint), None)]);
            assert!(etcd.txn(creation).await?.succeeded(), "no two pods of a test have one name");
        }
        let Some(pods) = &mut self.pods else { return Ok(()) };
        if self.etcd.is_none() {
            pods.annotate(holder, address)?;
        }
        pods.set_address(holder, address)
    }

    /// Withdraws the published address of the pod, before IPAM releases it.
    pub(super) async fn withdraw(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        if let Some(pods) = &mut self.pods {
            pods.begin_end(holder, ending)?;
        }
        match (&mut self.etcd, &mut self.pods) {
            (Some(etcd), _) => Ok(etcd.delete(holder.endpoint_key(), None).await.map(drop)?),
            (None, Some(pods)) if ending != Ending::Lost => pods.blank(holder),
            _ => Ok(()),
        }
    }

    /// Ends the pod after its address was released.
    pub(super) fn clean_up(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        self.pods.as_mut().map_or(Ok(()), |pods| pods.end(holder, ending))
    }
}
