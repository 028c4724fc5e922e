//! Follows a cluster: reads it, applies each change to the snapshot, and then checks the snapshot again. Everything is
//! read again each hour.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use calipam_check::{Context, Finding, FindingAges, FindingKey, Report, drop_changed};
use calipam_datastore::Datastore;
use calipam_datastore::feed::{Broken, Changed, Followed, WholeReadReason};
use calipam_datastore::read::ProgressFn;
use calipam_history::trend::Trends;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, Source};
use calipam_plan::advice::Advice;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::check::{Criteria, advise};
use crate::failure::Result;
use crate::operator::{Access, Activity};
use crate::read::{name_unread, wait, watched};
use crate::scope::Names;

/// The time after which everything is read again.
const WHOLE_READ_AFTER: Duration = Duration::from_hours(1);

/// The maximum number of objects that are read again to confirm findings. For more objects, it is faster to ask the
/// datastore whether it has reported every change.
const MAX_REREAD: usize = 100;

/// A snapshot that is kept up to date, for many readers.
pub type SharedSnapshot = Arc<RwLock<Snapshot>>;

/// A followed cluster, with its findings and their causes.
pub struct Live {
    followed: Followed,
    snapshot: SharedSnapshot,
    ages: FindingAges,
    last_check: LastCheck,
    /// The time up to which [`Self::confirm`] has read due findings again since the last check.
    read_again: Option<Timestamp>,
    criteria: Criteria,
    /// The part of the cluster to which cures are limited.
    names: Names,
    /// The time of the last complete read.
    read_at: Instant,
    /// True if a virtual machine was added, but the cluster had no resource for virtual machines when calipam
    /// connected.
    has_new_machines: bool,
    /// The time of the last complete read that new virtual machines required.
    read_for_machines: Option<Instant>,
    pub counts: LiveCounts,
    pub trends: Trends,
}

/// The findings of the last check.
struct LastCheck {
    /// The report, with the findings that have lasted long enough to be reported.
    report: Report,
    /// The causes of these findings, and what helps.
    advice: Advice,
    /// The findings that have not lasted long enough yet.
    waiting: Vec<Finding>,
}

/// Counters since the program started to follow the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// The number of keys that have changed.
    pub changes: u64,
    pub checks: u64,
    /// The number of complete reads.
    pub reads: u64,
}

/// The result of an attempt to follow a cluster.
pub enum LiveStart<T> {
    Followed(Box<T>),
    /// The datastore cannot be followed.
    NotFollowed(WholeReadReason),
}

/// The result of a step.
#[derive(Debug)]
pub enum Step {
    /// The number of changes that were read.
    Changes(usize),
    /// Everything was read again, because changes may have been missed for this reason; `None` if a complete read was
    /// due.
    Whole(Option<WholeReadReason>),
    /// The datastore can no longer be followed, so the snapshot is not updated.
    Lost(WholeReadReason),
}

impl Live {
    /// Reads and checks everything. Findings that a half-done Calico operation could explain are reported only after
    /// they have lasted for a while. Cures are limited to the named part of the cluster.
    ///
    /// # Errors
    /// If the datastore cannot be read, or none of the named nodes or pools exists.
    pub async fn begin(access: Access<'_>, criteria: &Criteria, names: Names) -> Result<LiveStart<Self>> {
        let (snapshot, followed) = match follow(access).await? {
            LiveStart::Followed(read) => *read,
            LiveStart::NotFollowed(reason) => return Ok(LiveStart::NotFollowed(reason)),
        };
        let mut trends = Trends::default();
        let nothing = Snapshot::default();
        trends.add_changes(&nothing, &nothing, &snapshot);

        let mut ages =
            FindingAges::new(criteria.recheck_after).with_independent_kinds(followed.kinds_are_independent());
        let context = Context::new(&snapshot, &criteria.options);
        let report = context.check();
        let last_check = LastCheck::new(context, report, &mut ages, &followed, &names)?;
        let mut live = Self {
            ages,
            last_check,
            followed,
            snapshot: Arc::new(RwLock::new(snapshot)),
            read_again: None,
            criteria: criteria.clone(),
            names,
            read_at: Instant::now(),
            has_new_machines: false,
            read_for_machines: None,
            counts: LiveCounts {
                changes: 0,
                checks: 1,
                reads: 1,
            },
            trends,
        };
        if live.ages.next().is_some() {
            wait(criteria.recheck_after, Activity::Rechecking, access.operator).await;
            live.step(access).await?;
        }
        Ok(LiveStart::Followed(Box::new(live)))
    }

    pub fn snapshot(&self) -> SharedSnapshot {
        Arc::clone(&self.snapshot)
    }

