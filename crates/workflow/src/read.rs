//! Reading a cluster, checking what was read, and reading again what could be half-changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use calipam_check::views::handle_ids;
use calipam_check::{ClusterIdentity, Finding, Options, Report};
use calipam_datastore::Datastore;
use calipam_datastore::read::{Extent, Lookup, NameKind, Progress, ProgressFn};
use calipam_model::handle::clean_id;
use calipam_model::snapshot::{Coverage, Snapshot, Source, WhySkipped};
use calipam_plan::Basis;
use jiff::SignedDuration;
use tokio::time::Instant;

use crate::error::Error;
use crate::operator::{Activity, Meter, Note, Operator, Pending};
use crate::second_read::settle;

/// What counts as a finding.
#[derive(Clone, Debug)]
pub struct Criteria {
    pub options: Options,
    /// After how long suspects are read again; zero for not at all.
    pub recheck_after: SignedDuration,
}

/// What was read, and what was found in it.
pub struct CheckResult {
    pub snapshot: Snapshot,
    /// What was found and stands.
    pub report: Report,
    /// What was found but had changed when it was read again.
    pub dropped: Vec<Finding>,
}

impl CheckResult {
    pub(crate) fn basis(&self, criteria: &Criteria) -> Basis<'_> {
        Basis::new(&self.snapshot, &self.report, &criteria.options)
    }
}

/// Reads and checks. What a half-done operation of Calico could explain is read again, and dropped where it has
/// changed.
pub(crate) fn read_and_check<'a>(
    datastore: &'a Datastore,
    criteria: &'a Criteria,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<CheckResult, Error>> {
    Box::pin(async move {
        let snapshot = read(datastore, operator).await?;
        settle::check_twice(datastore, snapshot, criteria, operator).await
    })
}

/// Reads everything that a check needs.
pub fn read<'a>(
    datastore: &'a Datastore,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Snapshot, Error>> {
    Box::pin(read_at(datastore, None, operator))
}

/// Reads some sources only.
pub fn read_sources<'a>(
    datastore: &'a Datastore,
    sources: &'a [Source],
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Snapshot, Error>> {
    Box::pin(async move {
        let extent = Extent::Sources(sources.iter().copied().collect());
        let snapshot = watched(Activity::Reading, operator, async |progress| {
            datastore.observe_extent(&extent, progress).await
        })
        .await?;
        operator.note(Note::Read(&ClusterIdentity::of(&snapshot)));
        Ok(snapshot)
    })
}

/// Reads the same as it was at a past revision of etcd, or as it is.
pub(crate) async fn read_at(
    datastore: &Datastore,
    revision: Option<i64>,
    operator: &dyn Operator,
) -> Result<Snapshot, Error> {
    let snapshot = watched(Activity::Reading, operator, async |progress| match revision {
        Some(revision) => datastore.observe_at(revision, progress).await,
        None => datastore.observe(progress).await,
    })
    .await?;
    Ok(noted(snapshot, operator))
}

/// Does work whose progress the operator watches.
pub(crate) async fn watched<T>(
    activity: Activity,
    operator: &dyn Operator,
    work: impl AsyncFnOnce(&ProgressFn) -> calipam_datastore::Result<T>,
) -> Result<T, Error> {
    let meter = operator.start(activity);
    let result = work(&progress(&meter)).await;
    meter.end();
    Ok(result?)
}

/// What was read, with the sources that could have been. The operator gets a note of it.
fn noted(mut snapshot: Snapshot, operator: &dyn Operator) -> Snapshot {
    name_unread(&mut snapshot);
    operator.note(Note::Read(&ClusterIdentity::of(&snapshot)));
    snapshot
}

/// Reads two datastores at the same time. Progress is that of both together.
pub(crate) async fn read_two(
    first: &Datastore,
    second: &Datastore,
    operator: &dyn Operator,
) -> Result<(Snapshot, Snapshot), Error> {
    let meter = operator.start(Activity::Reading);
    let read = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let progress = |side: usize| -> ProgressFn {
        let (meter, read) = (Arc::clone(&meter), Arc::clone(&read));
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

/// Reads the few keys around one address or handle.
pub fn read_around<'a>(
    datastore: &'a Datastore,
    lookup: &'a Lookup,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Snapshot, Error>> {
    Box::pin(async move {
        let before = datastore.request_count();
        let mut snapshot = datastore.lookup(lookup).await?;
        let requests = datastore.request_count() - before;
        operator.note(Note::ReadAround { revision: snapshot.revision.to_string(), requests });
        name_unread(&mut snapshot);
        Ok(snapshot)
    })
}

/// Reads around a handle by its ID, or by the beginning of the ID where only one handle begins so. Gives the whole ID, or
/// the text itself where no handle begins so.
pub fn read_around_handle<'a>(
    datastore: &'a Datastore,
    begin: &'a str,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<(Snapshot, String), Error>> {
    Box::pin(async move {
        let snapshot = read_around(datastore, &Lookup::Handle(begin.to_owned()), operator).await?;
        let known = handle_ids(&snapshot, begin);
        if begin.is_empty() || known.contains(clean_id(begin)) {
            return Ok((snapshot, begin.to_owned()));
        }

        // A file was read whole, with the IDs that only blocks record.
        let is_whole = snapshot.has_read(Source::Blocks);
        let ids = if is_whole { known } else { datastore.names(NameKind::Handles, begin).await? };
        let Some(id) = Error::only_handle(begin, ids)? else { return Ok((snapshot, begin.to_owned())) };
        if is_whole {
            return Ok((snapshot, id));
        }
        let snapshot = read_around(datastore, &Lookup::Handle(id.clone()), operator).await?;
        Ok((snapshot, id))
    })
}

/// Names the sources that could have been read, so that a report says that they were not.
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

/// A longer wait is told of.
const LONG: SignedDuration = SignedDuration::from_mins(1);

pub(crate) async fn wait(time: SignedDuration, activity: Activity, operator: &dyn Operator) {
    if time > LONG {
        operator.note(Note::LongWait { activity, time });
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
