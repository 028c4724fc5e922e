//! Keeps what a list reads.

use std::io;

use calipam_files::frames::{MOST_TEXT, Packer};
use calipam_files::objects::meta::metadata;
use calipam_files::objects::{Encoding, name_in_kind};
use calipam_model::snapshot::{Snapshot, Source};

use super::entries::{self, push_entry};
use super::{Cluster, State, Worth, sum_of};
use crate::cache::WhyWhole;
use crate::cache::file::{CacheWriter, ENTRIES};
use crate::cache::newest::Newest;
use crate::client::kubernetes::kinds::Kind;
use crate::client::kubernetes::watch::number;
use crate::read::whole::kubernetes::list::Take;

/// Text of entries from which on they are packed: small enough that all cores have some to unpack.
const ENOUGH: usize = MOST_TEXT / 8;

/// The sources whose kinds may have many objects, and are kept.
const KEPT: [Source; 4] = [Source::Blocks, Source::Handles, Source::Affinities, Source::Pods];

/// True for a kind that is kept.
pub(super) fn is_kept(kind: &Kind) -> bool {
    KEPT.contains(&kind.known.source)
}

/// What was read of a kind, and what its cache will be made of.
#[derive(Default)]
pub(super) struct Taken {
    pub snapshot: Snapshot,
    packing: Packing,
    /// Of a kind that is kept, how many changes were read, or why all of it was.
    pub read: Option<Result<usize, WhyWhole>>,
    /// Why the changes cannot be kept.
    pub unsaved: Option<String>,
    /// Bytes of all objects, as the server sends them.
    pub bytes: u64,
}

impl From<Taken> for Snapshot {
    fn from(taken: Taken) -> Self {
        taken.snapshot
    }
}

impl Take for Taken {
    fn take(&mut self, kind: &Kind, object: &[u8], encoding: Encoding) {
        if !is_kept(kind) {
            return (kind.known.add)(&mut self.snapshot, object, encoding);
        }
        self.bytes += object.len() as u64;
        let value = entries::add(&mut self.snapshot, kind, object, encoding);
        if self.packing.failed.is_none() {
            let kept = value.and_then(|value| self.packing.keep(object, encoding, &value));
            self.packing.failed = kept.err();
        }
    }
}

impl Taken {
    /// What was made of a cache and so many changes.
    pub(super) fn changed(snapshot: Snapshot, changes: usize, unsaved: Option<String>, bytes: u64) -> Self {
        Self { snapshot, read: Some(Ok(changes)), unsaved, bytes, ..Self::default() }
    }

    /// Writes the cache of a kind that was listed, if that is worth it, and gives why it cannot be written.
    pub(super) fn save(
        &mut self,
        kind: &Kind,
        cluster: &Cluster,
        version: &str,
        is_worth: bool,
    ) -> Option<String> {
        if is_worth {
            return self.write(kind, cluster, version).err().map(|error| error.to_string());
        }
        // An earlier one would only grow old.
        std::fs::remove_file(cluster.path(kind)).ok();
        if self.read == Some(Err(WhyWhole::NoCacheYet)) {
            self.read = Some(Err(WhyWhole::Little));
        }
        None
    }

    fn write(&mut self, kind: &Kind, cluster: &Cluster, version: &str) -> io::Result<()> {
        let packing = std::mem::take(&mut self.packing).finish()?;
        let state = State {
            version: number(version).map_err(io::Error::other)?,
            newest: packing.newest,
            objects: packing.objects,
            bytes: self.bytes,
            changes: 0,
        };
        let mut writer = CacheWriter::create(&cluster.path(kind), &cluster.identity(kind))?;
        writer.push(&packing.frames)?;
        writer.finish(&state)
    }

    /// True if its cache is worth its place, `total` being the bytes of all kinds that are kept.
    pub(super) fn is_worth(&self, worth: &Worth, total: u64) -> bool {
        self.packing.objects > 0 && total >= worth.all && self.bytes >= worth.kind
    }
}

/// The entries of a list, packed as they arrive.
#[derive(Default)]
struct Packing {
    text: Vec<u8>,
    frames: Vec<u8>,
    /// The name of the last entry.
    name: String,
    newest: Newest,
    objects: u64,
    failed: Option<io::Error>,
}

impl Packing {
    fn keep(&mut self, object: &[u8], encoding: Encoding, value: &[u8]) -> io::Result<()> {
        let meta = metadata(object, encoding).ok_or_else(|| io::Error::other("an object has no metadata"))?;
        let name = name_in_kind(&meta.namespace, &meta.name);
        if name <= self.name {
            return Err(io::Error::other(format!("{name} is not in the order of names")));
        }
        let version = number(&meta.resource_version).map_err(io::Error::other)?;
        let is_deleted = false;
        self.newest.note(version.cast_signed(), || sum_of(&name, &meta.uid, is_deleted));
        self.objects += 1;

        push_entry(&mut self.text, &name, value);
        self.name = name;
        if self.text.len() >= ENOUGH {
            self.pack()?;
        }
        Ok(())
    }

    fn pack(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let mut text = vec![ENTRIES];
        text.append(&mut self.text);
        Packer::new()?.push(&text, &mut self.frames)
    }

    fn finish(mut self) -> io::Result<Self> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        self.pack()?;
        Ok(self)
    }
}
