//! Reads a whole Calico 2.x datastore.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use calipam_files::raw::RawKv;
use calipam_files::{CALICO_2_SOURCES, Progress, ProgressFn};
use calipam_model::block::BlockContent;
use calipam_model::key::{HANDLE_PREFIX, Key};
use calipam_model::snapshot::{Coverage, DatastoreKind, ETCD_SOURCES, Snapshot, Source, WhySkipped};
use jiff::Timestamp;

use crate::error::{Error, Result};
use crate::etcdv2::client::{EtcdV2Client, Found};
use crate::etcdv2::{PARTS, convert, path};

/// Maximum attempts to read the parts before the tree is read in one piece.
const ATTEMPTS: usize = 3;
/// The root of all Calico data.
const ROOT: &str = "/calico";

/// Entries in the form of Calico 3, read at one index.
pub(crate) struct Tree {
    pub endpoint: String,
    pub index: i64,
    pub taken_at: Timestamp,
    pub entries: Vec<RawKv>,
}

/// Reads everything at one index. The parts are read in parallel. If something was written meanwhile, the parts are
/// read again. After the last attempt, the whole tree is read in one answer, which also contains data that is not
/// needed.
///
/// # Errors
/// If etcd cannot be read, or has no Calico data.
pub(crate) async fn read(client: &Arc<EtcdV2Client>) -> Result<Tree> {
    for _ in 0..ATTEMPTS {
        let [a, b, c, d, e] = PARTS;
        let taken_at = crate::clock::now();
        let (a, b, c, d, e) = tokio::try_join!(
            client.read(a),
            client.read(b),
            client.read(c),
            client.read(d),
            client.read(e)
        )?;
        let parts = [a, b, c, d, e];
        let index = parts[0].index;
        if parts.iter().all(|part| part.index == index) {
            return tree(client, index, taken_at, &parts);
        }
    }
    let taken_at = crate::clock::now();
    let whole = client.read(ROOT).await?;
    tree(client, whole.index, taken_at, &[whole])
}

/// Converts the parts, which were read at one index, to entries of Calico 3.
fn tree(client: &EtcdV2Client, index: i64, taken_at: Timestamp, parts: &[Found]) -> Result<Tree> {
    let endpoint = client.endpoint();
    let entries = convert(parts.iter().filter_map(|part| part.node.as_ref()));
    if entries.is_empty() {
        return Err(Error::NoCalico { location: endpoint });
    }
    Ok(Tree {
        endpoint,
        index,
        taken_at,
        entries,
    })
}

/// Reads all data that a check needs.
pub(crate) async fn observe(client: &Arc<EtcdV2Client>, progress: &ProgressFn) -> Result<Snapshot> {
    let tree = read(client).await?;
    progress(Progress {
        read: tree.entries.len() as u64,
        expected: tree.entries.len() as u64,
    });
    Ok(tree.snapshot(|_| true))
}

/// Reads everything again at one new index, and returns the objects with these keys. The result omits missing objects.
pub(crate) async fn reread(client: &Arc<EtcdV2Client>, keys: &BTreeSet<Key>) -> Result<Snapshot> {
    let wanted: BTreeSet<Vec<u8>> = keys.iter().map(|key| key.to_string().into_bytes()).collect();
    let tree = read(client).await?;
    let mut snapshot = tree.snapshot(|key| wanted.contains(key));
    snapshot.mark_all_partial();
    Ok(snapshot)
}

impl Tree {
    /// Creates a snapshot of the objects with wanted keys.
    pub(crate) fn snapshot(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Snapshot {
        let mut snapshot = Snapshot {
            datastore: DatastoreKind::EtcdV2,
            location: self.endpoint.clone(),
            revision: self.index.to_string(),
            taken_at: self.taken_at,
            coverage: coverage(),
            ..Snapshot::default()
        };
        for kv in self.entries.iter().filter(|kv| is_wanted(&kv.key)) {
            snapshot.add_entry(&kv.key, &kv.value, kv.mod_revision);
        }
        let handles = handle_indices(&self.entries);
        for block in &mut snapshot.blocks {
            number(&mut block.value.content, |id| handles.get(id).copied());
        }
        // A defect names the path in etcd v2, which operators look for.
        for defect in &mut snapshot.defects {
            if let Some(stored) = defect.key.as_ref().and_then(path) {
                defect.path = stored;
            }
        }
        snapshot
    }
}

/// The sources that were read, and those that Calico 2.x does not have.
fn coverage() -> BTreeMap<Source, Coverage> {
    let mut coverage = BTreeMap::new();
    for source in ETCD_SOURCES {
        let of_source = if CALICO_2_SOURCES.contains(&source) {
            Coverage::Read
        } else {
            Coverage::Skipped(WhySkipped::NotInCalico2)
        };
        coverage.insert(source, of_source);
    }
    coverage
}

/// The index of each handle's last change, by its ID.
pub(crate) fn handle_indices(entries: &[RawKv]) -> HashMap<&str, u64> {
    let mut indices = HashMap::new();
    for entry in entries {
        if let Ok(key) = std::str::from_utf8(&entry.key)
            && let Some(id) = key.strip_prefix(HANDLE_PREFIX)
            && let Ok(index) = u64::try_from(entry.mod_revision)
        {
            indices.insert(id, index);
        }
    }
    indices
}

/// Sets the sequence number of each allocation in a block to the index of its handle, since Calico 2.x has no sequence
/// numbers. All pods with the same name share a handle, but Calico writes the handle whenever one of them is assigned
/// or releases an address.
pub(crate) fn number(block: &mut BlockContent, number_of: impl Fn(&str) -> Option<u64>) {
    if let BlockContent::Sound(block) = block {
        block.number_by_handle(number_of);
    }
}
