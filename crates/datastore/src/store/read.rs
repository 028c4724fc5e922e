//! Reads a datastore: all of it, the data of one address or handle, some objects again, names, past states, or changes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use calipam_files::archive::{Added, Adding};
use calipam_files::recording::Positions;
use calipam_files::{Extent, ProgressFn};
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, Source};

use super::Datastore;
use crate::backend::Backend;
use crate::error::Result;
use crate::etcd::{self, past};
use crate::feed::{Broken, Changes, Followed};
use crate::read::around::is_in_kubernetes;
use crate::read::{Lookup, NameKind, Past, PastSubject};
use crate::{both, kubernetes};

impl Datastore {
    /// Reads all data that a check needs. etcd is read at one revision.
    pub async fn observe(&self, progress: &ProgressFn) -> Result<Snapshot> {
        self.observe_extent(&Extent::Whole, progress).await
    }

    /// Reads the given extent. The tree of etcd v2 and files of Kubernetes objects are read as a whole.
    pub async fn observe_extent(&self, extent: &Extent, progress: &ProgressFn) -> Result<Snapshot> {
        let mut snapshot = self.backend.observe(extent, progress).await?;
        if let Some(kubernetes) = &self.api_server
            && extent.has_any(&[Source::Pods, Source::Services, Source::Machines])
        {
            both::add(kubernetes, &mut snapshot, progress).await?;
        }
        if *extent == Extent::Whole
            && let Some(client) = self.kubernetes()
        {
            kubernetes::namespaces::add_if_needed(client, &mut snapshot).await;
        }
        Ok(snapshot)
    }

    /// Reads everything at a past revision of etcd. The snapshot has the newest time in its data, like one from a file
    /// without a time, because etcd does not record the times of its revisions. Kubernetes is not read, since it keeps
    /// no past states.
    ///
    /// # Errors
    /// The same as for [`Self::observe`], and if the revision is compacted or in the future, or this is not etcd v3.
    pub async fn observe_at(&self, revision: i64, progress: &ProgressFn) -> Result<Snapshot> {
        let client = self.require_revisions()?;
        etcd::observe_at(client, Some(revision), &Extent::Whole, progress).await
    }

    /// Reads the data of one address or handle: on etcd a few keys in two or three requests, on etcd v2 and Kubernetes
    /// about one request for each key, and a file as a whole.
    pub async fn lookup(&self, lookup: &Lookup) -> Result<Snapshot> {
        let mut snapshot = self.backend.lookup(lookup).await?;
        if let Some(kubernetes) = &self.api_server {
            both::add_around(kubernetes, &mut snapshot, lookup).await?;
        }
        Ok(snapshot)
    }

    /// Reads some keys again, in etcd at one new revision. `None` if the datastore cannot change.
    pub async fn reread(&self, keys: &BTreeSet<Key>) -> Result<Option<Snapshot>> {
        let Some(kubernetes) = &self.api_server else {
            return self.backend.reread(keys).await;
        };
        let (in_kubernetes, in_etcd): (BTreeSet<Key>, BTreeSet<Key>) =
            keys.iter().cloned().partition(is_in_kubernetes);
        let mut snapshot = self.backend.reread(&in_etcd).await?;
        if let Some(snapshot) = &mut snapshot {
            both::reread(kubernetes, snapshot, &in_kubernetes).await?;
        }
        Ok(snapshot)
    }

    /// The names of a kind that begin with `begin`, in ascending order. If some are omitted, the common prefix of the
    /// answer is still the common prefix of all names.
    pub async fn names(&self, kind: NameKind, begin: &str) -> Result<BTreeSet<String>> {
        match &self.api_server {
            // A pod without an address has neither an endpoint nor a record in etcd.
            Some(kubernetes) if matches!(kind, NameKind::Pods | NameKind::Services) => {
                Backend::names(kubernetes, kind, begin).await
            }
            _ => self.backend.names(kind, begin).await,
        }
    }

    /// Reads every kept revision of the data related to an object: the requested keys, and the keys that any of their
    /// revisions names, but not the whole cluster. For [`PastSubject::Blocks`], reads only the latest revisions.
    pub async fn past(&self, of: &PastSubject) -> Result<Past> {
        past::past(self.require_revisions()?, of).await
    }

    /// Reads the latest versions of those blocks in a snapshot that contain an address, one by one. This is faster than
    /// a watch of past revisions, and reads only the keys of these blocks in etcd. `None` if the datastore keeps no
    /// history.
    pub async fn recent(&self, snapshot: &Snapshot, address: IpAddr) -> Result<Option<Past>> {
        let Some(client) = self.backend.revisions() else {
            return Ok(None);
        };
        past::recent(client, snapshot, address).await.map(Some)
    }

    /// Writes the data that a check needs to a file, compressed if the file's name ends with `.zst`. The file does not
    /// appear until it is complete. Returns the number of entries.
    pub async fn export(&self, path: &Path, progress: &ProgressFn) -> Result<u64> {
        Ok(self.export_with_positions(path, progress).await?.0)
    }

    /// Like [`Self::export`]; also returns the positions after which changes can be [followed](Self::changes_after); no
    /// positions if the datastore cannot be followed.
    pub async fn export_with_positions(
        &self,
        path: &Path,
        progress: &ProgressFn,
    ) -> Result<(u64, Positions)> {
        self.backend.export(path, progress).await
    }

    /// Adds an export to an archive, and creates the archive's folder if it is missing.
    pub async fn add_to_archive(&self, folder: &Path, progress: &ProgressFn) -> Result<Added> {
        let adding = Adding::begin(folder)?;
        let entries = self.export(&adding.path(), progress).await?;
        Ok(adding.finish(entries)?)
    }

    /// Follows all changes after the given positions. If Kubernetes is read in addition to etcd, follows only the
    /// changes in etcd.
    pub async fn changes_after(&self, from: Positions) -> Result<Box<dyn Changes>> {
        self.require_calico_3("record changes")?;
        self.backend.changes_after(from).await
    }

    /// Waits until a Calico object is written after a snapshot's revision. On etcd, this is any object that a check
    /// reads from etcd; on the Kubernetes datastore, it is a block. Waits forever if only other objects change, and in
    /// any other kind of datastore. Returns at once if the server no longer has the changes since that revision.
    pub async fn next_change(&self, after: i64) -> Result<()> {
        self.backend.next_change(after).await
    }

    /// Reads everything and starts to follow it.
    ///
    /// # Errors
    /// The same as for [`Self::observe`], and if this datastore cannot be followed.
    pub async fn follow(&self, progress: &ProgressFn) -> Result<(Snapshot, Followed), Broken> {
        let (mut snapshot, followed) = match &self.api_server {
            Some(kubernetes) => both::follow(&*self.backend, kubernetes, progress).await?,
            None => {
                let (snapshot, feed) = self.backend.follow(progress).await?;
                (snapshot, Followed::new(vec![feed]))
            }
        };
        // Pods that are created later may need the namespaces.
        if let Some(client) = self.kubernetes() {
            kubernetes::namespaces::add(client, &mut snapshot).await;
        }
        Ok((snapshot, followed))
    }

    /// Continues to follow etcd over this connection to the same datastore. Kubernetes is still followed by the watches
    /// of the first connection.
    pub fn resume(&self, followed: &mut Followed) {
        if let Some(etcd) = self.backend.revisions() {
            followed.resume(etcd);
        }
    }
}
