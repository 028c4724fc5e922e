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
    let Some(config) = snapshot.effective_ipam_config() else {
        return 0;
    };
    if config.cooldown_seconds > 0 && datastore.keeps_cooldown().await {
        config.cooldown_seconds
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
    let observe = async |datastore: &Datastore, progress: &ProgressFn| datastore.observe(progress).await;
    let snapshot = watched(access, activity, observe).await?;
    Ok(log_and_mark_unread(snapshot, access.operator))
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
    let observe =
        async |datastore: &Datastore, progress: &ProgressFn| datastore.observe_at(revision, progress).await;
    let snapshot = watched(access, Activity::Reading, observe).await?;
    Ok(log_and_mark_unread(snapshot, access.operator))
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
fn log_and_mark_unread(mut snapshot: Snapshot, operator: &dyn Operator) -> Snapshot {
    name_unread(&mut snapshot);
    tell_read(&snapshot, operator);
    snapshot
}

/// Logs the identity and time of a snapshot, such as `cluster 0f0e1d2c3b4a59680f, Calico v3.32.1, revision 48250, at
/// 2026-11-21T10:15:00Z`.
fn tell_read(snapshot: &Snapshot, operator: &dyn Operator) {
    fn or_unknown(text: &str) -> &str {
        if text.is_empty() { "unknown" } else { text }
    }
    let identity = ClusterIdentity::of(snapshot);
    let guid = or_unknown(&identity.guid);
    let version = or_unknown(&identity.calico_version);
    let revision = or_unknown(&identity.revision);
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
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let progress = |side: usize| -> ProgressFn {
        let meter = Arc::clone(&meter);
        let counts = Arc::clone(&counts);
        Arc::new(move |progress: Progress| {
            counts[side].store(progress.read, Ordering::Relaxed);
            let total = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
            let expected = 0;
            meter.set(total, expected);
        })
    };

    let first_progress = progress(0);
    let second_progress = progress(1);
    let result = tokio::try_join!(first.observe(&first_progress), second.observe(&second_progress));
    meter.end();
    let (first, second) = result?;
    Ok((
        log_and_mark_unread(first, operator),
        log_and_mark_unread(second, operator),
    ))
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
    let ids_in_snapshot = handle_ids(&snapshot, begin);
    if begin.is_empty() || ids_in_snapshot.contains(clean_id(begin)) {
        return Ok((snapshot, begin.to_owned()));
    }

    // A file was read completely, so its IDs include those that only blocks record.
    let is_whole = snapshot.has_read(Source::Blocks);
    let ids = if is_whole {
        ids_in_snapshot
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
        let coverage = snapshot.coverage.entry(source);
        coverage.or_insert(Coverage::Skipped(WhySkipped::NoKubeconfig));
    }
}

pub(crate) fn progress(meter: &Arc<dyn Meter>) -> ProgressFn {
    let meter = Arc::clone(meter);
    Arc::new(move |progress: Progress| meter.set(progress.read, progress.expected))
}

/// The GUID of the cluster in a datastore; empty if it has none.
pub async fn guid(datastore: &Datastore) -> Result<String> {
    match cluster_information(datastore).await? {
        Some(information) => Ok(information.guid),
        None => Ok(String::new()),
    }
}

/// Reads the ClusterInformation; `None` if it is missing or cannot be decoded.
pub async fn cluster_information(datastore: &Datastore) -> Result<Option<ClusterInformation>> {
    let stored = datastore.stored_object(Key::cluster_information()).await?;
    Ok(stored.and_then(|stored| ClusterInformation::parse(&stored.raw).ok()))
}

/// The longest wait without a message to the operator.
const LONGEST_SILENT_WAIT: SignedDuration = SignedDuration::from_mins(1);

/// Waits for a time, and shows the progress.
pub(crate) async fn wait(time: SignedDuration, activity: Activity, operator: &dyn Operator) {
    if time > LONGEST_SILENT_WAIT {
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
