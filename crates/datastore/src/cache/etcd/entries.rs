//! Entries of etcd as they are in a cache: blocks, handles and endpoints in the form that they have in memory, all else as
//! etcd has it.

use calipam_files::raw::RawEntry;
use calipam_model::compact::{Compact, push_number, push_sized, take_byte, take_bytes, take_u64};
use calipam_model::endpoint::Endpoint;
use calipam_model::handle::Handle;
use calipam_model::snapshot::{Revision, Snapshot, StoredBlock, Versioned};

const AS_STORED: u8 = 0;
const BLOCK: u8 = 1;
const HANDLE: u8 = 2;
const ENDPOINT: u8 = 3;
/// Of a change: nothing is stored under the key any more.
const DELETED: u8 = 4;

/// An entry of a cache.
pub(super) enum Entry<'t> {
    Block(Versioned<StoredBlock>),
    Handle(Versioned<Handle>),
    Endpoint(Versioned<Endpoint>),
    /// All else, and what has no compact form.
    AsStored(RawEntry<'t>),
}

impl Entry<'_> {
    pub(super) fn add_to(self, snapshot: &mut Snapshot) {
        match self {
            Self::Block(block) => snapshot.blocks.push(block),
            Self::Handle(handle) => snapshot.handles.push(handle),
            Self::Endpoint(endpoint) => snapshot.endpoints.push(endpoint),
            Self::AsStored(entry) => snapshot.add_entry(entry.key, entry.value, entry.mod_revision),
        }
    }
}

/// Adds an entry to a snapshot, and to the entries of a cache. True if that has its compact form, which does not say when
/// the object was created.
pub(super) fn add(snapshot: &mut Snapshot, entry: RawEntry<'_>, out: &mut Vec<u8>) -> bool {
    // By kind. What cannot be decoded in part or at all is decoded again each time.
    let lengths = |s: &Snapshot| [s.defects.len(), s.blocks.len(), s.handles.len(), s.endpoints.len()];
    let before = lengths(snapshot);
    snapshot.add_entry(entry.key, entry.value, entry.mod_revision);

    let grown = lengths(snapshot).into_iter().zip(before).position(|(now, before)| now > before);
    let is_compact = match grown.map_or(AS_STORED, |kind| kind as u8) {
        BLOCK => push(out, BLOCK, entry.mod_revision, snapshot.blocks.last()),
        HANDLE => push(out, HANDLE, entry.mod_revision, snapshot.handles.last()),
        ENDPOINT => push(out, ENDPOINT, entry.mod_revision, snapshot.endpoints.last()),
        _ => false,
    };
    if !is_compact {
        push_head(out, AS_STORED, entry.mod_revision);
        push_sized(out, entry.key);
        push_sized(out, entry.value);
    }
    is_compact
}

/// Appends an object. False, and nothing appended, if it has no compact form.
fn push<T: Compact>(out: &mut Vec<u8>, kind: u8, revision: i64, object: Option<&Versioned<T>>) -> bool {
    let start = out.len();
    push_head(out, kind, revision);
    let is_whole = object.is_some_and(|object| object.value.push_compact(out));
    if !is_whole {
        out.truncate(start);
    }
    is_whole
}

fn push_head(out: &mut Vec<u8>, kind: u8, revision: i64) {
    out.push(kind);
    push_number(out, revision as usize);
}

/// Takes an entry; `None` if there is none.
pub(super) fn take<'t>(bytes: &mut &'t [u8]) -> Option<Entry<'t>> {
    let kind = take_byte(bytes)?;
    take_kind(kind, bytes)
}

fn take_kind<'t>(kind: u8, bytes: &mut &'t [u8]) -> Option<Entry<'t>> {
    let mod_revision = take_u64(bytes)? as i64;
    let revision = Revision::Etcd(mod_revision);
    Some(match kind {
        AS_STORED => {
            let (key, value) = (take_bytes(bytes)?, take_bytes(bytes)?);
            Entry::AsStored(RawEntry { key, value, mod_revision, ..RawEntry::default() })
        }
        BLOCK => Entry::Block(Versioned { value: StoredBlock::take_compact(bytes)?, revision }),
        HANDLE => Entry::Handle(Versioned { value: Handle::take_compact(bytes)?, revision }),
        ENDPOINT => Entry::Endpoint(Versioned { value: Endpoint::take_compact(bytes)?, revision }),
        _ => return None,
    })
}

/// Reads entries; `None` if they are none.
pub(super) fn read(mut bytes: &[u8]) -> Option<Snapshot> {
    let mut snapshot = Snapshot::default();
    while !bytes.is_empty() {
        take(&mut bytes)?.add_to(&mut snapshot);
    }
    Some(snapshot)
}

/// Appends the key of a change. What is stored under it follows: an entry, or [`push_deletion`].
pub(super) fn push_key(out: &mut Vec<u8>, key: &[u8]) {
    push_sized(out, key);
}

/// Appends that nothing is stored under a key any more.
pub(super) fn push_deletion(out: &mut Vec<u8>) {
    out.push(DELETED);
}

/// Takes a change: its key and what is stored under it since, `None` if it is deleted.
pub(super) fn take_change<'t>(bytes: &mut &'t [u8]) -> Option<(&'t [u8], Option<Entry<'t>>)> {
    let key = take_bytes(bytes)?;
    match take_byte(bytes)? {
        DELETED => Some((key, None)),
        kind => Some((key, Some(take_kind(kind, bytes)?))),
    }
}
