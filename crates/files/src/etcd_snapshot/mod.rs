//! etcd snapshot files, as `etcdctl snapshot save` writes them: a bbolt database, followed by its SHA-256. The database
//! file of a stopped member (`member/snap/db`) can also be read, but has no checksum.
//!
//! The file is read page by page, twice: first to find the newest version of each key, then to pass those versions
//! on. Neither the file nor its values are held in memory.

mod meta;
mod pages;
mod sort;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use calipam_model::parallel::in_order;
use foldhash::fast::FixedState;
use ring::digest::{Context, SHA256};

use self::meta::Meta;
use self::pages::{Element, Pages};
use crate::error::{Error, FileError, Result};
use crate::protobuf::read_key_value;
use crate::raw::{RawEntry, RawKv};
use crate::regular;

pub(super) use self::meta::looks_like_snapshot;
pub(super) use self::sort::sort_by_key;

/// The bbolt bucket with all versions of all keys.
const KEY_BUCKET: &[u8] = b"key";
/// The number of subtrees that are read together. Most subtrees are leaf pages of 4 KiB.
const SUBTREES: usize = 64;

/// The results of reading a snapshot file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SnapshotInfo {
    pub revision: i64,
    /// Number of entries passed on.
    pub entries: u64,
    /// True if the checksum exists and matches.
    pub verified: bool,
}

