//! Pages of a bbolt database. Every number in the file is checked before use.

use std::fs::File;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};

use super::FileResult;
use super::meta::{Meta, PAGE_HEADER, number};
use crate::error::FileError;
use crate::regular;

/// The flag in the header of a page with references to other pages.
const BRANCH: u64 = 1;
/// The flag in the header of a page with keys and values.
const LEAF: u64 = 2;
/// Length of an element of a branch or leaf.
const ELEMENT: usize = 16;
/// Maximum depth of a tree: with more levels, it would have more pages than fit on a disk.
const MAX_DEPTH: u32 = 48;
/// Maximum average number of reads per page. A page is in the tree only once, and is read once to find the parts of the
/// tree, and twice for entries.
const READS: u64 = 4;
/// Maximum size of a page with its overflow pages: etcd limits requests to far less.
const MAX_PAGE: u64 = 1 << 30;

pub(crate) struct Pages {
    file: File,
    page_size: u64,
    count: u64,
    /// The number of pages read.
    read: AtomicU64,
}

/// An element of a leaf page.
pub(crate) struct Element<'a> {
    pub is_bucket: bool,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl Pages {
    /// Makes the pages of a file readable, after a check that the file is as long as its meta page says.
    pub(super) fn new(file: File, meta: &Meta) -> FileResult<Self> {
        let page_size = u64::from(meta.page_size);
        let len = file.metadata()?.len();
        let needed = meta.pages.saturating_mul(page_size);
        if len < needed {
            return Err(FileError::SnapshotCut(format!(
                "it has only {len} of {needed} bytes"
            )));
        }
        Ok(Self {
            file,
            page_size,
            count: meta.pages,
            read: AtomicU64::new(0),
        })
    }

    /// Visits every element of the tree below page `root`, in order.
    pub(super) fn walk(
        &self,
        root: u64,
        visit: &mut impl FnMut(&Element<'_>) -> FileResult<()>,
    ) -> FileResult<()> {
        Walk {
            pages: self,
            bytes: Vec::new(),
        }
        .descend(root, 0, visit)
    }

    /// Parts of the tree below page `root`, in order, small enough to share the work among threads. If all leaves have
    /// the same depth, as in all trees that bbolt writes, the parts are the leaves.
    pub(super) fn subtrees(&self, root: u64) -> FileResult<Vec<u64>> {
        let mut level = vec![root];
        let mut bytes = Vec::new();
        for _ in 0..MAX_DEPTH {
            let Some(first) = level.first() else { break };
            self.load(*first, &mut bytes)?;
            if kind(&bytes) != BRANCH {
                break;
            }
            level = self.next_level(level, &mut bytes)?;
        }
        Ok(level)
    }

    /// Replaces each branch by the pages below it, and keeps all other pages.
    fn next_level(&self, level: Vec<u64>, bytes: &mut Vec<u8>) -> FileResult<Vec<u64>> {
        let mut next_level = Vec::new();
        for page in level {
            self.load(page, bytes)?;
            match kind(bytes) {
                BRANCH => next_level.extend(children(page, bytes)?),
                _ => next_level.push(page),
            }
        }
        Ok(next_level)
    }

    /// Reads a page with its overflow pages into `bytes`. Fails after more reads than any sound file needs, since the
    /// pages of a damaged file can form a loop.
    fn load(&self, page: u64, bytes: &mut Vec<u8>) -> FileResult<()> {
        if page >= self.count {
            return Err(damaged(page, "is after the last page"));
        }
        if self.read.fetch_add(1, Ordering::Relaxed) > READS * self.count {
            return Err(damaged(page, "is part of a loop"));
        }
        bytes.resize(self.page_size as usize, 0);
        self.fill(bytes, page * self.page_size)?;
        if number(bytes, 0, 8) != Some(page) {
            return Err(damaged(page, "states a different page number"));
        }
        let overflow = number(bytes, 12, 4).unwrap_or_default();
        let len = (overflow + 1) * self.page_size;
        if page + overflow >= self.count || len > MAX_PAGE {
            return Err(damaged(page, "extends beyond the file"));
        }
        // The page header states the number of overflow pages, so these can only be read now.
        let first = bytes.len();
        bytes.resize(len as usize, 0);
        self.fill(&mut bytes[first..], (page + 1) * self.page_size)
    }

    fn fill(&self, bytes: &mut [u8], offset: u64) -> FileResult<()> {
        regular::read_exact_at(&self.file, bytes, offset).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => FileError::SnapshotCut("it ends within a page".into()),
            _ => FileError::Io(error),
        })
    }
}

