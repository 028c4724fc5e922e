//! Counts addresses in handles (facts 3.8).

use calipam_assign::{Entry, Record, Store};
use calipam_model::IpNet;
use calipam_model::handle::Handle;

use super::{Calico, RETRIES, Result, Stop, found};

impl Calico {
    /// Counts one more address. Retries the write after any error.
    pub(super) async fn increment(&self, id: &str, block: IpNet) -> Result<()> {
        for _ in 0..RETRIES {
            let stored = found(self.handle(id).await)?;
            let mut handle = stored.as_ref().map_or_else(|| Handle::new(id), |stored| stored.value.clone());
            handle.set_count(block, handle.count(block) + 1);
            let written = match &stored {
                Some(stored) => self.store.update(&Record::Handle(handle), &stored.revision).await,
                None => self.store.create(&Record::Handle(handle)).await,
            };
            if written.is_ok() {
                return Ok(());
            }
        }
        Err(Stop::Conflict)
    }

    /// Counts `by` fewer addresses, and deletes the handle when its last count is removed.
    pub(super) async fn decrement(&self, id: &str, block: IpNet, by: i64) -> Result<()> {
        for _ in 0..RETRIES {
            let stored = self.handle(id).await?;
            let count = stored.value.count(block);
            if count < by {
                return Err(Stop::Refused);
            }
            let mut handle = stored.value.clone();
            handle.set_count(block, count - by);
            let written = if handle.blocks().next().is_none() {
                let entry = Entry { record: Record::Handle(stored.value), revision: stored.revision };
                found(self.store.delete(&entry).await.map_err(Stop::from)).map(drop)
            } else {
                let updated = self.store.update(&Record::Handle(handle), &stored.revision).await;
                updated.map(drop).map_err(Stop::from)
            };
            match written {
                Err(Stop::Conflict) => {}
                written => return written,
            }
        }
        Err(Stop::Conflict)
    }
}