/// Reads an etcd snapshot. Passes the newest version of each live key that `wanted` accepts to `sink`.
///
/// # Errors
/// If the file cannot be read, is cut off, does not match its checksum, or is damaged.
pub(super) fn read(
    path: &Path,
    wanted: impl Fn(&[u8]) -> bool + Sync,
    mut sink: impl FnMut(&RawEntry<'_>) + Send,
) -> Result<SnapshotInfo> {
    let add = |part: &mut Vec<RawKv>, entry: &RawEntry<'_>| part.push((*entry).to_owned());
    read_in_parts(path, &wanted, Vec::new, add, |part, _| {
        for kv in part.iter() {
            sink(&kv.as_entry());
        }
    })
}

/// Reads an etcd snapshot on all cores: `fresh` creates parts, `add` fills them in parallel, and `take` receives them
/// in the order of their revisions, each with its number of entries.
pub(crate) fn read_in_parts<P: Send>(
    path: &Path,
    wanted: &(impl Fn(&[u8]) -> bool + Sync),
    fresh: impl Fn() -> P + Sync,
    add: impl Fn(&mut P, &RawEntry<'_>) + Sync,
    mut take: impl FnMut(P, u64) + Send,
) -> Result<SnapshotInfo> {
    let read = while_verified(path, |pages, root| {
        let survey = Survey::of(pages, root, wanted)?;
        let mut entries = 0;
        each_part(
            &survey.subtrees,
            |subtrees| {
                let mut part = fresh();
                let mut count = 0;
                for subtree in subtrees {
                    count +=
                        survey.pass_live_entries(*subtree, wanted, &mut |entry| add(&mut part, entry))?;
                }
                Ok((part, count))
            },
            |(part, count)| {
                entries += count;
                take(part, count);
            },
        )?;
        // The checksum is not known yet.
        Ok(SnapshotInfo {
            revision: survey.newest.revision,
            entries,
            verified: false,
        })
    });
    read.map_err(|kind| Error::new(path, kind))
}

/// Computes the checksum while `read` reads the pages from the root on. If the checksum is wrong, that error takes
/// precedence over others, and the entries that were already passed on are invalid.
fn while_verified(
    path: &Path,
    read: impl FnOnce(Pages, u64) -> FileResult<SnapshotInfo>,
) -> FileResult<SnapshotInfo> {
    let mut file = regular::open(path)?;
    let meta = Meta::read(&mut file)?;
    let pages = Pages::new(file, &meta)?;
    thread::scope(|scope| {
        let checksum_thread = scope.spawn(|| verify_checksum(path, meta.page_size));
        let result = read(pages, meta.root);
        let verified = match checksum_thread.join() {
            Ok(verified) => verified?,
            Err(panic) => resume_unwind(panic),
        };
        Ok(SnapshotInfo { verified, ..result? })
    })
}

/// Reads groups of subtrees with `read` on all cores, and passes the results to `take` in order, up to the first error.
fn each_part<D: Send>(
    subtrees: &[u64],
    read: impl Fn(&[u64]) -> FileResult<D> + Sync,
    mut take: impl FnMut(D) + Send,
) -> FileResult<()> {
    let end = in_order(subtrees.chunks(SUBTREES), read, |decoded| match decoded {
        Ok(decoded) => {
            take(decoded);
            ControlFlow::Continue(())
        }
        Err(error) => ControlFlow::Break(error),
    });
    match end {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;

/// A result whose error has no path.
type FileResult<T> = Result<T, FileError>;

/// The results from the first pass over a file.
struct Survey {
    pages: Pages,
    /// Parts of the tree of keys, in order; most are leaves.
    subtrees: Vec<u64>,
    newest: Newest,
}

impl Survey {
    /// Surveys the subtrees of the key bucket in parallel, to find the newest version of each key.
    fn of(pages: Pages, root: u64, wanted: &(impl Fn(&[u8]) -> bool + Sync)) -> FileResult<Self> {
        let subtrees = pages.subtrees(find_key_bucket(&pages, root)?)?;
        let mut newest = Newest::default();
        let hashers = newest.hashers.clone();
        each_part(
            &subtrees,
            |subtrees| Seen::in_subtrees(subtrees, &pages, &hashers, wanted),
            |seen| newest.add(seen),
        )?;
        Ok(Self {
            pages,
            subtrees,
            newest,
        })
    }

    /// Passes the live entries of a part of the tree to `sink`; returns their number.
    fn pass_live_entries(
        &self,
        subtree: u64,
        wanted: &impl Fn(&[u8]) -> bool,
        sink: &mut impl FnMut(&RawEntry<'_>),
    ) -> FileResult<u64> {
        let mut entries = 0;
        self.pages.walk(subtree, &mut |element| {
            let version = Version::read(element)?;
            if self.newest.is_live(&version, wanted) {
                entries += 1;
                sink(&version.entry);
            }
            Ok(())
        })?;
        Ok(entries)
    }
}

/// Finds the root page of the bucket with the keys, among the buckets of the database.
fn find_key_bucket(pages: &Pages, root: u64) -> FileResult<u64> {
    let mut found = None;
    pages.walk(root, &mut |element| {
        if element.is_bucket && element.key == KEY_BUCKET {
            found = Some(pages::bucket_root(element.value)?);
        }
        Ok(())
    })?;
    match found {
        Some(0) => Err(FileError::SnapshotDamaged(
            "its key bucket is inline, which etcd never writes".into(),
        )),
        Some(root) => Ok(root),
        None => Err(FileError::SnapshotDamaged(
            "it is a bbolt database without etcd's key bucket".into(),
        )),
    }
}

struct Version<'a> {
    /// Revision, and index within the transaction.
    revision: (i64, i64),
    deleted: bool,
    entry: RawEntry<'a>,
}

impl<'a> Version<'a> {
    /// Reads an element of a leaf. Its key is the revision, followed by `t` for a deletion.
    fn read(element: &Element<'a>) -> FileResult<Self> {
        let damaged = || FileError::SnapshotDamaged("an entry of its key bucket cannot be decoded".into());
        let number = |range: std::ops::Range<usize>| {
            let bytes: [u8; 8] = element.key.get(range)?.try_into().ok()?;
            Some(i64::from_be_bytes(bytes))
        };
        let revision = (
            number(0..8).ok_or_else(damaged)?,
            number(9..17).ok_or_else(damaged)?,
        );
        let deleted = match &element.key[17..] {
            [] => false,
            b"t" => true,
            _ => return Err(damaged()),
        };
        let entry = read_key_value(element.value).ok_or_else(damaged)?;
        Ok(Self {
            revision,
            deleted,
            entry,
        })
    }
}

/// The 128-bit hash of a key.
type Identity = (u64, u64);

/// Hashes of keys with a random seed, so that no one can construct keys with equal hashes.
#[derive(Clone, Default)]
struct Hashers(RandomState, RandomState);

impl Hashers {
    fn identity(&self, key: &[u8]) -> Identity {
        (self.0.hash_one(key), self.1.hash_one(key))
    }
}

/// The wanted versions in some parts of the tree, and the newest revision in these parts.
#[derive(Default)]
struct Seen {
    versions: Vec<(Identity, (i64, i64))>,
    revision: i64,
}

impl Seen {
    /// Notes all versions in some subtrees.
    fn in_subtrees(
        subtrees: &[u64],
        pages: &Pages,
        hashers: &Hashers,
        wanted: &impl Fn(&[u8]) -> bool,
    ) -> FileResult<Self> {
        let mut seen = Self::default();
        for subtree in subtrees {
            pages.walk(*subtree, &mut |element| {
                seen.note(&Version::read(element)?, hashers, wanted);
                Ok(())
            })?;
        }
        Ok(seen)
    }

    /// Notes a version if it is wanted. Its revision always counts.
    fn note(&mut self, version: &Version<'_>, hashers: &Hashers, wanted: &impl Fn(&[u8]) -> bool) {
        self.revision = self.revision.max(version.revision.0);
        if wanted(version.entry.key) {
            self.versions
                .push((hashers.identity(version.entry.key), version.revision));
        }
    }
}

/// The newest version of every wanted key.
#[derive(Default)]
struct Newest {
    hashers: Hashers,
    versions: HashMap<Identity, (i64, i64), FixedState>,
    revision: i64,
}

impl Newest {
    fn add(&mut self, seen: Seen) {
        self.revision = self.revision.max(seen.revision);
        for (identity, revision) in seen.versions {
            let newest = self.versions.entry(identity).or_insert(revision);
            *newest = (*newest).max(revision);
        }
    }

    fn is_live(&self, version: &Version<'_>, wanted: &impl Fn(&[u8]) -> bool) -> bool {
        let key = version.entry.key;
        !version.deleted
            && wanted(key)
            && self.versions.get(&self.hashers.identity(key)) == Some(&version.revision)
    }
}

const DIGEST: u64 = 32;

/// Verifies the SHA-256 that `etcdctl snapshot save` writes after the database. Returns false if there is none, as in a
/// member's database file.
fn verify_checksum(path: &Path, page_size: u32) -> FileResult<bool> {
    let mut file = regular::open(path)?;
    let len = file.metadata()?.len();
    let rest = len % u64::from(page_size);
    if rest == 0 {
        return Ok(false);
    }
    if rest != DIGEST {
        let damage = format!("{rest} bytes follow its last complete page");
        return Err(FileError::SnapshotCut(damage));
    }

    let mut hasher = Context::new(&SHA256);
    let mut remaining = len - DIGEST;
    let mut buffer = vec![0; 1 << 20];
    while remaining > 0 {
        let piece_len = remaining.min(buffer.len() as u64) as usize;
        let piece = &mut buffer[..piece_len];
        file.read_exact(piece)?;
        hasher.update(piece);
        remaining -= piece_len as u64;
    }

    let mut stated = [0; DIGEST as usize];
    file.read_exact(&mut stated)?;
    if hasher.finish().as_ref() != stated {
        return Err(FileError::SnapshotChecksum);
    }
    Ok(true)
}
