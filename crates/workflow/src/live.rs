//! A cluster that is read once and followed from then on: what it changes is read and checked, and nothing else. Each hour it is read
//! and checked as a whole; where that finds something else, it counts.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use calipam_check::live::{Checked, LiveCheck, Standing, Touched};
use calipam_check::{Finding, Report, drop_changed};
use calipam_datastore::Datastore;
use calipam_datastore::changes::WhyWhole;
use calipam_datastore::follow::{Changed, Followed, News};
use calipam_history::trend::Trends;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, Source};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::error::Error;
use crate::operator::{Activity, Operator, Pending};
use crate::read::{Criteria, name_unread, wait, watched};

/// After how long everything is read and checked again.
const WHOLE: Duration = Duration::from_hours(1);

/// So many objects are read again for findings; for more it is quicker to ask whether everything was reported.
const MOST_AGAIN: usize = 100;

/// A snapshot that changes, and that others ask.
pub type SharedSnapshot = Arc<RwLock<Snapshot>>;

/// A cluster that is followed, and what was found in it.
pub struct Live {
    followed: Followed,
    snapshot: SharedSnapshot,
    check: LiveCheck,
    standing: Standing,
    /// What was read again was not enough for all findings that had stood for long enough.
    needs_proof: bool,
    criteria: Criteria,
    /// When everything was read last.
    whole: Instant,
    /// A virtual machine has come to a cluster that had no kind for them when it was connected to.
    has_new_machines: bool,
    /// When everything was read for that reason.
    for_machines: Option<Instant>,
    pub counts: LiveCounts,
    pub trends: Trends,
}

/// What has been done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// Keys that have changed.
    pub changes: u64,
    /// How often what has changed was checked, and how often everything.
    pub parts: u64,
    pub whole: u64,
    /// Findings in which a full check has differed from what was checked by changes.
    pub differences: u64,
}

/// What was done in a step.
#[derive(Debug)]
pub enum Step {
    /// So many changes were read and checked.
    Changes(usize),
    /// Everything was read, since the changes are not known.
    Whole(WhyWhole),
    /// The datastore cannot be followed any more, and what is known of it grows old.
    Lost(WhyWhole),
    /// An hour has passed: everything was read and checked. These findings were lost, and these should not have been there.
    Compared { lost: Vec<Finding>, wrong: Vec<Finding> },
}

