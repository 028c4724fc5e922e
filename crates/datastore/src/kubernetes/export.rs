//! Exports the Kubernetes datastore: the part of each object that a check needs.

use std::path::Path;
use std::sync::Arc;

use calipam_files::export::{Header, Lines, Writer};
use calipam_files::objects::Encoding;
use calipam_files::recording::Positions;
use calipam_files::{Extent, ProgressFn};
use calipam_model::config::ClusterInformation;
use calipam_model::snapshot::{DatastoreKind, Source};

use crate::error::Result;
use crate::kubernetes::changes::positions;
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds::Kind;
use crate::kubernetes::namespaces;
use crate::kubernetes::whole::list::{Counter, Listed, Take};
use crate::kubernetes::whole::order::{Lists, lists_in_order};
use crate::kubernetes::whole::plan;

#[derive(Default)]
pub(crate) struct Exported {
    lines: Lines,
    /// The cluster's GUID, if this is the list of cluster information.
    guid: String,
}

impl Take for Exported {
    /// Writes an object to the export. Notes the GUID of the cluster.
    fn take(&mut self, kind: &Kind, object: &[u8], encoding: Encoding) {
        let Some(entry) = kind.known.export(object, encoding) else {
            return;
        };
        self.lines.push(&entry.as_entry());
        if kind.known.source == Source::ClusterInformation {
            self.guid = match ClusterInformation::parse(&entry.value) {
                Ok(cluster) => cluster.guid,
                Err(_) => String::new(),
            };
        }
    }
}

/// Exports all data that a check needs. Returns the number of entries, and the positions after which changes can be
/// followed.
pub(crate) async fn export(
    client: &Arc<KubeClient>,
    path: &Path,
    progress: &ProgressFn,
) -> Result<(u64, Positions)> {
    let plan = plan(client, &Extent::Whole).await?;
    let reader = Lists {
        client: Arc::clone(client),
        counter: Counter::new(progress),
    };
    let lists: Vec<Listed<Exported>> = lists_in_order(&reader, &plan).await?;

    let mut header = header(client, &lists);
    header.coverage = plan.coverage.coverage;
    let mut writer = Writer::create(path, &header)?;
    // Namespaces are useful, but may be forbidden.
    let namespaces: Listed<Exported> = namespaces::list(client).await.unwrap_or_default();
    for listed in lists.iter().chain([&namespaces]) {
        writer.lines(&listed.taken.lines)?;
    }
    Ok((writer.finish()?, positions(&plan.kinds, &lists)))
}

/// The header of an export, with the cluster's GUID and the state of the first list, since an export of Kubernetes has
/// no single revision.
fn header(client: &KubeClient, lists: &[Listed<Exported>]) -> Header {
    let mut revision = "";
    let mut taken_at = None;
    if let Some(first) = lists.first() {
        revision = &first.resource_version;
        taken_at = first.date;
    }
    let taken_at = taken_at.unwrap_or_else(crate::clock::now);
    let mut header = Header::new(DatastoreKind::Kubernetes, client.server(), revision, taken_at);
    if let Some(listed) = lists.iter().find(|listed| !listed.taken.guid.is_empty()) {
        header.guid.clone_from(&listed.taken.guid);
    }
    header
}
