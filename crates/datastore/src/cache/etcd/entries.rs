//! Entries of etcd as they stand in a cache: blocks, handles and endpoints in the form that they have in memory, all else as
//! etcd has it.

use calipam_model::block::{Block, BlockContent};
use calipam_model::changes::NewValue;
use calipam_model::compact::{Compact, push_number, push_sized, take_byte, take_bytes, take_u64, take_utf8};
use calipam_model::endpoint::Endpoint;
use calipam_model::handle::Handle;
use calipam_model::snapshot::{Revision, Snapshot, StoredBlock, Versioned};
use jiff::Timestamp;

use crate::raw::RawEntry;

const AS_STORED: u8 = 0;
const BLOCK: u8 = 1;
const HANDLE: u8 = 2;
const ENDPOINT: u8 = 3;

/// Adds an entry to a snapshot, and to the entries of a cache. Gives when the object was created, where its compact form does
/// not say that.
pub(super) fn add(snapshot: &mut Snapshot, entry: RawEntry<'_>, out: &mut Vec<u8>) {
    let lengths = |s: &Snapshot| [s.blocks.len(), s.handles.len(), s.endpoints.len(), s.defects.len()];
    let before = lengths(snapshot);
    snapshot.add_entry(entry.key, entry.value, entry.mod_revision);
    let [blocks, handles, endpoints, defects] = before;
    let start = out.len();

    let mut push = |kind: u8, push: &dyn Fn(&mut Vec<u8>) -> bool| {
        out.push(kind);
        push_number(out, entry.mod_revision as usize);
        let is_whole = push(out);
        if !is_whole {
            out.truncate(start);
        }
        is_whole
    };
    let is_compact = match lengths(snapshot) {
        // What cannot be decoded in part or at all is decoded again each time.
        [.., now] if now > defects => false,
        [now, ..] if now > blocks => snapshot.blocks.last().is_some_and(|block| match &block.value.content {
            BlockContent::Sound(sound) if sound.cidr() == block.value.key => {
                push(BLOCK, &|out| sound.push_compact(out))
            }
            _ => false,
        }),
        [_, now, ..] if now > handles => {
            snapshot.handles.last().is_some_and(|handle| push(HANDLE, &|out| handle.value.push_compact(out)))
        }
        [_, _, now, _] if now > endpoints => snapshot
            .endpoints
            .last()
            .is_some_and(|endpoint| push(ENDPOINT, &|out| endpoint.value.push_compact(out))),
        _ => false,
    };
    if !is_compact {
        push(AS_STORED, &|out| {
            push_sized(out, entry.key);
            push_sized(out, entry.value);
            true
        });
    }
}

/// What stands before the entries: when the newest of them was created.
pub(super) fn begin(newest_creation: Option<Timestamp>) -> Vec<u8> {
    let mut out = Vec::new();
    push_sized(&mut out, newest_creation.map(|time| time.to_string()).unwrap_or_default().as_bytes());
    out
}

/// Reads entries; `None` where they are none.
pub(super) fn read(mut bytes: &[u8]) -> Option<Snapshot> {
    let mut snapshot = Snapshot::default();
    let created = take_utf8(&mut bytes)?;
    if !created.is_empty() {
        snapshot.newest_creation = Some(created.parse().ok()?);
    }
    while !bytes.is_empty() {
        let kind = take_byte(&mut bytes)?;
        let number = take_u64(&mut bytes)? as i64;
        let revision = Revision::Etcd(number);
        match kind {
            AS_STORED => {
                let key = take_bytes(&mut bytes)?;
                snapshot.add_entry(key, take_bytes(&mut bytes)?, number);
            }
            BLOCK => {
                let block = Block::take_compact(&mut bytes)?;
                let key = block.cidr();
                let value = StoredBlock { key, content: BlockContent::Sound(Box::new(block)) };
                snapshot.blocks.push(Versioned { value, revision });
            }
            HANDLE => {
                let value = Handle::take_compact(&mut bytes)?;
                snapshot.handles.push(Versioned { value, revision });
            }
            ENDPOINT => {
                let value = Endpoint::take_compact(&mut bytes)?;
                snapshot.endpoints.push(Versioned { value, revision });
            }
            _ => return None,
        }
    }
    Some(snapshot)
}

/// Appends a change.
pub(super) fn push_change(out: &mut Vec<u8>, key: &[u8], value: &NewValue) {
    push_sized(out, key);
    match value {
        None => out.push(0),
        Some((value, revision)) => {
            out.push(1);
            push_number(out, *revision as usize);
            push_sized(out, value);
        }
    }
}

/// Reads changes; `None` where they are none.
pub(super) fn read_changes(mut bytes: &[u8]) -> Option<Vec<(Vec<u8>, NewValue)>> {
    let mut changes = Vec::new();
    while !bytes.is_empty() {
        let key = take_bytes(&mut bytes)?.to_vec();
        let value = match take_byte(&mut bytes)? {
            0 => None,
            _ => {
                let revision = take_u64(&mut bytes)? as i64;
                Some((take_bytes(&mut bytes)?.to_vec(), revision))
            }
        };
        changes.push((key, value));
    }
    Some(changes)
}
