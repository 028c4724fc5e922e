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
        database.leaf(2, &[(1, b"key".to_vec(), longs([3, 0]))]);
        database
    }

    fn header(page: usize, flags: u32, count: usize, overflow: usize) -> Vec<u8> {
        [
            longs([page as u64]),
            words([flags | (count as u32) << 16, overflow as u32]),
        ]
        .concat()
    }

    /// Writes a leaf, with as many overflow pages as it needs.
    fn leaf(&mut self, page: usize, entries: &[(u32, Vec<u8>, Vec<u8>)]) {
        let mut elements = Vec::new();
        let mut data: Vec<u8> = Vec::new();
        for (i, (flags, key, value)) in entries.iter().enumerate() {
            let pos = (entries.len() - i) * 16 + data.len();
            elements.extend(words([*flags, pos as u32, key.len() as u32, value.len() as u32]));
            data.extend(key);
            data.extend(value);
        }
        let len = 16 + elements.len() + data.len();
        let overflow = len.div_ceil(PAGE) - 1;
        let mut bytes = Self::header(page, 2, entries.len(), overflow);
        bytes.extend(elements);
        bytes.extend(data);
        bytes.resize((overflow + 1) * PAGE, 0);
        self.0
            .resize(self.0.len().max(page + overflow + 1), vec![0; PAGE]);
        for (i, part) in bytes.chunks(PAGE).enumerate() {
            self.0[page + i] = part.to_vec();
        }
    }

    fn branch(&mut self, page: usize, children: &[u64]) {
        let mut bytes = Self::header(page, 1, children.len(), 0);
        children.iter().for_each(|child| bytes.extend(longs([0, *child])));
        bytes.resize(PAGE, 0);
        self.0.resize(self.0.len().max(page + 1), vec![0; PAGE]);
        self.0[page] = bytes;
    }

    fn bytes(&self) -> Vec<u8> {
        let mut pages = self.0.clone();
        for (page, place) in pages.iter_mut().enumerate().take(2) {
            let numbers = longs([2, 0, 9, self.0.len() as u64, page as u64]);
            let meta = [words([0xED0C_DAED, 2, PAGE as u32, 0]), numbers].concat();
            let hash = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01B3);
            let sum = meta.iter().fold(0xCBF2_9CE4_8422_2325, hash);
            let mut bytes = [Self::header(page, 4, 0, 0), meta, longs([sum])].concat();
            bytes.resize(PAGE, 0);
            *place = bytes;
        }
        pages.concat()
    }
}

fn words<const N: usize>(numbers: [u32; N]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn longs<const N: usize>(numbers: [u64; N]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
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
    let [a, b, other, c] = ["/calico/a", "/calico/b", "/other", "/calico/c"];
    database.leaf(
        4,
        &[
            version(2, a, Some("1")),
            version(3, b, Some("1")),
            version(4, other, Some("1")),
        ],
    );
    database.leaf(
        5,
        &[
            version(5, a, Some(&long)),
            version(6, b, None),
            version(7, c, Some("3")),
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
            found.insert(
                String::from_utf8_lossy(entry.key).into_owned(),
                (*entry).to_owned(),
            );
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
    assert_eq!(
        info,
        SnapshotInfo {
            revision: 7,
            entries: 2,
            verified: false
        }
    );
    assert_eq!(found.keys().collect::<Vec<_>>(), ["/calico/a", "/calico/c"]);
    assert_eq!(
        (found["/calico/a"].value.len(), found["/calico/a"].mod_revision),
        (3 * PAGE, 5)
    );
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
    assert!(
        matches!(with(&[0; 32]), FileError::SnapshotChecksum),
        "it explains all other damage"
    );
}

#[test]
fn cut_files_and_other_files_are_errors() {
    let whole = example().bytes();
    for len in (0..whole.len())
        .step_by(509)
        .chain([1, 16, 79, PAGE - 1, PAGE, PAGE + 1])
    {
        assert!(read_bytes(&whole[..len]).is_err(), "cut at {len}");
    }
    assert!(matches!(kind(b""), FileError::Empty));
    assert!(matches!(kind(&vec![7; 2 * PAGE]), FileError::UnknownKind(_)));
}

#[test]
fn loops_and_nonsense_end() {
    let damages: [fn(&mut Database); 3] = [
        |looped| looped.branch(3, &[4, 3]),
        |outside| outside.branch(3, &[4, 1 << 40]),
        |no_keys| no_keys.leaf(2, &[(1, b"meta".to_vec(), vec![0; 16])]),
    ];
    for damage in damages {
        let mut database = example();
        damage(&mut database);
        assert!(matches!(kind(&database.bytes()), FileError::SnapshotDamaged(_)));
    }
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
