//! The whole read of a Kubernetes datastore.

pub(crate) mod list;
pub(crate) mod order;

use std::sync::Arc;

use calipam_files::objects::Flavour;
use calipam_files::{Extent, ProgressFn, skip};
use calipam_model::block::RecordDetail;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source, WhySkipped};
use jiff::Timestamp;

use self::list::{Counter, Listed, Take};
use self::order::{Lists, lists_in_order};
use super::Reduced;
use crate::client::kubernetes::kinds::{self, Kind};
use crate::client::kubernetes::{KubeClient, permission};
use crate::error::{Error, Permission, Result};

/// Why there are no machines.
pub(crate) fn no_kubevirt() -> WhySkipped {
    WhySkipped::NotInstalled("KubeVirt".to_owned())
}

/// What a whole read reads.
pub(crate) struct Plan {
    /// What records addresses, and configuration.
    pub first: Vec<Kind>,
    /// What uses addresses. It is read as it is after that, so that an address that is assigned in between is not taken for a leak.
    pub second: Vec<Kind>,
    /// Which sources are read, and why others are not.
    pub coverage: Snapshot,
}

/// Plans a read.
pub(crate) async fn plan(client: &Arc<KubeClient>, extent: &Extent) -> Result<Plan> {
    let api = client.api();
    if api.is_empty() {
        return Err(Error::NoCalicoKinds { endpoint: client.server().to_owned() });
    }
    let mut second = kinds::users_of_addresses(api);
    second.retain(|kind| extent.has(kind.known.source));
    let mut plan = Plan { first: Vec::new(), second, coverage: Snapshot::default() };
    for found in kinds::records(api).chain(kinds::configuration(api)) {
        match found {
            Ok(kind) if !extent.has(kind.known.source) => {}
            Ok(kind) => plan.first.push(kind),
            Err((source, reason)) => skip(&mut plan.coverage, source, reason),
        }
    }
    let kinds = plan.first.iter().chain(&plan.second);
    match extent {
        Extent::Whole => require(client, kinds).await?,
        // Nothing of it is read again, and a later whole read has to ask for more.
        Extent::Sources(_) => {
            permission::require(client, kinds.map(|kind| kind.permission("list")).collect()).await?;
        }
    }
    plan.coverage.mark_read(plan.first.iter().chain(&plan.second).map(|kind| kind.known.source));
    skip(&mut plan.coverage, Source::Endpoints, WhySkipped::PodsInstead);
    if *extent == Extent::Whole {
        skip(&mut plan.coverage, Source::Machines, no_kubevirt());
    }
    Ok(plan)
}

/// Reads what the extent says. Each list is at one revision; the lists are not at the same one.
pub(crate) async fn observe(
    client: &Arc<KubeClient>,
    extent: &Extent,
    progress: &ProgressFn,
) -> Result<Snapshot> {
    match extent.records() {
        RecordDetail::Full => observe_into::<Snapshot>(client, extent, progress).await,
        RecordDetail::Borrowers => observe_into::<Reduced>(client, extent, progress).await,
    }
}

async fn observe_into<T: Take + Into<Snapshot>>(
    client: &Arc<KubeClient>,
    extent: &Extent,
    progress: &ProgressFn,
) -> Result<Snapshot> {
    let Plan { first, second, coverage } = plan(client, extent).await?;
    let lists = Lists { client: Arc::clone(client), counter: Counter::new(progress) };
    let (first, second) = lists_in_order::<T>(&lists, first, second).await?;
    let mut snapshot = assemble(client, coverage, first.into_iter().chain(second));
    snapshot.records = extent.records();
    extent.say(&mut snapshot);
    Ok(snapshot)
}

/// Makes one snapshot of the lists of a plan, in its order. It is as old as the first of them.
pub(crate) fn assemble<T: Into<Snapshot>>(
    client: &KubeClient,
    coverage: Snapshot,
    lists: impl Iterator<Item = Listed<T>>,
) -> Snapshot {
    let mut lists = lists.peekable();
    let begin = lists.peek();
    let mut snapshot = Snapshot {
        datastore: DatastoreKind::Kubernetes,
        is_native: client.api().flavour == Flavour::Native,
        location: client.server().to_owned(),
        taken_at: begin.and_then(|listed| listed.date).unwrap_or_else(Timestamp::now),
        revision: begin.map(|listed| listed.resource_version.clone()).unwrap_or_default(),
        ..coverage
    };
    lists.for_each(|listed| snapshot.absorb(listed.taken.into()));
    snapshot
}

/// Fails if the user may not list or get one of the kinds. Asked once for each connection.
pub(crate) async fn require(client: &Arc<KubeClient>, kinds: impl Iterator<Item = &Kind>) -> Result<()> {
    let permissions: Vec<Permission> = kinds
        .flat_map(|kind| {
            // Objects are read again one by one; of machines only lists are needed.
            let get = (kind.known.source != Source::Machines).then(|| kind.permission("get"));
            get.into_iter().chain([kind.permission("list")])
        })
        .collect();
    client.permitted.get_or_try_init(|| permission::require(client, permissions)).await.map(drop)
}
