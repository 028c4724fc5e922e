//! Reads the past of the objects related to an address, handle, block, node or pod: every revision of their keys that
//! etcd still keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calipam_files::raw::{RawEntry, RawKv};
use calipam_model::IpNet;
use calipam_model::affinity::AffinityKey;
use calipam_model::key::{BLOCK_PREFIX, ENDPOINT_PREFIX, IPAM_PREFIX, Key};
use calipam_model::snapshot::{Revision, Snapshot};

use super::around::{MAX_OPERATIONS, endpoints_of, named_endpoints, range_of};
use super::client::{Change, EtcdClient, ExpectedChanges, Range};
use crate::error::{Error, Failure, Result};
use crate::read::around::names_pod;
use crate::read::{Lookup, Past, PastSubject};
use crate::retries::{Retries, WHOLE_READS, always_compacted};
use crate::secret::redact_url;

/// Number of latest revisions to read if the past of all blocks is requested. A version of a full block has about 8
/// KiB, and a third of the writes in a busy cluster are to blocks.
const BLOCK_REVISIONS: i64 = 50_000;

/// Maximum versions of a block that [`recent`] reads. Each of them takes a request.
const RECENT_VERSIONS: usize = 16;

/// Reads all versions that etcd still has of a subject's objects, and of the objects that these versions name. For all
/// blocks, reads only the latest [`BLOCK_REVISIONS`]. Reads again, a few times, if etcd deletes the oldest versions
/// meanwhile (a compaction).
pub(crate) async fn past(client: &EtcdClient, subject: &PastSubject) -> Result<Past> {
    let mut retries = Retries::new(&WHOLE_READS);
    loop {
        let error = match past_once(client, subject).await {
            Ok(past) => return Ok(past),
            Err(error) => error,
        };
        let Error::Request {
            failure: Failure::Compacted,
            endpoint,
            ..
        } = &error
        else {
            return Err(error);
        };
        if !retries.pause().await {
            return Err(always_compacted(endpoint));
        }
    }
}

/// Reads the latest versions of those blocks in a snapshot that contain an address, one by one. This is faster than a
/// watch of past revisions, and reads only the keys of these blocks.
pub(crate) async fn recent(client: &EtcdClient, snapshot: &Snapshot, address: IpAddr) -> Result<Past> {
    let mut past = Past {
        location: redact_url(client.endpoint()),
        newest: snapshot.revision.parse().unwrap_or_default(),
        read_at: snapshot.taken_at,
        ..Past::default()
    };
    for block in &snapshot.blocks {
        if let Revision::Etcd(newest) = block.revision
            && block.value.key.contains(&address)
        {
            let key = Key::Block(block.value.key).to_string();
            past.add_last_versions(client, key.as_bytes(), newest).await?;
        }
    }
    past.changes.sort_by_key(|change| change.revision);
    Ok(past)
}

impl Past {
    /// Adds the versions of a key up to the revision `newest`. If there are too many, or the oldest ones have been
    /// compacted, the past begins with the earliest version that was read.
    async fn add_last_versions(&mut self, client: &EtcdClient, key: &[u8], newest: i64) -> Result<()> {
        let mut revision = newest;
        let mut has_creation = false;
        let mut newest_first = Vec::new();
        while newest_first.len() < RECENT_VERSIONS && !has_creation {
            let range = Range::key(key).at(revision);
            let answers = match client.get(&[range], "past revisions").await {
                Err(Error::Request {
                    failure: Failure::Compacted,
                    ..
                }) => break,
                answers => answers?,
            };
            let Some(entry) = answers.entries().next() else {
                break;
            };
            has_creation = entry.version == 1;
            revision = entry.mod_revision - 1;
            newest_first.push(entry.to_owned());
        }

        // Without the creation, the earliest version is the state from which the changes start.
        let mut versions = newest_first.into_iter().rev();
        if !has_creation {
            self.base.extend(versions.next());
        }
        for version in versions {
            self.changes.push(Change {
                revision: version.mod_revision,
                key: version.key,
                value: Some(version.value),
            });
        }
        Ok(())
    }
}

