//! Pages of a bbolt database. Every number of the file is checked before it is used.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};

use super::FileResult;
use super::meta::{Meta, PAGE_HEADER, number};
use crate::error::FileError;

const BRANCH: u64 = 1;
const LEAF: u64 = 2;
/// Length of an element of a branch or leaf.
const ELEMENT: usize = 16;
/// Deeper trees do not exist: a tree of this depth would have more pages than a disk.
const MAX_DEPTH: u32 = 48;
/// A page with what overflows from it is never larger than this: etcd limits requests to far less.
const MAX_PAGE: u64 = 1 << 30;

/// The pages of a file.
pub(crate) struct Pages {
    file: File,
    page_size: u64,
    count: u64,
}

/// An element of a leaf page.
pub(crate) struct Element<'a> {
    pub is_bucket: bool,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl Pages {
    pub fn new(file: File, meta: &Meta) -> FileResult<Self> {
        let (page_size, len) = (u64::from(meta.page_size), file.metadata()?.len());
        let needed = meta.pages.saturating_mul(page_size);
        if len < needed {
            return Err(FileError::SnapshotCut(format!("{len} of {needed} bytes are there")));
        }
        Ok(Self { file, page_size, count: meta.pages })
    }

    /// Visits every element of the tree below page `root`, in order.
    pub fn walk(
        &mut self,
        root: u64,
        visit: &mut impl FnMut(&Element<'_>) -> FileResult<()>,
    ) -> FileResult<()> {
        let mut left = self.count;
        self.descend(root, 0, &mut left, visit)
    }

    fn descend(
        &mut self,
        page: u64,
        depth: u32,
        left: &mut u64,
        visit: &mut impl FnMut(&Element<'_>) -> FileResult<()>,
    ) -> FileResult<()> {
        // A tree visits no page twice, so that it cannot visit more than there are.
        *left = left
            .checked_sub(1)
            .filter(|_| depth < MAX_DEPTH)
            .ok_or_else(|| damaged(page, "is part of a loop"))?;
        let bytes = self.load(page)?;
        let count = number(&bytes, 10, 2).unwrap_or_default() as usize;
        match number(&bytes, 8, 2).unwrap_or_default() {
            BRANCH => {
                for i in 0..count {
                    let child = number(&bytes, PAGE_HEADER + i * ELEMENT + 8, 8);
                    let child = child.ok_or_else(|| damaged(page, "is shorter than it says"))?;
                    self.descend(child, depth + 1, left, visit)?;
                }
                Ok(())
            }
            LEAF => (0..count).try_for_each(|i| {
                let element =
                    leaf_element(&bytes, i).ok_or_else(|| damaged(page, "has an element outside of it"))?;
                visit(&element)
            }),
            flags => Err(damaged(page, &format!("is neither branch nor leaf (flags {flags:#x})"))),
        }
    }

    /// The bytes of a page with what overflows from it.
    fn load(&mut self, page: u64) -> FileResult<Vec<u8>> {
        if page >= self.count {
            return Err(damaged(page, "lies after the last one"));
        }
        let mut bytes = vec![0; self.page_size as usize];
        self.file.seek(SeekFrom::Start(page * self.page_size))?;
        self.fill(&mut bytes)?;
        if number(&bytes, 0, 8) != Some(page) {
            return Err(damaged(page, "states another number"));
        }
        let overflow = number(&bytes, 12, 4).unwrap_or_default();
        let len = (overflow + 1) * self.page_size;
        if page + overflow >= self.count || len > MAX_PAGE {
            return Err(damaged(page, "overflows the file"));
        }
        let first = bytes.len();
        bytes.resize(len as usize, 0);
        self.fill(&mut bytes[first..])?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> FileResult<()> {
        self.file.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => FileError::SnapshotCut("it ends within a page".into()),
            _ => FileError::Io(error),
        })
    }
}

fn leaf_element(bytes: &[u8], index: usize) -> Option<Element<'_>> {
    let at = PAGE_HEADER + index * ELEMENT;
    let part = |offset| number(bytes, at + offset, 4).map(|n| n as usize);
    let key_at = at.checked_add(part(4)?)?;
    let value_at = key_at.checked_add(part(8)?)?;
    let end = value_at.checked_add(part(12)?)?;
    let (key, value) = (bytes.get(key_at..value_at)?, bytes.get(value_at..end)?);
    Some(Element { is_bucket: part(0)? & 1 != 0, key, value })
}

/// The root page of a bucket, from the value of its element; 0 where the bucket is inline.
pub(crate) fn bucket_root(value: &[u8]) -> FileResult<u64> {
    number(value, 0, 8).ok_or_else(|| FileError::SnapshotDamaged("a bucket has no root".into()))
}

fn damaged(page: u64, what: &str) -> FileError {
    FileError::SnapshotDamaged(format!("page {page} {what}"))
}
