//! Reads the whole Kubernetes datastore.

pub(crate) mod list;
pub(crate) mod order;

use std::sync::Arc;

use calipam_files::objects::Flavour;
use calipam_files::objects::kinds::REDUCED_BLOCKS;
use calipam_files::{Extent, ProgressFn, skip};
use calipam_model::hint::Hint;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source, WhySkipped};

use self::list::{Counter, Listed};
use self::order::{Lists, lists_in_order};
use crate::error::{Error, Permission, Result, etcd_instead, other_context};
use crate::kubernetes::client::discovery::Api;
use crate::kubernetes::client::kinds::{self, Kind};
use crate::kubernetes::client::{KubeClient, permission};

/// The reason why machines are not read: KubeVirt is not installed.
pub(crate) fn no_kubevirt() -> WhySkipped {
    WhySkipped::NotInstalled("KubeVirt".to_owned())
}

/// The kinds to read, in order, and the coverage of the result.
pub(crate) struct Plan {
    /// Address records and configuration, then the users of addresses. The users are read later, so that an address
    /// assigned in between does not look like a leak.
    pub kinds: Vec<Kind>,
    /// The index in `kinds` of the first kind that uses addresses.
    pub first_user: usize,
    /// A snapshot without objects. It names the sources that are read, and the reasons why other sources are not.
    pub coverage: Snapshot,
}

/// The error for a cluster without Calico's kinds.
pub(crate) fn no_calico_kinds(client: &KubeClient) -> Error {
    let message = format!(
        "{}: holds no Calico data: neither the API group crd.projectcalico.org nor projectcalico.org has any of \
         Calico's kinds",
        client.server()
    );
    let hint = Hint::new(
        "is this the right cluster? To use a different one: {}. If Calico keeps its data in etcd: {}",
        [other_context(), etcd_instead()],
    );
    Error::other(message, hint)
}

/// Plans a whole or partial read: the kinds to list, and the sources that are skipped. Checks the permissions.
pub(crate) async fn plan(client: &Arc<KubeClient>, extent: &Extent) -> Result<Plan> {
    let api = client.api();
    if api.is_empty() {
        return Err(no_calico_kinds(client));
    }
    let mut coverage = Snapshot::default();
    let mut kinds = records_and_configuration(api, &mut coverage);
    kinds.retain(|kind| extent.has(kind.known.source));
    let first_user = kinds.len();
    let mut users = kinds::users_of_addresses(api);
    users.retain(|kind| extent.has(kind.known.source));
    kinds.append(&mut users);

    match extent {
        Extent::Whole => require(client, &kinds).await?,
        Extent::Sources(_) => {
            // Objects in a partial read are not read again. A later whole read must check further permissions.
            let permissions = kinds.iter().map(|kind| kind.permission("list")).collect();
            permission::require(client, permissions).await?;
            reduce_blocks(&mut kinds);
        }
    }
    coverage.mark_read(kinds.iter().map(|kind| kind.known.source));
    skip(&mut coverage, Source::Endpoints, WhySkipped::PodsInstead);
    if *extent == Extent::Whole {
        skip(&mut coverage, Source::Machines, no_kubevirt());
    }
    Ok(Plan {
        kinds,
        first_user,
        coverage,
    })
}

/// The kinds of records and configuration that the cluster has. Notes in `coverage` why the others are not read.
fn records_and_configuration(api: &Api, coverage: &mut Snapshot) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for source in kinds::RECORDS.into_iter().chain(kinds::CONFIGURATION) {
        match kinds::find(api, source) {
            Ok(kind) => kinds.push(kind),
            Err((source, reason)) => skip(coverage, source, reason),
        }
    }
    kinds
}

/// Lets blocks be decoded with only the records of borrowers, as a partial read needs them.
fn reduce_blocks(kinds: &mut [Kind]) {
    for kind in kinds {
        if kind.known.source == Source::Blocks {
            kind.known = &REDUCED_BLOCKS;
        }
    }
}

/// Reads the given extent. Each list has a revision of its own.
pub(crate) async fn observe(
    client: &Arc<KubeClient>,
    extent: &Extent,
    progress: &ProgressFn,
) -> Result<Snapshot> {
    let plan = plan(client, extent).await?;
    let reader = Lists {
        client: Arc::clone(client),
        counter: Counter::new(progress),
    };
    let lists = lists_in_order(&reader, &plan).await?;
    let mut snapshot = assemble(client, plan.coverage, lists);
    snapshot.records = extent.records();
    extent.mark_unwanted(&mut snapshot);
    Ok(snapshot)
}

/// Combines the lists of a plan, in its order, into one snapshot, which has the time of the first list.
pub(crate) fn assemble(client: &KubeClient, coverage: Snapshot, lists: Vec<Listed<Snapshot>>) -> Snapshot {
    let mut revision = String::new();
    let mut taken_at = None;
    if let Some(first) = lists.first() {
        revision.clone_from(&first.resource_version);
        taken_at = first.date;
    }
    let mut snapshot = Snapshot {
        datastore: DatastoreKind::Kubernetes,
        is_native: client.api().flavour == Flavour::Native,
        location: client.server().to_owned(),
        taken_at: taken_at.unwrap_or_else(crate::clock::now),
        revision,
        ..coverage
    };
    for listed in lists {
        snapshot.absorb(listed.taken);
    }
    snapshot
}

/// Checks that the user may list and get the kinds, once for each connection.
pub(crate) async fn require(client: &Arc<KubeClient>, kinds: &[Kind]) -> Result<()> {
    let mut permissions: Vec<Permission> = Vec::new();
    for kind in kinds {
        // Objects may be read again one by one, except machines, which are only listed.
        if kind.known.source != Source::Machines {
            permissions.push(kind.permission("get"));
        }
        permissions.push(kind.permission("list"));
    }
    client
        .permitted
        .get_or_try_init(|| permission::require(client, permissions))
        .await
        .map(drop)
}
