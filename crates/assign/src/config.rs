//! The configuration of the allocator (facts 1.6).

use calipam_model::config::IpamConfig;
use calipam_model::key::Key;

use crate::allocator::{self, Allocator};
use crate::error::{Error, Result};
use crate::record::Record;
use crate::store::{Query, Store};

impl<S: Store> Allocator<S> {
    /// Returns the stored configuration, or Calico's default without writing it.
    pub async fn config(&self) -> Result<IpamConfig> {
        let [found] = self.read([Query::Get(Key::IpamConfig)]).await?;
        allocator::config(found)
    }

    /// Changes the configuration. Like Calico, writes even an unchanged one if it has a setting for virtual machines.
    ///
    /// # Errors
    /// If the settings exclude each other, or another client changes them meanwhile.
    pub async fn set_config(&self, change: impl FnOnce(&mut IpamConfig)) -> Result<()> {
        let [found] = self.read([Query::Get(Key::IpamConfig)]).await?;
        let revision = found.first().map(|entry| entry.revision.clone());
        let before = allocator::config(found)?;
        let mut config = before;
        change(&mut config);
        if config == before && before.kubevirt_persistence.is_none() {
            return Ok(());
        }
        if !config.strict_affinity && !config.auto_allocate_blocks {
            return Err(Error::NeitherStrictNorAutomatic);
        }
        if config.max_blocks_per_host > 0 && !config.strict_affinity {
            return Err(Error::LimitNeedsStrictAffinity);
        }
        let record = Record::Config(config);
        match revision {
            Some(revision) => self.store().update(&record, &revision).await?,
            None => self.store().create(&record).await?,
        };
        Ok(())
    }
}