/// A traversal of a tree.
struct Walk<'p> {
    pages: &'p Pages,
    /// The current page.
    bytes: Vec<u8>,
}

impl Walk<'_> {
    /// Visits the elements of a page and of the pages below it, in their order. `depth` is the number of pages above
    /// it, which is limited, since the pages of a damaged file can form a loop.
    fn descend(
        &mut self,
        page: u64,
        depth: u32,
        visit: &mut impl FnMut(&Element<'_>) -> FileResult<()>,
    ) -> FileResult<()> {
        if depth >= MAX_DEPTH {
            return Err(damaged(page, "is part of a loop"));
        }
        self.pages.load(page, &mut self.bytes)?;
        match kind(&self.bytes) {
            BRANCH => {
                for child in children(page, &self.bytes)? {
                    self.descend(child, depth + 1, visit)?;
                }
                Ok(())
            }
            LEAF => visit_leaf(page, &self.bytes, visit),
            flags => Err(damaged(
                page,
                &format!("is neither branch nor leaf (flags {flags:#x})"),
            )),
        }
    }
}

/// Visits the elements of a leaf page, in their order.
fn visit_leaf(
    page: u64,
    bytes: &[u8],
    visit: &mut impl FnMut(&Element<'_>) -> FileResult<()>,
) -> FileResult<()> {
    for index in 0..elements(bytes) {
        let Some(element) = leaf_element(bytes, index) else {
            return Err(damaged(page, "has an element outside the page"));
        };
        visit(&element)?;
    }
    Ok(())
}

/// The type of a page.
fn kind(bytes: &[u8]) -> u64 {
    number(bytes, 8, 2).unwrap_or_default()
}

fn elements(bytes: &[u8]) -> usize {
    number(bytes, 10, 2).unwrap_or_default() as usize
}

/// The pages below a branch.
fn children(page: u64, bytes: &[u8]) -> FileResult<Vec<u64>> {
    let mut children = Vec::new();
    for index in 0..elements(bytes) {
        let Some(child) = number(bytes, PAGE_HEADER + index * ELEMENT + 8, 8) else {
            return Err(damaged(page, "is shorter than it says"));
        };
        children.push(child);
    }
    Ok(children)
}

/// The key and the value of an element of a leaf page; `None` if they are not within the page.
fn leaf_element(bytes: &[u8], index: usize) -> Option<Element<'_>> {
    let start = PAGE_HEADER + index * ELEMENT;
    let flags = number(bytes, start, 4)?;
    let key_offset = number(bytes, start + 4, 4)? as usize;
    let key_len = number(bytes, start + 8, 4)? as usize;
    let value_len = number(bytes, start + 12, 4)? as usize;

    let key_start = start.checked_add(key_offset)?;
    let value_start = key_start.checked_add(key_len)?;
    let value_end = value_start.checked_add(value_len)?;
    Some(Element {
        is_bucket: flags & 1 != 0,
        key: bytes.get(key_start..value_start)?,
        value: bytes.get(value_start..value_end)?,
    })
}

/// The root page of a bucket, from the value of its element; 0 if the bucket is inline.
pub(crate) fn bucket_root(value: &[u8]) -> FileResult<u64> {
    number(value, 0, 8).ok_or_else(|| FileError::SnapshotDamaged("a bucket has no root".into()))
}

fn damaged(page: u64, what: &str) -> FileError {
    FileError::SnapshotDamaged(format!("page {page} {what}"))
}
