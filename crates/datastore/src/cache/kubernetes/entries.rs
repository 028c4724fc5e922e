//! Objects of Kubernetes as they are in a cache: each with its name, by which they are sorted. Blocks and handles have the
//! form that they have in memory, pods are without what a check does not need, all else is as the API server has it.

use std::io;

use calipam_files::objects::{Encoding, KnownKind};
use calipam_model::compact::{Compact, push_sized, take_byte, take_bytes, take_utf8};
use calipam_model::handle::Handle;
use calipam_model::snapshot::{ObjectVersion, Revision, Snapshot, Source, StoredBlock, Versioned};

use crate::client::kubernetes::kinds::Kind;

const JSON: u8 = 0;
const BLOCK: u8 = 1;
const HANDLE: u8 = 2;

/// Adds an object to a snapshot, and gives what a cache holds of it.
///
/// # Errors
/// If a cache can hold nothing of it. The snapshot has it anyway.
pub(super) fn add(
    snapshot: &mut Snapshot,
    kind: &Kind,
    object: &[u8],
    encoding: Encoding,
) -> io::Result<Vec<u8>> {
    // By kind. What cannot be decoded, in part or at all, is decoded again each time.
    let lengths = |s: &Snapshot| [s.defects.len(), s.blocks.len(), s.handles.len()];
    let before = lengths(snapshot);
    (kind.known.add)(snapshot, object, encoding);

    let grown = lengths(snapshot).into_iter().zip(before).position(|(now, before)| now > before);
    let compact = match grown.map_or(JSON, |kind| kind as u8) {
        BLOCK => compact(BLOCK, snapshot.blocks.last()),
        HANDLE => compact(HANDLE, snapshot.handles.last()),
        _ => None,
    };
    if let Some(compact) = compact {
        return Ok(compact);
    }

    let mut out = vec![JSON];
    match kind.known.source {
        // They hold what is none of our business, such as environments.
        Source::Pods => {
            let reduced = kind.known.reduced(object, encoding).map_err(io::Error::other)?;
            out.extend(reduced.unwrap_or_default());
        }
        _ if encoding == Encoding::Json => out.extend_from_slice(object),
        _ => return Err(io::Error::other("it is not JSON")),
    }
    Ok(out)
}

/// Adds what a cache holds of an object to a snapshot; `None` if it is nothing of the kind.
pub(super) fn read(snapshot: &mut Snapshot, known: &KnownKind, mut value: &[u8]) -> Option<()> {
    match take_byte(&mut value)? {
        JSON => (known.add)(snapshot, value, Encoding::Json),
        BLOCK => {
            let revision = take_version(&mut value)?;
            snapshot.blocks.push(Versioned { value: StoredBlock::take_compact(&mut value)?, revision });
        }
        HANDLE => {
            let revision = take_version(&mut value)?;
            snapshot.handles.push(Versioned { value: Handle::take_compact(&mut value)?, revision });
        }
        _ => return None,
    }
    Some(())
}

/// An object with its tag and version; `None` if it has no compact form, or labels, for which there is no place.
fn compact<T: Compact>(tag: u8, object: Option<&Versioned<T>>) -> Option<Vec<u8>> {
    let Versioned { value, revision: Revision::Kubernetes(version) } = object? else { return None };
    let mut out = vec![tag];
    push_sized(&mut out, version.resource_version.as_bytes());
    push_sized(&mut out, version.uid.as_bytes());
    (version.labels.is_empty() && value.push_compact(&mut out)).then_some(out)
}

fn take_version(bytes: &mut &[u8]) -> Option<Revision> {
    let resource_version = take_utf8(bytes)?.to_owned();
    let uid = take_utf8(bytes)?.to_owned();
    Some(Revision::Kubernetes(Box::new(ObjectVersion { resource_version, uid, ..ObjectVersion::default() })))
}

/// Appends an object under its name.
pub(super) fn push_entry(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    push_sized(out, name.as_bytes());
    push_sized(out, value);
}

/// Takes an object and its name.
pub(super) fn take_entry<'t>(bytes: &mut &'t [u8]) -> Option<(&'t str, &'t [u8])> {
    Some((take_utf8(bytes)?, take_bytes(bytes)?))
}

/// A change of an object: what a cache holds of it since; `None` if it is deleted.
pub(super) type NewValue = Option<Vec<u8>>;

/// A change under the name of its object.
pub(super) fn change(name: &str, value: &NewValue) -> Vec<u8> {
    let mut out = Vec::new();
    push_sized(&mut out, name.as_bytes());
    out.push(u8::from(value.is_some()));
    push_sized(&mut out, value.as_deref().unwrap_or_default());
    out
}

/// Takes a change and the name of its object.
pub(super) fn take_change(bytes: &mut &[u8]) -> Option<(String, NewValue)> {
    let name = take_utf8(bytes)?.to_owned();
    let is_there = take_byte(bytes)? != 0;
    let value = take_bytes(bytes)?.to_vec();
    Some((name, is_there.then_some(value)))
}
