//! Follows a cluster: reads it, applies each change to the snapshot, and then checks the snapshot again. Everything is
//! read again each hour.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use calipam_check::{Context, Finding, FindingAges, Report, drop_changed};
use calipam_datastore::Datastore;
use calipam_datastore::feed::{Changed, Followed, OrWholeRead, WholeReadReason};
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
    /// True if the latest second read did not confirm all findings that were due.
    needs_proof: bool,
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
    /// they have lasted for a while. Cures are limited to the named part of the cluster. If the datastore cannot be
    /// followed, returns the reason.
    ///
    /// # Errors
    /// If the datastore cannot be read, or none of the named nodes or pools exists.
    pub async fn begin(access: Access<'_>, criteria: &Criteria, names: Names) -> Result<OrWholeRead<Self>> {
        let (snapshot, followed) = match follow(access).await? {
            Ok(read) => read,
            Err(reason) => return Ok(Err(reason)),
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
            needs_proof: false,
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
        Ok(Ok(live))
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

        // Findings that are due are proved by a second read of their objects. If that is not possible, all changes are
        // awaited instead.
        let mut due_objects = None;
        let has_due_findings = self.until_due().is_zero();
        if has_due_findings {
            due_objects = self.reread_due(access.datastore).await?;
            if due_objects.is_none() {
                self.followed.confirm_current().await?;
                self.needs_proof = false;
            }
        }

        let changes = match self.followed.news().await? {
            Ok(changes) => changes,
            Err(reason) => return self.read_because(access, Some(reason)).await,
        };
        self.apply(changes);
        self.check(due_objects)?;
        Ok(Step::Changes(changes))
    }

    /// Reads the objects of due findings again, and returns them with the time. If the kinds of objects are watched
    /// separately, this is faster than proving that all changes were reported. Returns `None` if there are too many
    /// objects, or such a proof is needed.
    async fn reread_due(&self, datastore: &Datastore) -> Result<Option<(Timestamp, Snapshot)>> {
        if !self.followed.kinds_are_independent() || self.needs_proof {
            return Ok(None);
        }

        let now = self.followed.now();
        let mut keys: BTreeSet<Key> = BTreeSet::new();
        for finding in &self.last_check.waiting {
            if !self.ages.is_due(&finding.key(), now) {
                continue;
            }
            if finding.depends_on.is_empty() {
                return Ok(None);
            }
            keys.extend(finding.depends_on.iter().cloned());
        }
        if keys.is_empty() || keys.len() > MAX_REREAD {
            return Ok(None);
        }

        let later = datastore.reread(&keys).await?;
        Ok(later.map(|later| (now, later)))
    }

    /// Checks the snapshot. Due findings whose objects in `due_objects` are unchanged are confirmed.
    fn check(&mut self, due_objects: Option<(Timestamp, Snapshot)>) -> Result<()> {
        let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner);
        let context = Context::new(&snapshot, &self.criteria.options);
        let report = context.check();
        if let Some((read_at, later)) = due_objects {
            let mut due = report.clone();
            due.retain(|finding| self.ages.is_due(&finding.key(), read_at));
            let dropped = drop_changed(&mut due, &snapshot, &later);
            self.needs_proof = !dropped.is_empty();
            for finding in &due.findings {
                self.ages.confirm(&finding.key(), read_at);
            }
        }

        self.last_check = LastCheck::new(context, report, &mut self.ages, &self.followed, &self.names)?;
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
        let was_read_recently = match self.read_for_machines {
            Some(read_at) => read_at.elapsed() < WHOLE_READ_AFTER,
            None => false,
        };
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
            Ok(read) => read,
            Err(reason) => return Ok(Step::Lost(reason)),
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
        let due_objects = None;
        self.check(due_objects)?;
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

/// Reads the datastore, and begins to follow its changes.
async fn follow(access: Access<'_>) -> Result<OrWholeRead<(Snapshot, Followed)>> {
    let read = watched(access, Activity::Reading, async |datastore, progress| {
        datastore.follow(progress).await
    })
    .await?;
    Ok(read.map(|(mut snapshot, followed)| {
        name_unread(&mut snapshot);
        (snapshot, followed)
    }))
}
