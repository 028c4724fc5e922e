//! etcd snapshot files, as `etcdctl snapshot save` writes them: a bbolt database, followed by the
//! SHA-256 of it. The database file of a stopped member (`member/snap/db`) reads as well, without a
//! checksum.
//!
//! The file is read page by page, twice: once to find the newest version of each key, once to give those
//! versions out. Neither the file nor its values are held in memory.

mod meta;
mod pages;

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use self::meta::Meta;
use self::pages::{Element, Pages};
use crate::error::{Error, FileError, Result};
use crate::protobuf::read_key_value;
use crate::raw::RawEntry;

pub use self::meta::looks_like_snapshot;

/// The bucket of bbolt in which etcd keeps all versions of all keys.
const KEY_BUCKET: &[u8] = b"key";

/// What a snapshot file says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotInfo {
    pub revision: i64,
    /// Number of entries that were given out.
    pub entries: u64,
    /// The checksum is there, and fits.
    pub verified: bool,
}

/// Reads an etcd snapshot: every live key that `wanted` admits goes to `sink` with its newest version.
///
/// # Errors
/// Where the file cannot be read, is cut off, does not fit its checksum, or is damaged.
pub fn read(
    path: &Path,
    wanted: impl Fn(&[u8]) -> bool,
    mut sink: impl FnMut(&RawEntry<'_>),
) -> Result<SnapshotInfo> {
    let mut reader = Reader::open(path).map_err(|kind| Error::file(path, kind))?;
    reader.read(&wanted, &mut sink).map_err(|kind| Error::file(path, kind))
}

#[cfg(test)]
mod tests;

/// Result of what knows no path.
type FileResult<T> = std::result::Result<T, FileError>;

struct Reader {
    path: PathBuf,
    pages: Pages,
    meta: Meta,
}

impl Reader {
    fn open(path: &Path) -> FileResult<Self> {
        let mut file = std::fs::File::open(path)?;
        let meta = Meta::read(&mut file)?;
        let pages = Pages::new(file, &meta)?;
        Ok(Self { path: path.to_owned(), pages, meta })
    }

    fn read(
        &mut self,
        wanted: &impl Fn(&[u8]) -> bool,
        sink: &mut impl FnMut(&RawEntry<'_>),
    ) -> FileResult<SnapshotInfo> {
        let verified = verify_checksum(&self.path, self.meta.page_size)?;
        let root = self.find_key_bucket()?;
        let mut newest = Newest::default();
        self.pages.walk(root, &mut |element| newest.note(&Version::read(element)?, wanted))?;
        let mut info = SnapshotInfo { revision: newest.revision, entries: 0, verified };
        self.pages.walk(root, &mut |element| {
            let version = Version::read(element)?;
            if newest.is_live(&version, wanted) {
                info.entries += 1;
                sink(&version.entry);
            }
            Ok(())
        })?;
        Ok(info)
    }

    /// The root page of the bucket with the keys.
    fn find_key_bucket(&mut self) -> FileResult<u64> {
        let mut found = None;
        self.pages.walk(self.meta.root, &mut |element| {
            if element.is_bucket && element.key == KEY_BUCKET {
                found = Some(pages::bucket_root(element.value)?);
            }
            Ok(())
        })?;
        match found {
            Some(0) => Err(FileError::SnapshotDamaged(
                "its bucket of keys is inline, which etcd never writes".into(),
            )),
            Some(root) => Ok(root),
            None => {
                Err(FileError::SnapshotDamaged("it is a bbolt database without etcd's bucket of keys".into()))
            }
        }
    }
}

struct Version<'a> {
    /// Revision, and index within the transaction.
    revision: (i64, i64),
    deleted: bool,
    entry: RawEntry<'a>,
}

impl<'a> Version<'a> {
    /// Reads a leaf: the key is the revision, `t` after it marks a deletion.
    fn read(element: &Element<'a>) -> FileResult<Self> {
        let damaged =
            || FileError::SnapshotDamaged("an entry of its bucket of keys cannot be decoded".into());
        let number = |range: std::ops::Range<usize>| {
            let bytes: [u8; 8] = element.key.get(range)?.try_into().ok()?;
            Some(i64::from_be_bytes(bytes))
        };
        let revision = (number(0..8).ok_or_else(damaged)?, number(9..17).ok_or_else(damaged)?);
        let deleted = match &element.key[17..] {
            [] => false,
            b"t" => true,
            _ => return Err(damaged()),
        };
        let entry = read_key_value(element.value).ok_or_else(damaged)?;
        Ok(Self { revision, deleted, entry })
    }
}

/// The newest version of every wanted key. Keys are told apart by 128 bits of hash.
#[derive(Default)]
struct Newest {
    hashers: (RandomState, RandomState),
    versions: HashMap<(u64, u64), (i64, i64)>,
    revision: i64,
}

impl Newest {
    fn note(&mut self, version: &Version<'_>, wanted: &impl Fn(&[u8]) -> bool) -> FileResult<()> {
        self.revision = self.revision.max(version.revision.0);
        if wanted(version.entry.key) {
            let newest = self.versions.entry(self.identity(version.entry.key)).or_insert(version.revision);
            *newest = (*newest).max(version.revision);
        }
        Ok(())
    }

    fn is_live(&self, version: &Version<'_>, wanted: &impl Fn(&[u8]) -> bool) -> bool {
        let key = version.entry.key;
        !version.deleted && wanted(key) && self.versions.get(&self.identity(key)) == Some(&version.revision)
    }

    fn identity(&self, key: &[u8]) -> (u64, u64) {
        (self.hashers.0.hash_one(key), self.hashers.1.hash_one(key))
    }
}

const DIGEST: u64 = 32;

/// Compares the SHA-256 that `etcdctl snapshot save` puts after the database. True where it is there and fits; false where there is none, as in the database file of a
/// member.
fn verify_checksum(path: &Path, page_size: u32) -> FileResult<bool> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    match len % u64::from(page_size) {
        0 => return Ok(false),
        DIGEST => {}
        rest => return Err(FileError::SnapshotCut(format!("{rest} bytes follow its last whole page"))),
    }
    let mut hasher = Sha256::new();
    let mut left = len - DIGEST;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let part = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        file.read_exact(&mut buffer[..part])?;
        hasher.update(&buffer[..part]);
        left -= part as u64;
    }
    let mut stated = [0; DIGEST as usize];
    file.read_exact(&mut stated)?;
    if hasher.finalize().as_slice() == stated { Ok(true) } else { Err(FileError::SnapshotChecksum) }
}
