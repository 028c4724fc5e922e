//! What was written last of what a cache holds: by this the next check knows that the history is the same.

use serde::{Deserialize, Serialize};

/// The last write to what is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Newest {
    /// Its revision.
    pub last: i64,
    /// The sums of what was written there.
    pub written: Vec<u32>,
}

impl Newest {
    /// Takes note of a write.
    pub(super) fn note(&mut self, revision: i64, sum: impl FnOnce() -> u32) {
        if revision < self.last {
            return;
        }
        if revision > self.last {
            self.last = revision;
            self.written.clear();
        }
        self.written.push(sum());
    }

    pub(super) fn join(&mut self, other: Self) {
        for sum in other.written {
            self.note(other.last, || sum);
        }
    }

    /// True if all of it is among the sums of what is reported to be written there.
    pub(super) fn is_among(&self, sums: &[u32]) -> bool {
        !self.written.is_empty() && self.written.iter().all(|sum| sums.contains(sum))
    }
}

/// The sum of a write.
pub(super) fn sum(key: &[u8], value: Option<&[u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(&[u8::from(value.is_some())]);
    hasher.update(value.unwrap_or_default());
    hasher.finalize()
}
