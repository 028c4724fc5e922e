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
use super::client::{Change, Due, EtcdClient, Range};
use crate::error::{Error, Failure, Result};
use crate::read::around::{PodOnNode, names_pod};
use crate::read::{Lookup, Past, PastSubject};
use crate::retries::{Retries, WHOLE_READS, always_compacted};
use crate::secret::redact_url;

/// Number of latest revisions to read if the past of all blocks is requested. A version of a full block has about 8
/// KiB, and a third of the writes in a busy cluster are to blocks.
const BLOCK_REVISIONS: i64 = 50_000;

/// Maximum versions of a block that [`recent`] reads.
const RECENT: usize = 16;

/// Reads every kept revision of the data related to an object: the requested keys, and the keys that any of their
/// revisions names, but not the whole cluster. For [`PastSubject::Blocks`], reads only the latest revisions.
pub(crate) async fn past(client: &EtcdClient, of: &PastSubject) -> Result<Past> {
    let mut retries = Retries::new(&WHOLE_READS);
    loop {
        match past_once(client, of).await {
            Err(Error::Request {
                failure: Failure::Compacted,
                endpoint,
                ..
            }) => {
                if !retries.pause().await {
                    return Err(always_compacted(&endpoint));
                }
            }
            result => return result,
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
    for block in snapshot
        .blocks
        .iter()
        .filter(|block| block.value.key.contains(&address))
    {
        let Revision::Etcd(newest) = block.revision else {
            continue;
        };
        let key = Key::Block(block.value.key).to_string();
        past.add_last_versions(client, key.as_bytes(), newest).await?;
    }
    past.changes.sort_by_key(|change| change.revision);
    Ok(past)
}

impl Past {
    /// Adds the versions of a key up to the revision `newest`. If there are too many, or the oldest ones have been
    /// compacted, the past begins with the earliest version that was read.
    async fn add_last_versions(&mut self, client: &EtcdClient, key: &[u8], newest: i64) -> Result<()> {
        let mut at = newest;
        let mut is_first = false;
        let mut versions = Vec::new();
        while versions.len() < RECENT && !is_first {
            let found = match client.get(&[Range::key(key).at(at)], "past revisions").await {
                Err(Error::Request {
                    failure: Failure::Compacted,
                    ..
                }) => break,
                found => found?,
            };
            let Some(entry) = found.entries().next() else {
                break;
            };
            is_first = entry.version == 1;
            at = entry.mod_revision - 1;
            versions.push(entry.to_owned());
        }
        versions.reverse();
        let mut versions = versions.into_iter();
        if !is_first {
            self.base.extend(versions.next());
        }
        self.changes.extend(versions.map(|version| Change {
            revision: version.mod_revision,
            key: version.key,
            value: Some(version.value),
        }));
        Ok(())
    }
}

/// Reads the past versions of a subject's objects, and of the objects that they name.
async fn past_once(client: &EtcdClient, of: &PastSubject) -> Result<Past> {
    let now = client.cluster_information().await?;
    let mut oldest = client.oldest_kept(now.revision).await?;
    if *of == PastSubject::Blocks {
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
        known: BTreeSet::new(),
    };
    let mut ranges = reading.unknown(of.first_ranges());
    let mut is_searched = false;
    while !ranges.is_empty() {
        // A watch of past revisions needs a tenth of a second to start. Objects that the oldest and newest versions
        // name are therefore watched together with the requested keys. Only objects that versions in between name need
        // another watch.
        let mut watched = Vec::new();
        let mut due = Due::new();
        while !ranges.is_empty() {
            reading.read_ends(&ranges, &mut due).await?;
            watched.append(&mut ranges);
            ranges = reading.unknown(of.named(&reading));
            // The search for a pod's blocks reads all blocks, so it is done once. The search for endpoints depends on
            // the versions read so far, so it is repeated.
            if ranges.is_empty() && !(is_searched && matches!(of, PastSubject::Pod(_))) {
                is_searched = true;
                let found = reading.searched(of).await?;
                ranges = reading.unknown(found);
            }
        }
        reading.watch(&watched, &due).await?;
        ranges = reading.unknown(of.named(&reading));
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
    known: BTreeSet<Vec<u8>>,
}

impl Reading<'_> {
    /// Keeps the ranges that have not been requested yet, either by themselves or as part of a prefix, and marks them
    /// as requested.
    fn unknown(&mut self, mut ranges: Vec<Range>) -> Vec<Range> {
        ranges.retain(|range| {
            let before = self.known.range(..=range.start.clone()).next_back();
            let is_known = before.is_some_and(|start| range.start.starts_with(start));
            !is_known && self.known.insert(range.start.clone())
        });
        ranges
    }

    /// The keys that only a search finds, at the oldest and newest revision: endpoints that have the address, or blocks
    /// with records of the pod. An object that existed only between these revisions is found if a version of another
    /// object names it.
    async fn searched(&self, of: &PastSubject) -> Result<Vec<Range>> {
        let mut found = Vec::new();
        for revision in [self.past.oldest, self.past.newest] {
            match of {
                PastSubject::Lookup(Lookup::Address(address)) => {
                    found.extend(self.users(*address, revision).await?)
                }
                PastSubject::Pod(pod) => {
                    let blocks = Range::prefix(BLOCK_PREFIX).at(revision);
                    let blocks = self.client.get(&[blocks], "blocks").await?;
                    let is_wanted = |entry: &RawEntry<'_>| {
                        snapshot_of(entry).blocks.iter().any(|block| {
                            block
                                .value
                                .content
                                .sound()
                                .is_some_and(|block| names_pod(block, pod))
                        })
                    };
                    found.extend(
                        blocks
                            .entries()
                            .filter(is_wanted)
                            .map(|entry| Range::key(entry.key)),
                    );
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// The endpoints that have an address at a revision, among those that the address's records name, and those on a
    /// named node in a named namespace.
    async fn users(&self, address: IpAddr, revision: i64) -> Result<Vec<Range>> {
        let named = Lookup::Address(address).named(&self.versions());
        let has_address = |entry: &RawEntry<'_>| {
            let mut endpoints = snapshot_of(entry).endpoints.into_iter();
            endpoints.any(|endpoint| endpoint.value.addresses().any(|own| own == address))
        };
        let mut users = Vec::new();
        for part in named_endpoints(&named).chunks(MAX_OPERATIONS) {
            let pinned: Vec<Range> = part.iter().map(|range| range.clone().at(revision)).collect();
            let answers = self.client.get(&pinned, "endpoints").await?;
            for entry in answers.entries() {
                if has_address(&entry) {
                    users.push(Range::key(entry.key));
                }
            }
        }
        Ok(users)
    }

    /// Reads the values at the oldest and newest revision, and adds to `due` the changes that a watch in between must
    /// report.
    async fn read_ends(&mut self, ranges: &[Range], due: &mut Due) -> Result<()> {
        let at = |revision: i64| {
            ranges
                .iter()
                .map(|range| range.clone().at(revision))
                .collect::<Vec<_>>()
        };
        for part in at(self.past.oldest).chunks(MAX_OPERATIONS) {
            for entry in self.client.get(part, "past revisions").await?.entries() {
                due.insert(entry.key.to_vec(), None);
                self.past.base.push(entry.to_owned());
            }
        }
        for part in at(self.past.newest).chunks(MAX_OPERATIONS) {
            for entry in self.client.get(part, "past revisions").await?.entries() {
                if entry.mod_revision > self.past.oldest {
                    due.insert(entry.key.to_vec(), Some(entry.mod_revision));
                } else {
                    due.remove(entry.key);
                }
                self.last.push(entry.to_owned());
            }
        }
        Ok(())
    }

    /// Adds the changes between the oldest and the newest revision.
    async fn watch(&mut self, ranges: &[Range], due: &Due) -> Result<()> {
        if self.past.newest > self.past.oldest {
            let span = (self.past.oldest + 1, self.past.newest);
            self.past
                .changes
                .extend(self.client.changes(ranges, span, due, "past revisions").await?);
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
                let all = reading.versions();
                let mut found = ranges(&lookup.blocks(&all));
                found.extend(endpoints(lookup, &all));
                if let Lookup::Address(_) = lookup {
                    found.extend(affinities(&all));
                }
                found
            }
            Self::Block(_) => affinities(&reading.versions()),
            Self::Pod((namespace, name)) => {
                let all = reading.versions();
                let own = all.endpoints.iter().map(|endpoint| &endpoint.value);
                let own =
                    own.filter(|endpoint| endpoint.namespace() == **namespace && endpoint.pod() == **name);
                let blocks = own
                    .flat_map(|endpoint| endpoint.addresses())
                    .flat_map(|used| Lookup::Address(used).first_keys());
                ranges(&blocks.collect::<Vec<_>>())
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
    let mut one = Snapshot::default();
    one.add_entry(entry.key, entry.value, entry.mod_revision);
    one
}

fn ranges(keys: &[Key]) -> Vec<Range> {
    keys.iter().filter_map(range_of).collect()
}

/// The workload endpoints of the pods in any past record of an address or handle.
fn endpoints(lookup: &Lookup, all: &Snapshot) -> Vec<Range> {
    let named = lookup.named(all);
    named
        .endpoints
        .iter()
        .map(|pod: &PodOnNode| endpoints_of(pod))
        .collect()
}

/// The affinities of all past owners of blocks.
fn affinities(all: &Snapshot) -> Vec<Range> {
    let blocks = all.blocks.iter().map(|block| &block.value);
    let owned = blocks.filter_map(|block| AffinityKey::of_owner(block.content.owner()?, block.key));
    let keys: BTreeSet<Key> = owned.map(Key::Affinity).collect();
    ranges(&keys.into_iter().collect::<Vec<_>>())
}
