//! The host of a call, for the plugin code in `calipam-assign`.

use std::collections::BTreeMap;
use std::time::Duration;

use calipam_assign::plugin::{Host, Lookup, Plugin};
use calipam_datastore::allocation::AllocatorStore;
use tokio::time::timeout;

use crate::call::{Call, CallAllocator};
use crate::failure;
use crate::lock::NodeLock;
use crate::pools;
use crate::protocol::CniError;

/// The host of a connected call.
#[derive(Debug)]
pub(crate) struct CallHost<'c> {
    pub call: &'c Call,
    pub allocator: &'c CallAllocator,
}

impl CallHost<'_> {
    pub(crate) fn plugin(&self) -> Plugin<'_, AllocatorStore, Self> {
        Plugin {
            allocator: self.allocator,
            host: self,
        }
    }

    /// Returns the labels of the call's namespace, for pool selectors; `None` if the configuration does not ask for
    /// namespaces or the call has none.
    ///
    /// # Errors
    /// If the API server does not answer, or does not have the namespace.
    async fn namespace_labels(&self) -> Result<Option<BTreeMap<String, String>>, CniError> {
        let namespace = &self.call.identity.namespace;
        if !self.call.configuration.reads_namespaces || namespace.is_empty() {
            return Ok(None);
        }
        let read = async {
            let client = self.call.lookup(self.allocator).await?;
            client.namespace_labels(namespace).await
        };
        match read.await {
            Ok(Some(labels)) => Ok(Some(labels)),
            Ok(None) => {
                let not_found = CniError::internal(format!("namespaces {namespace:?} not found"));
                Err(no_labels(namespace, not_found))
            }
            Err(error) => Err(no_labels(namespace, failure::from_datastore(&error))),
        }
    }
}

/// The error for a namespace whose labels cannot be read, with the text of Calico's plugin.
fn no_labels(namespace: &str, reason: CniError) -> CniError {
    let message = format!("failed to get namespace {namespace}: {}", reason.msg);
    CniError::new(reason.code, message)
}

impl Host for CallHost<'_> {
    type LockGuard = NodeLock;
    type Error = CniError;

    async fn lock(&self) -> NodeLock {
        NodeLock::take(&self.call.configuration.lock_file).await
    }

    async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        timeout(limit, work).await.ok()
    }

    /// Looks up the pools and the labels of the pod's namespace, both at the same time.
    async fn look_up(&self) -> Result<Lookup, CniError> {
        let pools = pools::resolve(&self.call.configuration.ipam, self.allocator);
        let (pools, labels) = tokio::join!(pools, self.namespace_labels());
        let (pools_v4, pools_v6) = pools?;
        Ok(Lookup {
            pools_v4,
            pools_v6,
            namespace_labels: labels?,
        })
    }

    /// Labels the node's affinities in the Kubernetes datastore, once in the node's lifetime.
    async fn label_affinities(&self) {
        let store = self.allocator.store();
        if store.kubernetes().is_none() || self.call.is_labelled() {
            return;
        }
        // An error is not fatal: without labels, the plugin has to list all affinities of the cluster, which is slower.
        match store.label_affinities(&self.call.identity.node).await {
            Ok(labelled) => {
                tracing::info!("all affinities of the node have labels; {labelled} got them now");
                self.call.note_labelled();
            }
            Err(error) => tracing::warn!("cannot label the node's affinities: {error}"),
        }
    }
}
