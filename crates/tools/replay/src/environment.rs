//! Environments of replays: a datastore that can be filled, watched and read, and the programs that use it.

use std::collections::BTreeMap;

use calipam_assign::Store;
use calipam_testkit::memory::{Change, MemoryStore};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

/// One write that took effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub path: String,
    /// True if the key had a value before the write.
    pub existed: bool,
    /// The value after the write; `None` if the write deleted the key.
    pub value: Option<Value>,
}

impl Write {
    /// The write in the form of a trace.
    pub(crate) fn to_json(&self) -> Value {
        let kind = match (self.existed, &self.value) {
            (_, None) => "delete",
            (false, _) => "create",
            (true, _) => "update",
        };
        let mut fields = Map::new();
        fields.insert(kind.to_owned(), self.path.as_str().into());
        if let Some(value) = &self.value {
            fields.insert("value".to_owned(), value.clone());
        }
        fields.into()
    }
}

/// The output of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub exit_code: i32,
    /// Standard output. For calicoctl, it includes standard error.
    pub stdout: String,
}

/// A datastore on which traces are replayed, and programs that use it. Values that are not JSON are returned as `null`.
#[allow(async_fn_in_trait, reason = "a replay stays on one thread")]
pub trait Environment {
    /// The datastore as an allocator sees it.
    type Store: Store;

    fn store(&self) -> &Self::Store;

    /// Deletes everything under `/calico`.
    async fn clear(&self) -> Result<(), String>;

    /// Stores a value, or deletes it.
    async fn set(&self, path: &str, value: Option<&Value>) -> Result<(), String>;

    /// Returns all values under a prefix, by path.
    async fn values(&self, prefix: &str) -> Result<BTreeMap<String, Value>, String>;

    /// Returns the writes since the last call, in the order in which they took effect.
    async fn writes(&self) -> Result<Vec<Write>, String>;

    /// Lets time pass.
    async fn sleep(&self, milliseconds: u64);

    /// Calls the CNI plugin.
    async fn cni(&self, input: &Map<String, Value>) -> Result<Output, String>;

    /// Calls the drop-in for calicoctl.
    async fn calicoctl(&self, arguments: &str) -> Result<Output, String>;
}

/// An in-memory datastore without programs.
pub struct MemoryEnvironment(MemoryStore);

impl MemoryEnvironment {
    /// Creates an empty datastore whose clock is at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self(MemoryStore::new(now))
    }
}

impl Environment for MemoryEnvironment {
    type Store = MemoryStore;

    fn store(&self) -> &MemoryStore {
        &self.0
    }

    async fn clear(&self) -> Result<(), String> {
        for (path, ..) in self.0.values("/calico") {
            self.0.remove(&path);
        }
        Ok(())
    }

    async fn set(&self, path: &str, value: Option<&Value>) -> Result<(), String> {
        match value {
            Some(value) => self.0.put(path, value.to_string()),
            None => drop(self.0.remove(path)),
        }
        Ok(())
    }

    async fn values(&self, prefix: &str) -> Result<BTreeMap<String, Value>, String> {
        Ok(self.0.values(prefix).into_iter().map(|(path, value, _)| (path, parse(&value))).collect())
    }

    async fn writes(&self) -> Result<Vec<Write>, String> {
        let write = |change: Change| Write {
            path: change.path,
            existed: change.existed,
            value: change.value.map(|value| parse(&value)),
        };
        Ok(self.0.take_changes().into_iter().map(write).collect())
    }

    async fn sleep(&self, milliseconds: u64) {
        self.0.advance(SignedDuration::from_millis(milliseconds.try_into().unwrap_or(i64::MAX)));
    }

    async fn cni(&self, _: &Map<String, Value>) -> Result<Output, String> {
        Err("no program can use a datastore in memory".into())
    }

    async fn calicoctl(&self, _: &str) -> Result<Output, String> {
        Err("no program can use a datastore in memory".into())
    }
}

pub(crate) fn parse(value: &[u8]) -> Value {
    serde_json::from_slice(value).unwrap_or(json!(null))
}