    /// True if the next step reads everything: an hour has passed, or KubeVirt seems to have been installed. That step
    /// needs a new connection, since a connection looks for the resource of virtual machines only once.
    pub fn is_due(&self) -> bool {
        self.read_at.elapsed() >= WHOLE_READ_AFTER || self.has_new_machines
    }

    /// The time until the next finding has lasted long enough to be reported.
    pub fn until_due(&self) -> Duration {
        let Some(due_at) = self.ages.next() else {
            return Duration::MAX;
        };
        let remaining = due_at.duration_since(self.followed.now());
        Duration::try_from(remaining).unwrap_or_default()
    }

    /// Waits until something changes or a finding has lasted long enough, but at most for `limit`. Returns true if
    /// something changed, or if new virtual machines require a complete read.
    pub async fn wait(&mut self, limit: Duration) -> Result<bool> {
        if self.has_new_machines {
            return Ok(true);
        }
        let timeout = limit.min(self.until_due());
        match tokio::time::timeout(timeout, self.followed.wait()).await {
            Ok(changed) => {
                changed?;
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// The time until [`Self::confirm`] can report another finding; `None` if only a step can.
    pub fn until_confirmable(&self) -> Option<Duration> {
        let waiting = self.last_check.waiting.iter();
        let earliest = waiting.filter_map(|finding| self.confirmable_at(finding)).min()?;
        let wait = earliest.duration_since(self.followed.now());
        // A time that has passed is not waited for.
        Some(Duration::try_from(wait).unwrap_or_default())
    }

    /// The time at which [`Self::confirm`] can report a waiting finding; `None` if its objects need not be read again,
    /// or were.
    fn confirmable_at(&self, finding: &Finding) -> Option<Timestamp> {
        let due = self.ages.due_at(&finding.key())?;
        let was_read_again = self.read_again.is_some_and(|until| due <= until);
        if finding.depends_on.is_empty() || was_read_again {
            return None;
        }
        Some(due)
    }

    /// Reports findings that are due without another check, if their objects are read again and have not changed since
    /// the last check. Returns true if it reports any. The next step decides about the others.
    ///
    /// # Errors
    /// If the datastore cannot be read.
    pub async fn confirm(&mut self, access: Access<'_>) -> Result<bool> {
        let now = self.followed.now();
        self.read_again = Some(now);
        let mut due = self.due(now);
        due.retain(|finding| !finding.depends_on.is_empty());
        let keys = objects_of(&due);
        if keys.is_empty() || keys.len() > MAX_REREAD {
            return Ok(false);
        }
        let due = due.into_iter().cloned().collect();
        let Some(later) = access.datastore.reread(&keys).await? else {
            return Ok(false);
        };

        let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner);
        let mut confirmed = Report {
            findings: due,
            ..Report::default()
        };
        drop_changed(&mut confirmed, &snapshot, &later);
        if confirmed.findings.is_empty() {
            return Ok(false);
        }

        let confirmed_keys: HashSet<FindingKey> = confirmed.findings.iter().map(Finding::key).collect();
        for key in &confirmed_keys {
            self.ages.count(key);
        }
        let last_check = &mut self.last_check;
        last_check
            .waiting
            .retain(|finding| !confirmed_keys.contains(&finding.key()));
        last_check.report.add(confirmed.findings);
        let context = Context::new(&snapshot, &self.criteria.options);
        last_check.advice = advise(context, &last_check.report, &self.names)?;
        Ok(true)
    }

    /// The findings that have lasted long enough at this time, but are not reported.
    fn due(&self, now: Timestamp) -> Vec<&Finding> {
        let waiting = self.last_check.waiting.iter();
        waiting
            .filter(|finding| self.ages.is_due(&finding.key(), now))
            .collect()
    }

    /// True if findings are due that only the proof that all changes were reported can confirm: those of one object,
    /// those that the last check has found again although their objects had changed, and too many ones.
    fn needs_proof(&self) -> bool {
        let due = self.due(self.followed.now());
        let checked_at = self.last_check.report.cluster.taken_at;
        let is_unconfirmed = |finding: &&Finding| {
            finding.depends_on.is_empty() || self.ages.is_due(&finding.key(), checked_at)
        };
        objects_of(&due).len() > MAX_REREAD || due.iter().any(is_unconfirmed)
    }

    /// Reads the changes, and checks the snapshot. A finding counts only if all changes up to now were read, or if its
    /// objects were read again and are unchanged.
    ///
    /// # Errors
    /// If the datastore cannot be read, or none of the named nodes or pools exists any more. The report stays as it was.
    pub async fn step(&mut self, access: Access<'_>) -> Result<Step> {
        if self.is_due() {
            return self.read(access).await;
        }
        access.datastore.resume(&mut self.followed);

        // If the kinds of objects are watched separately, reading a few objects again is faster than proving that all
        // changes were reported.
        if self.followed.kinds_are_independent() && self.until_due().is_zero() {
            self.confirm(access).await?;
            if self.needs_proof() {
                self.followed.confirm_current().await?;
            }
        }

        let changes = match self.followed.news().await {
            Ok(changes) => changes,
            Err(Broken::Lost(reason)) => return self.read_because(access, Some(reason)).await,
            Err(Broken::Failed(error)) => return Err(error.into()),
        };
        self.apply(changes);
        self.check()?;
        Ok(Step::Changes(changes))
    }

    /// Checks the snapshot.
    fn check(&mut self) -> Result<()> {
        let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner);
        let context = Context::new(&snapshot, &self.criteria.options);
        let report = context.check();
        self.last_check = LastCheck::new(context, report, &mut self.ages, &self.followed, &self.names)?;
        self.read_again = None;
        self.counts.checks += 1;
        Ok(())
    }

    /// The findings that have lasted long enough to be reported.
    pub fn report(&self) -> &Report {
        &self.last_check.report
    }

    /// The causes of the findings in the report, and what helps.
    pub fn advice(&self) -> &Advice {
        &self.last_check.advice
    }

    /// Applies the changes that were read to the snapshot.
    fn apply(&mut self, changes: usize) {
        let mut snapshot = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        self.counts.changes += changes as u64;
        let Changed { before, now } = self.followed.apply(&mut snapshot);
        self.trends.add_changes(&before, &now, &snapshot);

        // After KubeVirt was removed, pods of virtual machines can remain, although there is no resource for virtual
        // machines.
        let was_read_recently = self
            .read_for_machines
            .is_some_and(|read_at| read_at.elapsed() < WHOLE_READ_AFTER);
        if was_read_recently || snapshot.has_read(Source::Machines) {
            return;
        }
        if now.pods.iter().any(|pod| !pod.value.machine().is_empty()) {
            self.has_new_machines = true;
        }
    }

    /// Reads and checks everything. [`Self::step`] does so each hour.
    ///
    /// # Errors
    /// The same as for [`Self::step`].
    pub async fn read(&mut self, access: Access<'_>) -> Result<Step> {
        let no_reason = None;
        self.read_because(access, no_reason).await
    }

    /// Reads and checks everything, because changes may have been missed for this reason; `None` if a complete read is
    /// due.
    async fn read_because(&mut self, access: Access<'_>, reason: Option<WholeReadReason>) -> Result<Step> {
        let (snapshot, followed) = match follow(access).await? {
            LiveStart::Followed(read) => *read,
            LiveStart::NotFollowed(reason) => return Ok(Step::Lost(reason)),
        };
        {
            // The lock ends before the check, which takes it again.
            let mut shared = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
            if reason.is_some() {
                // Changes may have been missed, so the trends start over.
                self.trends.interrupt(snapshot.taken_at);
            } else {
                self.trends.add_changes(&shared, &snapshot, &snapshot);
            }
            *shared = snapshot;
        }
        self.followed = followed;
        self.read_at = Instant::now();

        if self.has_new_machines {
            self.has_new_machines = false;
            self.read_for_machines = Some(self.read_at);
        }
        self.counts.reads += 1;
        self.check()?;
        Ok(Step::Whole(reason))
    }
}

impl LastCheck {
    /// Splits the report of a check with `context` by the ages of its findings, and looks for their causes.
    fn new(
        context: Context<'_>,
        mut report: Report,
        ages: &mut FindingAges,
        followed: &Followed,
        names: &Names,
    ) -> Result<Self> {
        let now = context.snapshot.taken_at;
        let waiting = ages.hold_back(&mut report, now, followed.confirmed_until(now));
        let advice = advise(context, &report, names)?;
        Ok(Self {
            report,
            advice,
            waiting,
        })
    }
}

/// The objects that findings depend on.
fn objects_of(findings: &[&Finding]) -> BTreeSet<Key> {
    findings
        .iter()
        .flat_map(|finding| finding.depends_on.iter().cloned())
        .collect()
}

/// Reads the datastore, and begins to follow its changes.
async fn follow(access: Access<'_>) -> Result<LiveStart<(Snapshot, Followed)>> {
    let follow_with_progress =
        async |datastore: &Datastore, progress: &ProgressFn| match datastore.follow(progress).await {
            Ok(read) => Ok(LiveStart::Followed(Box::new(read))),
            Err(Broken::Lost(reason)) => Ok(LiveStart::NotFollowed(reason)),
            Err(Broken::Failed(error)) => Err(error),
        };
    let mut read = watched(access, Activity::Reading, follow_with_progress).await?;
    if let LiveStart::Followed(followed) = &mut read {
        name_unread(&mut followed.0);
    }
    Ok(read)
}
