//! Keys of etcd, read and written as Calico's client does (facts 1.15).

use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, Txn, TxnOp};

use crate::cluster::rng::Rng;

/// One worker's connection.
pub struct Store {
    client: Client,
    /// Random numbers of the worker.
    pub rng: Rng,
    /// Longest pause behind a write.
    pause: Duration,
    /// Writes that another worker was faster with.
    pub conflicts: u64,
    /// Writes that took effect.
    pub writes: u64,
}

/// A value and the revision that it was read at.
pub type Read = (Vec<u8>, i64);

impl Store {
    /// A worker's connection.
    pub fn new(client: Client, rng: Rng, pause: Duration) -> Self {
        Self { client, rng, pause, conflicts: 0, writes: 0 }
    }

    /// The value under a key.
    pub async fn get(&mut self, key: &str) -> Result<Option<Read>, Error> {
        let response = self.client.get(key, None).await?;
        Ok(response.kvs().first().map(|kv| (kv.value().to_vec(), kv.mod_revision())))
    }

    /// The keys that begin with a prefix.
    pub async fn keys(&mut self, prefix: &str) -> Result<Vec<String>, Error> {
        let options = GetOptions::new().with_prefix().with_keys_only();
        let response = self.client.get(prefix, Some(options)).await?;
        Ok(response.kvs().iter().map(|kv| String::from_utf8_lossy(kv.key()).into_owned()).collect())
    }

    /// Stores a value where there is none; false where there is one.
    pub async fn create(&mut self, key: &str, value: Vec<u8>) -> Result<bool, Error> {
        let absent = Compare::version(key, CompareOp::Equal, 0);
        self.write(absent, TxnOp::put(key, value, None)).await
    }

    /// Changes the value that was read at a revision; false where it has changed since.
    pub async fn update(&mut self, key: &str, value: Vec<u8>, revision: i64) -> Result<bool, Error> {
        let same = Compare::mod_revision(key, CompareOp::Equal, revision);
        self.write(same, TxnOp::put(key, value, None)).await
    }

    /// Deletes what was read at a revision; false where it has changed since.
    pub async fn delete(&mut self, key: &str, revision: i64) -> Result<bool, Error> {
        let same = Compare::mod_revision(key, CompareOp::Equal, revision);
        self.write(same, TxnOp::delete(key, None)).await
    }

    async fn write(&mut self, when: Compare, operation: TxnOp) -> Result<bool, Error> {
        let done = self.client.txn(Txn::new().when([when]).and_then([operation])).await?.succeeded();
        *(if done { &mut self.writes } else { &mut self.conflicts }) += 1;
        self.rest().await;
        Ok(done)
    }

    /// Waits for a random time, so that readers see the state between two writes.
    async fn rest(&mut self) {
        let longest = self.pause.as_micros() as u64;
        if longest > 0 {
            tokio::time::sleep(Duration::from_micros(self.rng.below(longest))).await;
        }
    }
}
