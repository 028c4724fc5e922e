//! Entries in memory, for tests and for data that comes from elsewhere.

use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

use super::ETCD_SOURCES;
use crate::raw::{RawKv, is_read};

/// The entries of an etcd datastore at one revision.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    /// Keys and values.
    pub entries: Vec<RawKv>,
    /// When they are read: the clock of rules.
    pub now: Timestamp,
}

impl MemoryStore {
    /// Reads all of it, in the order of the keys.
    pub fn observe(&self) -> Snapshot {
        let mut snapshot = Snapshot { location: "memory".into(), taken_at: self.now, ..Snapshot::default() };
        let mut entries: Vec<&RawKv> = self.entries.iter().filter(|e| is_read(&e.key)).collect();
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        for entry in entries {
            snapshot.add_entry(&entry.key, &entry.value, entry.mod_revision);
        }
        snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
        let newest = self.entries.iter().map(|e| e.mod_revision).max();
        snapshot.revision = newest.unwrap_or_default().to_string();
        snapshot.mark_read(ETCD_SOURCES);
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_in_order() {
        let entry = |key: &str, mod_revision| RawKv { key: key.into(), value: b"{}".to_vec(), mod_revision };
        let store = MemoryStore {
            entries: vec![
                entry("/calico/ipam/v2/handle/b", 9),
                entry("/calico/ipam/v2/handle/a", 3),
                entry("/registry/pods/x", 12),
            ],
            now: Timestamp::UNIX_EPOCH,
        };
        let snapshot = store.observe();
        let ids: Vec<String> = snapshot.handles.iter().map(|h| h.value.id().to_string()).collect();
        assert_eq!(ids, ["a", "b"]);
        assert_eq!(snapshot.revision, "12");
        assert!(snapshot.defects.is_empty());
    }
}
