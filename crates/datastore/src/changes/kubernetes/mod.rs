//! Changes on Kubernetes, with a watch for each kind that a check reads.

mod one_kind;
pub(crate) mod watches;

use std::collections::BTreeMap;
use std::sync::Arc;

use calipam_files::Extent;
use calipam_files::objects::{Encoding, KnownKind};
use calipam_files::recording::{Change, Position, Positions};
use tokio::time::{Instant, timeout_at};

use self::watches::{Message, Watches};
use super::{Broken, QUIET, Reported, TOGETHER};
use crate::client::kubernetes::kinds::Kind;
use crate::client::kubernetes::{KubeClient, permission, watch};
use crate::error::Result;
use crate::read::whole::kubernetes::plan;

pub(super) struct KubeChanges(Watches);

impl KubeChanges {
    pub(super) async fn begin(client: &Arc<KubeClient>, from: &Positions) -> Result<Self> {
        let plan = plan(client, &Extent::Whole).await?;
        let kinds: Vec<Kind> = plan.first.into_iter().chain(plan.second).collect();
        require_watch(client, &kinds).await?;
        Ok(Self(Watches::begin(client, &kinds, from)))
    }

    pub(super) async fn next(&mut self) -> Result<Reported, Broken> {
        let mut reported = Reported::default();
        let mut until = Instant::now() + QUIET;
        while let Ok(message) = timeout_at(until, self.0.next()).await {
            match message {
                Message::Change(known, change) => {
                    if reported.changes.is_empty() {
                        until = Instant::now() + TOGETHER;
                    }
                    reported.changes.push(recorded(known, &change));
                }
                Message::Reached(kind, version) => {
                    reported.reached.insert(kind.to_owned(), version);
                }
                Message::Current(..) => {}
                Message::Broken(broken) => return Err(broken),
            }
        }
        Ok(reported)
    }
}

/// Returns an error if the user may not watch one of the kinds.
pub(crate) async fn require_watch(client: &Arc<KubeClient>, kinds: &[Kind]) -> Result<()> {
    permission::require(client, kinds.iter().map(|kind| kind.permission("watch")).collect()).await
}

/// Converts an object to its form in an export. An object that is no longer needed counts as deleted.
pub(crate) fn recorded(known: &KnownKind, change: &watch::Change) -> Change {
    let exported = match change.is_deleted {
        true => None,
        false => known.export(&change.object, Encoding::Json),
    };
    let (key, value) = match exported {
        Some(entry) => (entry.key, Some(entry.value)),
        None => (format!("{}/{}", known.plural, change.name).into_bytes(), None),
    };
    Change { key, revision: change.version.cast_signed(), value }
}

/// The positions at which changes after some lists start: the version of each list, by the plural of its kind.
pub(crate) fn positions<'k>(lists: impl Iterator<Item = (&'k Kind, &'k str)>) -> Positions {
    let known = lists.filter_map(|(kind, version)| {
        let revision = watch::number(version).ok()?.cast_signed();
        Some((kind.known.plural.to_owned(), Position::at(revision)))
    });
    known.collect::<BTreeMap<_, _>>()
}
