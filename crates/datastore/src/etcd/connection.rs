//! A connection to etcd that is replaced after it breaks.

use std::sync::{Arc, Mutex};

use calipam_model::parallel::lock;

use super::client::EtcdClient;
use crate::error::{Error, Result};

/// A connection to etcd that can be replaced while other tasks use it.
#[derive(Debug)]
pub(crate) struct Connection {
    current: Mutex<Arc<EtcdClient>>,
    /// Locked while one task reconnects. Other tasks whose requests have failed wait for it.
    connecting: tokio::sync::Mutex<()>,
}

impl Connection {
    pub(crate) fn new(client: &Arc<EtcdClient>) -> Arc<Self> {
        Arc::new(Self {
            current: Mutex::new(Arc::clone(client)),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn current(&self) -> Arc<EtcdClient> {
        Arc::clone(&lock(&self.current))
    }

    /// Sends a request. If it fails with a temporary error, reconnects to any endpoint that answers before the next
    /// request.
    pub(crate) async fn ask<T, F: Future<Output = Result<T>>>(
        &self,
        request: impl FnOnce(Arc<EtcdClient>) -> F,
    ) -> Result<T> {
        let client = self.current();
        let result = request(Arc::clone(&client)).await;
        if result.as_ref().is_err_and(Error::may_retry) {
            self.replace(&client).await.ok();
        }
        result
    }

    /// Reconnects, unless another task has already replaced `broken`.
    pub(crate) async fn replace(&self, broken: &Arc<EtcdClient>) -> Result<()> {
        let _only_one_reconnects = self.connecting.lock().await;
        let is_replaced = !Arc::ptr_eq(&self.current(), broken);
        if is_replaced {
            return Ok(());
        }
        let new_client = broken.reconnect().await?;
        *lock(&self.current) = new_client;
        Ok(())
    }
}
