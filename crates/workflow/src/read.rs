//! Reads a cluster, or a part of it.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use calipam_check::ClusterIdentity;
use calipam_check::views::handle_ids;
use calipam_datastore::Datastore;
use calipam_datastore::read::{Extent, Lookup, NameKind, Progress, ProgressFn};
use calipam_model::config::ClusterInformation;
use calipam_model::handle::clean_id;
use calipam_model::key::Key;
use calipam_model::snapshot::{Coverage, Snapshot, Source, WhySkipped};
use jiff::SignedDuration;
use tokio::time::Instant;

use crate::failure::Result;
use crate::operator::{Access, Activity, Event, Meter, Operator};
use crate::scope::only_handle;

/// The cooldown of released addresses in this cluster, in seconds; 0 if the datastore does not store the release time.
pub(crate) async fn cooldown(datastore: &Datastore, snapshot: &Snapshot) -> i64 {
    let configured = snapshot
        .effective_ipam_config()
        .map_or(0, |config| config.cooldown_seconds.max(0));
    if configured > 0 && datastore.keeps_cooldown().await {
        configured
    } else {
        0
    }
}

/// Reads everything that a check needs.
pub async fn read(access: Access<'_>) -> Result<Snapshot> {
    read_as(access, Activity::Reading).await
}

/// Reads everything that a check needs, as a given activity.
pub async fn read_as(access: Access<'_>, activity: Activity) -> Result<Snapshot> {
    let read = async |datastore: &Datastore, progress: &ProgressFn| datastore.observe(progress).await;
    Ok(noted(watched(access, activity, read).await?, access.operator))
}

/// Reads only some sources.
pub async fn read_sources(access: Access<'_>, sources: &[Source]) -> Result<Snapshot> {
    let extent = Extent::Sources(sources.iter().copied().collect());
    let snapshot = watched(access, Activity::Reading, async |datastore, progress| {
        datastore.observe_extent(&extent, progress).await
    })
    .await?;
    tell_read(&snapshot, access.operator);
    Ok(snapshot)
}

/// Reads the current state, or the state at a past etcd revision.
pub(crate) async fn read_at(access: Access<'_>, revision: Option<i64>) -> Result<Snapshot> {
    let Some(revision) = revision else {
        return read(access).await;
    };
    let read =
        async |datastore: &Datastore, progress: &ProgressFn| datastore.observe_at(revision, progress).await;
    Ok(noted(
        watched(access, Activity::Reading, read).await?,
        access.operator,
    ))
}

/// Runs `work` with a progress meter.
pub(crate) async fn watched<T>(
    access: Access<'_>,
    activity: Activity,
    work: impl AsyncFnOnce(&Datastore, &ProgressFn) -> calipam_datastore::Result<T>,
) -> Result<T> {
    let meter = access.operator.start(activity);
    let result = work(access.datastore, &progress(&meter)).await;
    meter.end();
    Ok(result?)
}

/// Marks the sources of a snapshot that were not read, and logs the read.
fn noted(mut snapshot: Snapshot, operator: &dyn Operator) -> Snapshot {
    name_unread(&mut snapshot);
    tell_read(&snapshot, operator);
    snapshot
}

/// Logs the identity and time of a snapshot, such as `cluster 0f0e1d2c3b4a59680f, Calico v3.32.1, revision 48250, at
/// 2026-11-21T10:15:00Z`.
fn tell_read(snapshot: &Snapshot, operator: &dyn Operator) {
    let identity = ClusterIdentity::of(snapshot);
    let [guid, version, revision] = [&identity.guid, &identity.calico_version, &identity.revision]
        .map(|text| if text.is_empty() { "unknown" } else { text });
    let taken_at = identity.taken_at;
    operator.tell(Event::Detail(format!(
        "cluster {guid}, Calico {version}, revision {revision}, at {taken_at}"
    )));
}

/// Logs the number of requests that a read took.
pub(crate) fn tell_requests(revision: impl Display, requests: u64, operator: &dyn Operator) {
    operator.tell(Event::Detail(format!(
        "read at revision {revision} in {requests} requests"
    )));
}

