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

// The offsets of the fields after the page header.
const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 4;
const PAGE_SIZE_AT: usize = 8;
const ROOT_AT: usize = 16;
const PAGES_AT: usize = 40;
const TRANSACTION_AT: usize = 48;
/// The checksum covers all bytes before it.
const CHECKSUM_AT: usize = 56;

/// The page sizes of the operating systems on which etcd runs; bbolt takes the page size of the system.
const PAGE_SIZES: [u32; 5] = [4096, 8192, 16384, 32768, 65536];

/// The size of the smallest page, which is more than the fields of a meta page need.
const SMALLEST_PAGE: u64 = PAGE_SIZES[0] as u64;

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
    let has_magic = |page_start: usize| number(head, page_start + PAGE_HEADER, 4) == Some(u64::from(MAGIC));
    has_magic(0) || PAGE_SIZES.iter().any(|size| has_magic(*size as usize))
}

impl Meta {
    /// Reads the newer valid meta page.
    pub(super) fn read(file: &mut File) -> FileResult<Self> {
        // The second meta page follows the first one, whose size is not known yet.
        let largest_page = u64::from(PAGE_SIZES[PAGE_SIZES.len() - 1]);
        let mut head = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.take(largest_page + SMALLEST_PAGE).read_to_end(&mut head)?;
        if head.is_empty() {
            return Err(FileError::Empty);
        }
        if !looks_like_snapshot(&head) {
            return Err(FileError::UnknownKind(String::new()));
        }

        if let Some(newest) = Self::newest(&head) {
            return Ok(newest);
        }
        if head.len() < PAGE_SIZES[0] as usize {
            return Err(FileError::SnapshotCut("it ends within its first page".into()));
        }
        Err(FileError::SnapshotDamaged(
            "neither of its two meta pages is valid".into(),
        ))
    }

    /// Returns the newest meta page in the first bytes of a file; `None` if none is valid.
    fn newest(head: &[u8]) -> Option<Self> {
        // The second page begins at one of the page sizes.
        let starts_of_second = PAGE_SIZES.map(|page_size| page_size as usize);
        let starts = [0].into_iter().chain(starts_of_second);
        let metas = starts.filter_map(|start| Self::parse(head, start));
        metas.max_by_key(|meta| meta.transaction)
    }

    /// Reads the meta page that starts at `page_start`; `None` if it is not valid.
    fn parse(head: &[u8], page_start: usize) -> Option<Self> {
        let meta = head.get(page_start + PAGE_HEADER..)?;
        let is_valid = number(meta, MAGIC_AT, 4)? == u64::from(MAGIC)
            && number(meta, VERSION_AT, 4)? == u64::from(VERSION)
            && number(meta, CHECKSUM_AT, 8)? == fnv1a(meta.get(..CHECKSUM_AT)?);
        let page_size = number(meta, PAGE_SIZE_AT, 4)? as u32;
        // The second meta page begins at the end of the first.
        let is_start = page_start == 0 || page_start == page_size as usize;
        if !is_valid || !is_start || !PAGE_SIZES.contains(&page_size) {
            return None;
        }
        Some(Self {
            page_size,
            root: number(meta, ROOT_AT, 8)?,
            pages: number(meta, PAGES_AT, 8)?,
            transaction: number(meta, TRANSACTION_AT, 8)?,
        })
    }
}

/// Returns the little-endian number in the `len` bytes from `offset` on; `None` if there are not so many.
pub(crate) fn number(bytes: &[u8], offset: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset.checked_add(len)?)?;
    let mut number = 0;
    for byte in bytes.iter().rev() {
        number = number << 8 | u64::from(*byte);
    }
    Some(number)
}

/// The FNV-1a hash with 64 bits, bbolt's checksum.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
    })
}
