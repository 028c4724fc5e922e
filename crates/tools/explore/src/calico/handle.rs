//! Counts addresses in handles (facts 3.8).

use calipam_assign::{Record, Store};
use calipam_model::IpNet;
use calipam_model::handle::Handle;

use super::{Calico, Result, Stop, found, retried};

impl Calico {
    /// Counts one more address. Retries the write after any error.
    pub(super) async fn increment(&self, id: &str, block: IpNet) -> Result<()> {
        retried(async || {
            let stored = found(self.handle(id).await)?;
            let mut handle = stored.as_ref().map_or_else(|| Handle::new(id), |stored| stored.value.clone());
            handle.set_count(block, handle.count(block) + 1);
            let written = match &stored {
                Some(stored) => self.store.update(&Record::Handle(handle), &stored.revision).await,
                None => self.store.create(&Record::Handle(handle)).await,
            };
            written.map(drop).map_err(|_| Stop::Conflict)
        })
        .await
    }

    /// Counts `by` fewer addresses, and deletes the handle when its last count is removed.
    pub(super) async fn decrement(&self, id: &str, block: IpNet, by: i64) -> Result<()> {
        retried(async || {
            let stored = self.handle(id).await?;
            let count = stored.value.count(block);
            if count < by {
                return Err(Stop::Refused);
            }
            let mut handle = stored.value.clone();
            handle.set_count(block, count - by);
            if handle.blocks().next().is_none() {
                return found(self.delete(Record::Handle(stored.value), stored.revision).await).map(drop);
            }
            Ok(self.store.update(&Record::Handle(handle), &stored.revision).await.map(drop)?)
        })
        .await
    }
}
