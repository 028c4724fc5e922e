use std::collections::BTreeMap;
use std::path::Path;

use calipam_model::digest::sha256;

use crate::etcd_snapshot::*;
use crate::raw::RawKv;

const PAGE: usize = 4096;

/// Builds small bbolt databases, page by page.
struct Database(Vec<Vec<u8>>);

impl Database {
    /// Pages 0 and 1 are the meta pages, page 2 is the root bucket, page 3 the root of the key bucket.
    fn new() -> Self {
        let mut database = Self(vec![vec![0; PAGE]; 4]);
        let bucket: Vec<u8> = [3u64, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
        database.leaf(2, &[(1, b"key".to_vec(), bucket)]);
        database
    }

    fn header(page: usize, flags: u16, count: u16, overflow: u32) -> Vec<u8> {
        let mut bytes = (page as u64).to_le_bytes().to_vec();
        bytes.extend(flags.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend(overflow.to_le_bytes());
        bytes
    }

    /// Writes a leaf, with as many overflow pages as it needs.
    fn leaf(&mut self, page: usize, entries: &[(u32, Vec<u8>, Vec<u8>)]) {
        let mut elements = Vec::new();
        let mut data: Vec<u8> = Vec::new();
        for (i, (flags, key, value)) in entries.iter().enumerate() {
            let pos = (entries.len() - i) * 16 + data.len();
            for number in [*flags, pos as u32, key.len() as u32, value.len() as u32] {
                elements.extend(number.to_le_bytes());
            }
            data.extend(key);
            data.extend(value);
        }
        let len = 16 + elements.len() + data.len();
        let overflow = len.div_ceil(PAGE) - 1;
        let mut bytes = Self::header(page, 2, entries.len() as u16, overflow as u32);
        bytes.extend(elements);
        bytes.extend(data);
        bytes.resize((overflow + 1) * PAGE, 0);
        self.0.resize(self.0.len().max(page + overflow + 1), vec![0; PAGE]);
        for (i, part) in bytes.chunks(PAGE).enumerate() {
            self.0[page + i] = part.to_vec();
        }
    }

    fn branch(&mut self, page: usize, children: &[u64]) {
        let mut bytes = Self::header(page, 1, children.len() as u16, 0);
        for child in children {
            bytes.extend([0; 8]);
            bytes.extend(child.to_le_bytes());
        }
        bytes.resize(PAGE, 0);
        self.0.resize(self.0.len().max(page + 1), vec![0; PAGE]);
        self.0[page] = bytes;
    }

    fn bytes(&self) -> Vec<u8> {
        let mut pages = self.0.clone();
        for (page, place) in pages.iter_mut().enumerate().take(2) {
            let mut meta = Vec::new();
            for number in [0xED0C_DAEDu32, 2, PAGE as u32, 0] {
                meta.extend(number.to_le_bytes());
            }
            for number in [2, 0, 9, self.0.len() as u64, page as u64] {
                meta.extend(number.to_le_bytes());
            }
            let sum = meta
                .iter()
                .fold(0xCBF2_9CE4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01B3));
            meta.extend(sum.to_le_bytes());
            let mut bytes = Self::header(page, 4, 0, 0);
            bytes.extend(meta);
            bytes.resize(PAGE, 0);
            *place = bytes;
        }
        pages.concat()
    }
}

fn version(revision: i64, key: &str, value: Option<&str>) -> (u32, Vec<u8>, Vec<u8>) {
    let mut at = revision.to_be_bytes().to_vec();
    at.push(b'_');
    at.extend(0i64.to_be_bytes());
    if value.is_none() {
        at.push(b't');
    }
    let entry = RawEntry {
        key: key.as_bytes(),
        value: value.unwrap_or("").as_bytes(),
        mod_revision: revision,
        ..RawEntry::default()
    };
    let mut bytes = Vec::new();
    crate::protobuf::put_key_value(&mut bytes, &entry);
    (0, at, bytes)
}

fn example() -> Database {
    let mut database = Database::new();
    let long = "x".repeat(3 * PAGE);
    database.branch(3, &[4, 5]);
    database.leaf(
        4,
        &[
            version(2, "/calico/a", Some("1")),
            version(3, "/calico/b", Some("1")),
            version(4, "/other", Some("1")),
        ],
    );
    database.leaf(
        5,
        &[
            version(5, "/calico/a", Some(&long)),
            version(6, "/calico/b", None),
            version(7, "/calico/c", Some("3")),
        ],
    );
    database
}

fn read_bytes(bytes: &[u8]) -> Result<(SnapshotInfo, BTreeMap<String, RawKv>)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snap.db");
    std::fs::write(&path, bytes).unwrap();
    read_file(&path)
}