impl Live {
    /// Reads everything, checks it, and lets it stand for as long as a half-done operation of Calico may take; or says why the
    /// datastore cannot be followed.
    pub fn begin<'a>(
        datastore: &'a Datastore,
        criteria: &'a Criteria,
        operator: &'a dyn Operator,
    ) -> Pending<'a, Result<Result<Self, WhyWhole>, Error>> {
        Box::pin(async move {
            let (snapshot, followed) = match follow(datastore, operator).await? {
                Ok(read) => read,
                Err(why) => return Ok(Err(why)),
            };
            let check = LiveCheck::new(&snapshot, &criteria.options);
            let mut trends = Trends::default();
            trends.note(&Snapshot::default(), &Snapshot::default(), &snapshot);
            let mut live = Self {
                standing: Standing::new(criteria.recheck_after).apart(followed.is_apart()),
                followed,
                snapshot: Arc::new(RwLock::new(snapshot)),
                check,
                needs_proof: false,
                criteria: criteria.clone(),
                whole: Instant::now(),
                has_new_machines: false,
                for_machines: None,
                counts: LiveCounts { whole: 1, ..LiveCounts::default() },
                trends,
            };
            live.report();
            if live.standing.next().is_some() {
                wait(criteria.recheck_after, Activity::Rechecking, operator).await;
                live.step(datastore, operator).await?;
            }
            Ok(Ok(live))
        })
    }

    pub fn snapshot(&self) -> SharedSnapshot {
        Arc::clone(&self.snapshot)
    }

    /// True if the next step reads everything: an hour has passed, or a kind has been installed. It needs a new connection, since
    /// one asks only once which kinds there are.
    pub fn is_due(&self) -> bool {
        self.whole.elapsed() >= WHOLE || self.has_new_machines
    }

    /// How long it takes until a finding has stood for long enough.
    pub fn until_due(&self) -> Duration {
        let now = self.followed.now();
        let due =
            self.standing.next().map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        due.unwrap_or(Duration::MAX)
    }

    /// Waits until something has changed, a finding has stood for long enough, or `most` has passed; true if something has.
    pub async fn wait(&mut self, datastore: &Datastore, most: Duration) -> Result<bool, Error> {
        if self.has_new_machines {
            return Ok(true);
        }
        let most = most.min(self.until_due());
        match tokio::time::timeout(most, datastore.await_news(&mut self.followed)).await {
            Ok(changed) => Ok(changed.map(|()| true)?),
            Err(_) => Ok(false),
        }
    }

    /// Reads what has changed, and checks it. If a finding has stood for long enough, everything that has happened by then is known, or
    /// it is that its own objects have not changed.
    ///
    /// # Errors
    /// If the datastore cannot be read. What is known stays as it is.
    pub fn step<'a>(
        &'a mut self,
        datastore: &'a Datastore,
        operator: &'a dyn Operator,
    ) -> Pending<'a, Result<Step, Error>> {
        Box::pin(async move {
            if self.is_due() {
                return self.compare(datastore, operator).await;
            }
            let is_due = self.until_due().is_zero();
            let again = if is_due { self.read_again(datastore).await? } else { None };
            if is_due && again.is_none() {
                datastore.prove(&mut self.followed).await?;
                self.needs_proof = false;
            }
            match datastore.news(&mut self.followed, None).await? {
                Ok(news) => {
                    let changes = news.len();
                    self.take(news, None);
                    if let Some((at, later)) = again {
                        self.confirm(at, &later);
                    }
                    Ok(Step::Changes(changes))
                }
                Err(why) => self.read(datastore, operator, why).await,
            }
        })
    }

    /// Reads again what the findings rest on that have stood for long enough, and gives it with the time: quicker than a proof of everything
    /// where the changes of several kinds are reported apart. `None` where it is much, or would not be enough.
    async fn read_again(&self, datastore: &Datastore) -> Result<Option<(Timestamp, Snapshot)>, Error> {
        let now = self.followed.now();
        let due = || self.check.findings().filter(|finding| self.standing.is_due(&finding.key(), now));
        let is_enough = self.followed.is_apart() && !self.needs_proof;
        if !is_enough || due().any(|finding| finding.depends_on.is_empty()) {
            return Ok(None);
        }
        let keys: BTreeSet<Key> = due().flat_map(|finding| finding.depends_on.iter().cloned()).collect();
        if keys.is_empty() || keys.len() > MOST_AGAIN {
            return Ok(None);
        }
        Ok(datastore.reread(&keys).await?.map(|later| (now, later)))
    }

    /// Takes note of the findings whose objects are what they were when they were read again at this time.
    fn confirm(&mut self, at: Timestamp, later: &Snapshot) {
        let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner);
        let mut report = self.check.report(&snapshot);
        report.retain(|finding| self.standing.is_due(&finding.key(), at));
        self.needs_proof = !drop_changed(&mut report, &snapshot, later).is_empty();
        report.findings.iter().for_each(|finding| self.standing.confirm(&finding.key(), at));
    }

    /// What stands of what was found.
    pub fn report(&mut self) -> Report {
        let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner);
        let mut report = self.check.report(&snapshot);
        self.standing.hold_back(&mut report, snapshot.taken_at, self.followed.proven(snapshot.taken_at));
        report
    }

    /// Checks changes; with `at` as of another time than that of their read.
    fn take(&mut self, news: News, at: Option<Timestamp>) {
        let mut snapshot = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        self.counts.changes += news.len() as u64;
        let Changed { before, now } = news.apply(&mut snapshot, &mut self.followed);
        snapshot.taken_at = at.unwrap_or(snapshot.taken_at);
        self.trends.note(&before, &now, &snapshot);
        // Machines may stay without a kind: pods of them are left where KubeVirt was removed.
        let is_recent = self.for_machines.is_some_and(|at| at.elapsed() < WHOLE);
        let mut pods = now.pods.iter().map(|pod| &pod.value);
        self.has_new_machines |=
            !is_recent && !snapshot.has_read(Source::Machines) && pods.any(|pod| !pod.machine().is_empty());
        match self.check.update(&mut snapshot, Touched::between(&before, &now)) {
            Checked::Part => self.counts.parts += 1,
            Checked::Everything => self.counts.whole += 1,
        }
    }

    /// Reads everything, and checks it.
    async fn read(
        &mut self,
        datastore: &Datastore,
        operator: &dyn Operator,
        why: WhyWhole,
    ) -> Result<Step, Error> {
        let (snapshot, followed) = match follow(datastore, operator).await? {
            Ok(read) => read,
            Err(why) => return Ok(Step::Lost(why)),
        };
        self.trends.interrupt(snapshot.taken_at);
        self.replace(LiveCheck::new(&snapshot, &self.criteria.options), snapshot, followed);
        Ok(Step::Whole(why))
    }

    fn replace(&mut self, check: LiveCheck, snapshot: Snapshot, followed: Followed) {
        (self.check, self.followed, self.whole) = (check, followed, Instant::now());
        if std::mem::take(&mut self.has_new_machines) {
            self.for_machines = Some(self.whole);
        }
        self.counts.whole += 1;
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }

    /// Reads everything, and compares what is found in it with what was found by following: what was found again stays. [`Self::step`]
    /// does so each hour.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub async fn compare(&mut self, datastore: &Datastore, operator: &dyn Operator) -> Result<Step, Error> {
        let (snapshot, followed) = match follow(datastore, operator).await? {
            Ok(read) => read,
            Err(why) => return Ok(Step::Lost(why)),
        };
        let whole = LiveCheck::new(&snapshot, &self.criteria.options);
        let mut step = Step::Compared { lost: Vec::new(), wrong: Vec::new() };
        match datastore.news(&mut self.followed, Some(&followed)).await? {
            Ok(news) => {
                self.take(news, Some(snapshot.taken_at));
                if self.followed.is_at(&followed) {
                    let (found, expected) = (|| self.check.findings(), || whole.findings());
                    let (lost, wrong) = (missing(expected(), found()), missing(found(), expected()));
                    self.counts.differences += (lost.len() + wrong.len()) as u64;
                    step = Step::Compared { lost, wrong };
                }
            }
            Err(why) => {
                self.trends.interrupt(snapshot.taken_at);
                step = Step::Whole(why);
            }
        }
        self.replace(whole, snapshot, followed);
        Ok(step)
    }
}

/// The findings of one report that another does not have.
fn missing<'f>(
    all: impl Iterator<Item = &'f Finding>,
    others: impl Iterator<Item = &'f Finding>,
) -> Vec<Finding> {
    let known: HashMap<_, _> = others.map(|other| (other.key_ref(), other)).collect();
    let is_missing =
        |finding: &&Finding| known.get(&finding.key_ref()).is_none_or(|other| *other != *finding);
    all.filter(is_missing).cloned().collect()
}

async fn follow(
    datastore: &Datastore,
    operator: &dyn Operator,
) -> Result<Result<(Snapshot, Followed), WhyWhole>, Error> {
    let read =
        watched(Activity::Reading, operator, async |progress| datastore.follow(progress).await).await?;
    Ok(read.map(|(mut snapshot, followed)| {
        name_unread(&mut snapshot);
        (snapshot, followed)
    }))
}
