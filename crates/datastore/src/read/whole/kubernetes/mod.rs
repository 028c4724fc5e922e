//! Reads the whole Kubernetes datastore.

pub(crate) mod list;
pub(crate) mod order;

use std::sync::Arc;

use calipam_files::objects::Flavour;
use calipam_files::{Extent, ProgressFn, skip};
use calipam_model::block::RecordDetail;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source, WhySkipped};

use self::list::{Counter, Listed, Take};
use self::order::{Lists, lists_in_order};
use super::Reduced;
use crate::client::kubernetes::kinds::{self, Kind};
use crate::client::kubernetes::{KubeClient, permission};
use crate::error::{Error, Permission, Result};

/// The reason that a cluster has no machines.
pub(crate) fn no_kubevirt() -> WhySkipped {
    WhySkipped::NotInstalled("KubeVirt".to_owned())
}

/// The plan of a whole read.
pub(crate) struct Plan {
    /// Address records and configuration.
    pub first: Vec<Kind>,
    /// Users of addresses, read after the records, so that an address assigned in between does not look like a leak.
    pub second: Vec<Kind>,
    /// The sources that are read, and the reasons that others are not.
    pub coverage: Snapshot,
}

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
        // Objects in a partial read are not read again. A later whole read must check further permissions.
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

/// Reads the given extent. Each list has a revision of its own.
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

/// Combines the lists of a plan, in its order, into one snapshot, which has the time of the first list.
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
        taken_at: begin.and_then(|listed| listed.date).unwrap_or_else(crate::clock::now),
        revision: begin.map(|listed| listed.resource_version.clone()).unwrap_or_default(),
        ..coverage
    };
    lists.for_each(|listed| snapshot.absorb(listed.taken.into()));
    snapshot
}

/// Checks that the user may list and get the kinds, once for each connection.
pub(crate) async fn require(client: &Arc<KubeClient>, kinds: impl Iterator<Item = &Kind>) -> Result<()> {
    let permissions: Vec<Permission> = kinds
        .flat_map(|kind| {
            // Objects are read again one by one; machines are only listed.
            let get = (kind.known.source != Source::Machines).then(|| kind.permission("get"));
            get.into_iter().chain([kind.permission("list")])
        })
        .collect();
    client.permitted.get_or_try_init(|| permission::require(client, permissions)).await.map(drop)
}