/// Reads the past versions of a subject's objects, and of the objects that they name.
async fn past_once(client: &EtcdClient, subject: &PastSubject) -> Result<Past> {
    let now = client.cluster_information().await?;
    let mut oldest = client.oldest_kept(now.revision).await?;
    if *subject == PastSubject::Blocks {
        oldest = oldest.max(now.revision - BLOCK_REVISIONS);
    }
    let past = Past {
        location: redact_url(client.endpoint()),
        guid: now.guid(),
        oldest,
        newest: now.revision,
        read_at: crate::clock::now(),
        ..Past::default()
    };
    let mut reading = Reading {
        client,
        past,
        last: Vec::new(),
        requested: BTreeSet::new(),
    };
    let mut unread = reading.request(subject.first_ranges());
    let mut is_searched = false;
    while !unread.is_empty() {
        // A watch of past revisions needs a tenth of a second to start. Objects that the oldest and newest versions
        // name are therefore watched together with the requested keys. Only objects that versions in between name need
        // another watch.
        let mut watched = Vec::new();
        let mut expected = ExpectedChanges::new();
        while !unread.is_empty() {
            reading.read_ends(&unread, &mut expected).await?;
            watched.append(&mut unread);
            unread = reading.request(subject.named(&reading));

            // The search for a pod's blocks reads all blocks, so it is done once. The search for endpoints depends on
            // the versions read so far, so it is repeated.
            let is_search_done = is_searched && matches!(subject, PastSubject::Pod(_));
            if unread.is_empty() && !is_search_done {
                is_searched = true;
                let found = reading.search(subject).await?;
                unread = reading.request(found);
            }
        }
        reading.add_changes(&watched, &expected).await?;
        unread = reading.request(subject.named(&reading));
    }

    let mut past = reading.past;
    past.changes
        .sort_by(|a, b| (a.revision, &a.key).cmp(&(b.revision, &b.key)));
    past.changes.dedup();
    Ok(past)
}

/// An ongoing read of past revisions.
struct Reading<'c> {
    client: &'c EtcdClient,
    past: Past,
    /// The values at the newest revision.
    last: Vec<RawKv>,
    /// The start keys of the ranges requested so far.
    requested: BTreeSet<Vec<u8>>,
}

