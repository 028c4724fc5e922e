//! Reads the data of an address or a handle on Kubernetes, by the names of objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_files::skip;
use calipam_model::key::Key;
use calipam_model::snapshot::{Coverage, Snapshot, Source, WhySkipped};
use jiff::Timestamp;
use percent_encoding::utf8_percent_encode;

use crate::error::Result;
use crate::kubernetes::again::{empty_snapshot, fetch};
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds::{self, Kind, UNRESERVED};
use crate::kubernetes::whole::list::{Listed, list};
use crate::kubernetes::whole::{no_calico_kinds, no_kubevirt};
use crate::read::Lookup;
use crate::tasks;

/// Reads the data of an address or a handle.
pub(crate) async fn lookup(client: &Arc<KubeClient>, lookup: &Lookup) -> Result<Snapshot> {
    if client.api().is_empty() {
        return Err(no_calico_kinds(client));
    }

    let mut snapshot = empty_snapshot(client);
    let first = lookup.first_keys();
    let mut read_keys: BTreeSet<Key> = first.iter().cloned().collect();
    let (configuration, fetched) = tokio::join!(
        configuration(client),
        fetch(client, &mut snapshot, first.into_iter())
    );
    fetched?;
    let mut configuration = configuration?;
    snapshot.coverage.append(&mut configuration.coverage);
    // The time by the server's clock, or by this machine's if the server does not report a time.
    let has_server_time = configuration.taken_at != Timestamp::default();
    snapshot.taken_at = if has_server_time {
        configuration.taken_at
    } else {
        crate::clock::now()
    };
    snapshot.absorb(configuration);

    let mut blocks = lookup.blocks(&snapshot);
    blocks.retain(|key| read_keys.insert(key.clone()));
    fetch(client, &mut snapshot, blocks.into_iter()).await?;

    add_users(client, &mut snapshot, lookup).await?;
    read_keys.extend(snapshot.pods.iter().map(|pod| pod.value.key()));

    let mut named = lookup.named(&snapshot).keys;
    // Object names cannot contain a carriage return. Calico therefore cuts off a handle's ID at a carriage return. The
    // shortened ID is also among the keys.
    let has_name = |key: &Key| !matches!(key, Key::Handle(id) if id.contains('\r'));
    named.retain(|key| has_name(key) && !read_keys.contains(key));
    fetch(client, &mut snapshot, named.into_iter()).await?;

    // Services are read only if a record names them.
    snapshot
        .coverage
        .entry(Source::Services)
        .or_insert(Coverage::Partial);
    skip(&mut snapshot, Source::Endpoints, WhySkipped::PodsInstead);
    skip(&mut snapshot, Source::Machines, no_kubevirt());
    Ok(snapshot)
}

/// Adds the pods that may use an address, even if the address's record does not name them. The API server can find pods
/// only by their first address. Pods with the address as their second one, or only in an annotation, are therefore
/// searched for on the nodes that the address's blocks and records name.
pub(crate) async fn add_users(
    client: &Arc<KubeClient>,
    snapshot: &mut Snapshot,
    lookup: &Lookup,
) -> Result<()> {
    let Lookup::Address(address) = lookup else {
        return Ok(());
    };
    let Ok(pods) = kinds::find(client.api(), Source::Pods) else {
        return Ok(());
    };
    let mut selectors = Vec::new();
    for node in lookup.named(snapshot).nodes() {
        selectors.push(format!("spec.nodeName={node}"));
    }
    selectors.push(format!("status.podIP={address}"));

    let mut lists = Vec::new();
    for selector in selectors {
        let client = Arc::clone(client);
        let selected_pods = selected(&pods, &selector);
        lists.push(async move { list::<Snapshot>(&client, &selected_pods).await });
    }

    // Several lists can contain the same pod.
    let mut added: BTreeSet<Key> = snapshot.pods.iter().map(|pod| pod.value.key()).collect();
    for Listed { mut taken, .. } in tasks::all(usize::MAX, lists).await? {
        taken.pods.retain(|pod| added.insert(pod.value.key()));
        snapshot.absorb(taken);
    }
    snapshot.coverage.insert(Source::Pods, Coverage::Partial);
    Ok(())
}

/// The objects of a kind that a field selector selects.
fn selected(kind: &Kind, selector: &str) -> Kind {
    let encoded_selector = utf8_percent_encode(selector, UNRESERVED);
    Kind {
        path: format!("{}?fieldSelector={encoded_selector}", kind.path),
        ..kind.clone()
    }
}

/// Reads pools, reservations and configuration, which are few and small.
async fn configuration(client: &Arc<KubeClient>) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let mut lists = Vec::new();
    for source in kinds::CONFIGURATION {
        match kinds::find(client.api(), source) {
            Ok(kind) => {
                let client = Arc::clone(client);
                lists.push(async move { list_with_source(&client, &kind).await });
            }
            Err((source, reason)) => skip(&mut snapshot, source, reason),
        }
    }

    for (source, listed) in tasks::all(usize::MAX, lists).await? {
        snapshot.absorb(listed.taken);
        snapshot.mark_read([source]);
        if let Some(date) = listed.date {
            snapshot.taken_at = snapshot.taken_at.max(date);
        }
    }
    Ok(snapshot)
}

async fn list_with_source(client: &Arc<KubeClient>, kind: &Kind) -> Result<(Source, Listed<Snapshot>)> {
    Ok((kind.known.source, list(client, kind).await?))
}