/// Reads two datastores at the same time, with one progress meter.
pub(crate) async fn read_two(
    first: &Datastore,
    second: &Datastore,
    operator: &dyn Operator,
) -> Result<(Snapshot, Snapshot)> {
    let meter = operator.start(Activity::Reading);
    let read = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let progress = |side: usize| -> ProgressFn {
        let meter = Arc::clone(&meter);
        let read = Arc::clone(&read);
        Arc::new(move |progress: Progress| {
            read[side].store(progress.read, Ordering::Relaxed);
            meter.set(read.iter().map(|read| read.load(Ordering::Relaxed)).sum(), 0);
        })
    };

    let of_each = [progress(0), progress(1)];
    let result = tokio::try_join!(first.observe(&of_each[0]), second.observe(&of_each[1]));
    meter.end();
    let (first, second) = result?;
    Ok((noted(first, operator), noted(second, operator)))
}

/// Reads the few objects around one address or handle.
pub async fn read_around(access: Access<'_>, lookup: &Lookup) -> Result<Snapshot> {
    let before = access.datastore.request_count();
    let mut snapshot = access.datastore.lookup(lookup).await?;
    let requests = access.datastore.request_count() - before;
    tell_requests(&snapshot.revision, requests, access.operator);
    name_unread(&mut snapshot);
    Ok(snapshot)
}

/// Reads the objects around a handle, given its ID or a prefix that only one ID has. Returns the complete ID, or
/// `begin` itself if no ID has this prefix.
pub async fn read_around_handle(access: Access<'_>, begin: &str) -> Result<(Snapshot, String)> {
    let snapshot = read_around(access, &Lookup::Handle(begin.to_owned())).await?;
    let known = handle_ids(&snapshot, begin);
    if begin.is_empty() || known.contains(clean_id(begin)) {
        return Ok((snapshot, begin.to_owned()));
    }

    // A file was read completely, so the known IDs include those that only blocks record.
    let is_whole = snapshot.has_read(Source::Blocks);
    let ids = if is_whole {
        known
    } else {
        access.datastore.names(NameKind::Handles, begin).await?
    };
    let Some(id) = only_handle(begin, ids)? else {
        return Ok((snapshot, begin.to_owned()));
    };
    if is_whole {
        return Ok((snapshot, id));
    }
    let around_id = read_around(access, &Lookup::Handle(id.clone())).await?;
    Ok((around_id, id))
}

/// Marks sources that were not read for lack of a kubeconfig as skipped, so that a report names them.
pub(crate) fn name_unread(snapshot: &mut Snapshot) {
    for source in [Source::Pods, Source::Services, Source::Machines] {
        let unread = || Coverage::Skipped(WhySkipped::NoKubeconfig);
        snapshot.coverage.entry(source).or_insert_with(unread);
    }
}

pub(crate) fn progress(meter: &Arc<dyn Meter>) -> ProgressFn {
    let meter = Arc::clone(meter);
    Arc::new(move |progress: Progress| meter.set(progress.read, progress.expected))
}

/// The GUID of the cluster in a datastore; empty if it has none.
pub async fn guid(datastore: &Datastore) -> Result<String> {
    Ok(cluster_information(datastore)
        .await?
        .map(|information| information.guid)
        .unwrap_or_default())
}

/// Reads the ClusterInformation; `None` if it is missing or cannot be decoded.
pub async fn cluster_information(datastore: &Datastore) -> Result<Option<ClusterInformation>> {
    let stored = datastore
        .stored(&[Key::ClusterInformation("default".into())])
        .await?
        .pop()
        .flatten();
    Ok(stored.and_then(|stored| ClusterInformation::parse(&stored.raw).ok()))
}

/// The longest wait without a message to the operator.
const LONG: SignedDuration = SignedDuration::from_mins(1);

/// Waits for a time, and shows the progress.
pub(crate) async fn wait(time: SignedDuration, activity: Activity, operator: &dyn Operator) {
    if time > LONG {
        operator.tell(Event::LongWait { activity, time });
    }
    let time = Duration::try_from(time).unwrap_or_default();
    let begin = Instant::now();
    let meter = operator.start(activity);
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);

    loop {
        let passed = begin.elapsed();
        if passed >= time {
            break;
        }
        meter.set(millis(passed), millis(time));
        tokio::time::sleep((time - passed).min(Duration::from_millis(200))).await;
    }

    meter.end();
}