impl Reading<'_> {
    /// Returns the ranges that have not been requested yet, either by themselves or as part of a prefix, and notes them
    /// as requested.
    fn request(&mut self, ranges: Vec<Range>) -> Vec<Range> {
        let mut unread = Vec::new();
        for range in ranges {
            let start_before = self.requested.range(..=range.start.clone()).next_back();
            if let Some(start_before) = start_before
                && range.start.starts_with(start_before)
            {
                continue;
            }
            self.requested.insert(range.start.clone());
            unread.push(range);
        }
        unread
    }

    /// The keys that only a search finds, at the oldest and newest revision: endpoints that have the address, or blocks
    /// with records of the pod. An object that existed only between these revisions is found if a version of another
    /// object names it.
    async fn search(&self, subject: &PastSubject) -> Result<Vec<Range>> {
        let mut found = Vec::new();
        for revision in [self.past.oldest, self.past.newest] {
            match subject {
                PastSubject::Lookup(Lookup::Address(address)) => {
                    found.extend(self.endpoints_with(*address, revision).await?);
                }
                PastSubject::Pod(pod) => found.extend(self.blocks_of_pod(pod, revision).await?),
                _ => {}
            }
        }
        Ok(found)
    }

    /// The blocks that have records of a pod at a revision.
    async fn blocks_of_pod(&self, pod: &(String, String), revision: i64) -> Result<Vec<Range>> {
        let all_blocks = Range::prefix(BLOCK_PREFIX).at(revision);
        let answers = self.client.get(&[all_blocks], "blocks").await?;
        let mut blocks = Vec::new();
        for entry in answers.entries() {
            for block in snapshot_of(&entry).blocks {
                let sound = block.value.content.sound();
                if sound.is_some_and(|sound| names_pod(sound, pod)) {
                    blocks.push(Range::key(entry.key));
                }
            }
        }
        Ok(blocks)
    }

    /// The endpoints that have an address at a revision, among those that the address's records name, and those on a
    /// named node in a named namespace.
    async fn endpoints_with(&self, address: IpAddr, revision: i64) -> Result<Vec<Range>> {
        let named = Lookup::Address(address).named(&self.versions());
        let mut found = Vec::new();
        for part in named_endpoints(&named).chunks(MAX_OPERATIONS) {
            let answers = self.client.get(&ranges_at(revision, part), "endpoints").await?;
            for entry in answers.entries() {
                for endpoint in snapshot_of(&entry).endpoints {
                    if endpoint.value.addresses().any(|own| own == address) {
                        found.push(Range::key(entry.key));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Reads the values at the oldest and newest revision, and adds to `expected` the changes that a watch in between
    /// must report.
    async fn read_ends(&mut self, ranges: &[Range], expected: &mut ExpectedChanges) -> Result<()> {
        for part in ranges_at(self.past.oldest, ranges).chunks(MAX_OPERATIONS) {
            for entry in self.client.get(part, "past revisions").await?.entries() {
                expected.insert(entry.key.to_vec(), None);
                self.past.base.push(entry.to_owned());
            }
        }
        for part in ranges_at(self.past.newest, ranges).chunks(MAX_OPERATIONS) {
            for entry in self.client.get(part, "past revisions").await?.entries() {
                if entry.mod_revision > self.past.oldest {
                    expected.insert(entry.key.to_vec(), Some(entry.mod_revision));
                } else {
                    expected.remove(entry.key);
                }
                self.last.push(entry.to_owned());
            }
        }
        Ok(())
    }

    /// Adds the changes in these ranges after the oldest revision, up to the newest. Waits until all `expected` changes
    /// have arrived.
    async fn add_changes(&mut self, ranges: &[Range], expected: &ExpectedChanges) -> Result<()> {
        let first = self.past.oldest + 1;
        let last = self.past.newest;
        if first <= last {
            let changes = self
                .client
                .changes(ranges, first..=last, expected, "past revisions")
                .await?;
            self.past.changes.extend(changes);
        }
        Ok(())
    }

    /// All versions that were read, in one snapshot.
    fn versions(&self) -> Snapshot {
        let mut all = Snapshot::default();
        let ends = self.past.base.iter().chain(&self.last);
        for entry in ends {
            all.add_entry(&entry.key, &entry.value, entry.mod_revision);
        }
        for change in &self.past.changes {
            if let Some(value) = &change.value {
                all.add_entry(&change.key, value, change.revision);
            }
        }
        all
    }
}

impl PastSubject {
    /// The ranges to read first.
    fn first_ranges(&self) -> Vec<Range> {
        match self {
            Self::Lookup(lookup) => ranges(&lookup.first_keys()),
            Self::Block(cidr) => ranges(&[Key::Block(*cidr)]),
            Self::Node(node) => vec![Range::prefix(&format!("{IPAM_PREFIX}host/{node}/"))],
            Self::Pod((namespace, _)) => vec![Range::prefix(&format!("{ENDPOINT_PREFIX}{namespace}/"))],
            Self::Blocks => vec![Range::prefix(BLOCK_PREFIX)],
        }
    }

    /// The ranges of the objects that the versions read so far name.
    fn named(&self, reading: &Reading<'_>) -> Vec<Range> {
        match self {
            Self::Lookup(lookup) => {
                let versions = reading.versions();
                let mut named = ranges(&lookup.blocks(&versions));
                named.extend(endpoints(lookup, &versions));
                if let Lookup::Address(_) = lookup {
                    named.extend(affinities(&versions));
                }
                named
            }
            Self::Block(_) => affinities(&reading.versions()),
            Self::Pod((namespace, name)) => {
                let versions = reading.versions();
                let mut blocks = Vec::new();
                for endpoint in versions.endpoints.iter().map(|endpoint| &endpoint.value) {
                    if endpoint.namespace() != **namespace || endpoint.pod() != **name {
                        continue;
                    }
                    for address in endpoint.addresses() {
                        blocks.extend(Lookup::Address(address).first_keys());
                    }
                }
                ranges(&blocks)
            }
            // The objects that blocks name are not needed, and there would be many.
            Self::Blocks => Vec::new(),
            Self::Node(_) => {
                let all = reading.versions();
                let mut cidrs = BTreeMap::<IpNet, Key>::new();
                for affinity in &all.affinities {
                    let cidr = affinity.value.key.cidr;
                    cidrs.insert(cidr, Key::Block(cidr));
                }
                for change in &reading.past.changes {
                    // A deletion has a key, but no value.
                    if change.value.is_some() {
                        continue;
                    }
                    let path = std::str::from_utf8(&change.key).ok();
                    let key = path.and_then(|path| Key::parse(path).ok()?);
                    if let Some(Key::Affinity(AffinityKey { cidr, .. })) = key {
                        cidrs.insert(cidr, Key::Block(cidr));
                    }
                }
                ranges(&cidrs.into_values().collect::<Vec<_>>())
            }
        }
    }
}

/// A snapshot of one object.
fn snapshot_of(entry: &RawEntry<'_>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.add_entry(entry.key, entry.value, entry.mod_revision);
    snapshot
}

fn ranges(keys: &[Key]) -> Vec<Range> {
    keys.iter().filter_map(range_of).collect()
}

/// The ranges, to be read at a revision.
fn ranges_at(revision: i64, ranges: &[Range]) -> Vec<Range> {
    ranges.iter().map(|range| range.clone().at(revision)).collect()
}

/// The workload endpoints of the pods in any past record of an address or handle.
fn endpoints(lookup: &Lookup, versions: &Snapshot) -> Vec<Range> {
    let named = lookup.named(versions);
    named.endpoints.iter().map(endpoints_of).collect()
}

/// The affinities of all past owners of blocks.
fn affinities(versions: &Snapshot) -> Vec<Range> {
    let mut keys = BTreeSet::new();
    for block in versions.blocks.iter().map(|block| &block.value) {
        let owner = block.content.owner();
        if let Some(key) = owner.and_then(|owner| AffinityKey::of_owner(owner, block.key)) {
            keys.insert(Key::Affinity(key));
        }
    }
    ranges(&keys.into_iter().collect::<Vec<_>>())
}
