//! Keeps what a whole read reads.

use std::io;
use std::path::Path;

use calipam_files::frames::{MOST_TEXT, Packer};
use calipam_files::raw::RawEntry;
use calipam_model::snapshot::Snapshot;

use super::State;
use super::entries;
use crate::cache::file::{CacheWriter, ENTRIES, Identity};
use crate::cache::newest::{Newest, sum};
use crate::error::Result;
use crate::read::whole::etcd::Start;
use crate::read::whole::etcd::pull::Collector;

/// Text of entries from which on they are packed: a third of what a frame can hold.
const ENOUGH: usize = MOST_TEXT / 3;

/// Gathers a snapshot, and writes what it gathers to a cache. That the cache cannot be written is reported at the end.
pub(super) struct CachingCollector {
    snapshot: Snapshot,
    writer: io::Result<CacheWriter>,
    newest: Newest,
    objects: u64,
}

impl CachingCollector {
    pub(super) fn new(path: &Path, identity: &Identity, start: &Start) -> Self {
        // Another etcd may have answered since.
        let is_same = super::identity(start.cluster_id(), identity.guid.clone()) == *identity;
        let writer = match is_same {
            true => CacheWriter::create(path, identity),
            false => Err(io::Error::other("another cluster has answered")),
        };
        Self { snapshot: Snapshot::default(), writer, newest: Newest::default(), objects: 0 }
    }

    /// What was read, and why the cache could not be written.
    pub(super) fn finish(self, state: State) -> (Snapshot, Option<String>) {
        let newest_creation = self.snapshot.newest_creation;
        let state = State { newest: self.newest, newest_creation, objects: self.objects, ..state };
        let saved = self.writer.and_then(|writer| match state.newest.written.is_empty() {
            true => Err(io::Error::other("there is nothing to keep")),
            false => writer.finish(&state),
        });
        (self.snapshot, saved.err().map(|error| error.to_string()))
    }
}

/// A part of a read.
#[derive(Default)]
pub(super) struct Chunk {
    snapshot: Snapshot,
    /// Entries that are not packed yet.
    text: Vec<u8>,
    frames: Vec<u8>,
    failed: Option<io::Error>,
    newest: Newest,
    objects: u64,
}

impl Chunk {
    fn pack(&mut self) {
        if self.text.is_empty() || self.failed.is_some() {
            return;
        }
        let mut text = vec![ENTRIES];
        text.append(&mut self.text);
        let packed = Packer::quick().and_then(|mut packer| packer.push(&text, &mut self.frames));
        self.failed = packed.err();
    }
}

impl Collector for CachingCollector {
    type Chunk = Chunk;

    fn add(chunk: &mut Chunk, entry: RawEntry<'_>) {
        chunk.newest.note(entry.mod_revision, || sum(entry.key, Some(entry.value)));
        chunk.objects += 1;
        entries::add(&mut chunk.snapshot, entry, &mut chunk.text);
        if chunk.text.len() >= ENOUGH {
            chunk.pack();
        }
    }

    fn seal(chunk: &mut Chunk) {
        chunk.pack();
    }

    fn commit(&mut self, mut chunk: Chunk) -> Result<()> {
        self.snapshot.absorb(std::mem::take(&mut chunk.snapshot));
        self.newest.join(chunk.newest);
        self.objects += chunk.objects;
        let written = match (&mut self.writer, chunk.failed) {
            (Ok(_), Some(failed)) => Err(failed),
            (Ok(writer), None) => writer.push(&chunk.frames),
            (Err(_), _) => Ok(()),
        };
        if let Err(error) = written {
            self.writer = Err(error);
        }
        Ok(())
    }
}
