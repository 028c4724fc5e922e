//! The two meta pages of a bbolt database. The newer valid one is used.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use super::FileResult;
use crate::error::FileError;

/// The number by which bbolt recognizes a meta page of its files.
const MAGIC: u32 = 0xED0C_DAED;
/// The only version of bbolt's file format.
const VERSION: u32 = 2;
/// Length of a page header.
pub(crate) const PAGE_HEADER: usize = 16;
/// Length of the metadata covered by the checksum.
const CHECKED: usize = 56;
/// The page sizes of the operating systems on which etcd runs; bbolt takes the page size of the system.
const PAGE_SIZES: [u32; 5] = [4096, 8192, 16384, 32768, 65536];

/// The fields of a meta page that are needed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub page_size: u32,
    /// The root page of the root bucket.
    pub root: u64,
    /// Number of pages, including free ones.
    pub pages: u64,
    /// The number of the transaction that wrote the page. If both pages are valid, the one with the higher number is
    /// used.
    transaction: u64,
}

/// True if a file that begins with `head` could be a bbolt database. A `head` of a little over 64 KiB is enough.
pub(crate) fn looks_like_snapshot(head: &[u8]) -> bool {
    let has_magic = |at: usize| number(head, at + PAGE_HEADER, 4) == Some(u64::from(MAGIC));
    has_magic(0) || PAGE_SIZES.iter().any(|size| has_magic(*size as usize))
}

impl Meta {
    /// Reads the newer valid meta page.
    pub(super) fn read(file: &mut File) -> FileResult<Self> {
        // The second meta page follows the first one, whose size is not known yet.
        let largest_page = u64::from(PAGE_SIZES[PAGE_SIZES.len() - 1]);
        let mut head = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.take(largest_page + 4096).read_to_end(&mut head)?;
        if head.is_empty() {
            return Err(FileError::Empty);
        }
        if !looks_like_snapshot(&head) {
            return Err(FileError::UnknownKind(String::new()));
        }

        let mut newest: Option<Self> = Self::parse(&head, 0);
        for page_size in PAGE_SIZES {
            let Some(meta) = Self::parse(&head, page_size as usize) else {
                continue;
            };
            if newest
                .as_ref()
                .is_none_or(|other| meta.transaction >= other.transaction)
            {
                newest = Some(meta);
            }
        }
        if let Some(newest) = newest {
            return Ok(newest);
        }
        if head.len() < PAGE_SIZES[0] as usize {
            return Err(FileError::SnapshotCut("it ends within its first page".into()));
        }
        Err(FileError::SnapshotDamaged(
            "neither of its two meta pages is valid".into(),
        ))
    }

    /// Reads the meta page at `at`, if it is valid.
    fn parse(head: &[u8], at: usize) -> Option<Self> {
        let meta = head.get(at + PAGE_HEADER..)?;
        let is_valid = number(meta, 0, 4)? == u64::from(MAGIC)
            && number(meta, 4, 4)? == u64::from(VERSION)
            && number(meta, CHECKED, 8)? == fnv1a(meta.get(..CHECKED)?);
        let page_size = number(meta, 8, 4)? as u32;
        // The second meta page begins at the end of the first.
        let is_placed = PAGE_SIZES.contains(&page_size) && (at == 0 || at == page_size as usize);
        (is_valid && is_placed).then_some(Self {
            page_size,
            root: number(meta, 16, 8)?,
            pages: number(meta, 40, 8)?,
            transaction: number(meta, 48, 8)?,
        })
    }
}

/// The little-endian number of `len` bytes at `at`.
pub(crate) fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
    })
}