fn read_file(path: &Path) -> Result<(SnapshotInfo, BTreeMap<String, RawKv>)> {
    let mut found = BTreeMap::new();
    let info = read(
        path,
        |key| key.starts_with(b"/calico/"),
        |entry| {
            found.insert(String::from_utf8_lossy(entry.key).into_owned(), (*entry).to_owned());
        },
    )?;
    Ok((info, found))
}

fn kind(bytes: &[u8]) -> FileError {
    match read_bytes(bytes) {
        Err(Error { kind, .. }) => kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_newest_live_versions_come_out() {
    let (info, found) = read_bytes(&example().bytes()).unwrap();
    assert_eq!(info, SnapshotInfo { revision: 7, entries: 2, verified: false });
    assert_eq!(found.keys().collect::<Vec<_>>(), ["/calico/a", "/calico/c"]);
    assert_eq!((found["/calico/a"].value.len(), found["/calico/a"].mod_revision), (3 * PAGE, 5));
}

#[test]
fn the_checksum_is_verified() {
    let mut bytes = example().bytes();
    bytes.extend(sha256(&bytes));
    assert!(read_bytes(&bytes).unwrap().0.verified);
    let end = bytes.len() - 40;
    bytes[end] ^= 1;
    assert!(matches!(kind(&bytes), FileError::SnapshotChecksum));

    let mut looped = example();
    looped.branch(3, &[4, 3]);
    let damaged = looped.bytes();
    let with = |checksum: &[u8]| kind(&[&damaged, checksum].concat());
    assert!(matches!(with(&sha256(&damaged)), FileError::SnapshotDamaged(_)));
    assert!(matches!(with(&[0; 32]), FileError::SnapshotChecksum), "it explains all other damage");
}

#[test]
fn cut_files_and_other_files_are_errors() {
    let whole = example().bytes();
    for len in (0..whole.len()).step_by(509).chain([1, 16, 79, PAGE - 1, PAGE, PAGE + 1]) {
        assert!(read_bytes(&whole[..len]).is_err(), "cut at {len}");
    }
    assert!(matches!(kind(b""), FileError::Empty));
    assert!(matches!(kind(&vec![7; 2 * PAGE]), FileError::UnknownKind(_)));
}

#[test]
fn loops_and_nonsense_end() {
    let mut looped = example();
    looped.branch(3, &[4, 3]);
    assert!(matches!(kind(&looped.bytes()), FileError::SnapshotDamaged(_)));
    let mut outside = example();
    outside.branch(3, &[4, 1 << 40]);
    assert!(matches!(kind(&outside.bytes()), FileError::SnapshotDamaged(_)));
    let mut no_keys = example();
    no_keys.leaf(2, &[(1, b"meta".to_vec(), vec![0; 16])]);
    assert!(matches!(kind(&no_keys.bytes()), FileError::SnapshotDamaged(_)));
}

#[test]
fn no_flipped_byte_makes_it_panic() {
    let whole = example().bytes();
    for at in (0..whole.len()).filter(|at| whole[*at] != 0 && whole[*at] != b'x') {
        for flip in [0xFF, 0x80, 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            // Any error or content is fine, as long as the read ends.
            if let Ok((info, found)) = read_bytes(&bytes) {
                assert!(found.len() as u64 <= info.entries, "byte {at}");
            }
        }
    }
}
