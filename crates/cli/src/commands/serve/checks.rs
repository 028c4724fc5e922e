//! Runs the checks of `serve`, one after the other. The first check reads the whole datastore. Later checks read only
//! its changes, except for a complete read each hour. If a datastore cannot be followed, each check reads everything.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use calipam_check::Report;
use calipam_datastore::Datastore;
use calipam_datastore::feed::WholeReadReason;
use calipam_history::trend::Trends;
use calipam_model::IpNet;
use calipam_model::snapshot::Snapshot;
use calipam_plan::advice::Advice;
use calipam_workflow::{Access, Live, LiveStart, SharedSnapshot, Step, trends};

use super::super::check::Checker;
use super::Results;
use super::served::Success;
use crate::args::{Global, ServeArgs};
use crate::connect;
use crate::console::Console;
use crate::exit::Result;
use crate::operator::Person;
use crate::watch::{self, TOGETHER};

/// The pause after a check, as a multiple of the check's duration. Therefore checks take less than a tenth of the time,
/// unless the end of the interval shortens the pause.
const REST: u32 = 10;
/// The pause after a check of a followed cluster, as a multiple of the check's processor time. Therefore checks use
/// less than a quarter of a core, unless the end of the interval shortens the pause.
const REST_FOLLOWED: u32 = 4;
/// The minimum time between two checks of a followed cluster, so that many changes are checked together. The time is
/// shorter if a finding becomes due earlier.
const EVERY: Duration = Duration::from_secs(1);
/// The time within which Calico usually writes all records of a pod.
const POD_WRITE_TIME: Duration = Duration::from_millis(100);
/// The longest pause before a followed datastore is tried again after an error.
const RETRY: Duration = Duration::from_secs(10);

/// The checks, with the state that they share.
pub(super) struct Checks<'a> {
    args: &'a ServeArgs,
    global: &'a Global,
    console: Console,
    /// The followed cluster.
    live: Option<Live>,
    /// The thread that reads the pools' earlier trends from the `--record` folder.
    past_trends: Option<JoinHandle<Option<Trends>>>,
    /// The last reason why the cluster was not followed.
    reason_not_followed: Option<WholeReadReason>,
    /// The connection to a followed datastore. After an error, it is dropped.
    datastore: Option<Datastore>,
    /// The last read revision, if the data has one.
    revision: Option<i64>,
    /// True if the last check began to follow the cluster, or made a complete read that was due. Such checks are rare,
    /// so no pause follows them.
    is_rare: bool,
    /// The processor time of this process at the start of the last check.
    processor_time: Option<Duration>,
}

/// The findings of a check, before the options select some of them.
struct AllFindings {
    report: Report,
    advice: Advice,
    snapshot: SharedSnapshot,
}

impl AllFindings {
    /// Takes the findings that a followed cluster reports now.
    fn of_live(live: &Live) -> Self {
        Self {
            report: live.report().clone(),
            advice: live.advice().clone(),
            snapshot: live.snapshot(),
        }
    }
}

impl<'a> Checks<'a> {
    /// Creates the checks of a server, before the first one.
    pub(super) fn new(args: &'a ServeArgs, global: &'a Global, console: &Console) -> Self {
        let console = Console {
            progress: false,
            ..console.clone()
        };
        Self {
            args,
            global,
            console,
            live: None,
            past_trends: None,
            reason_not_followed: None,
            datastore: None,
            revision: None,
            is_rare: false,
            processor_time: None,
        }
    }

    /// Checks the cluster once, and returns the report with what it is about. If the cluster is followed, reads only
    /// the changes since the last check, otherwise everything. `begin` is the time at which the check began.
    pub(super) async fn check(&mut self, begin: Instant) -> Result<Success> {
        let checker = Checker::new(&self.args.options)?;
        self.revision = None;
        self.processor_time = processor_time();

        let datastore = self.take_connection().await?;
        self.follow(&checker, &datastore).await?;

        let findings = match &self.live {
            Some(live) => AllFindings::of_live(live),
            None => self.check_everything(&checker, &datastore).await?,
        };
        self.revision = findings.report.cluster.revision.parse().ok();
        if self.live.is_some() {
            self.datastore = Some(datastore);
        }
        self.success(&checker, findings, begin.elapsed())
    }

    /// Takes the connection of the last check, so that it is dropped if this check fails. Opens another one if there is
    /// none, or if a complete read is due.
    async fn take_connection(&mut self) -> Result<Datastore> {
        let last_connection = self.datastore.take();
        let is_whole_read_due = self.live.as_ref().is_some_and(Live::is_due);
        match last_connection {
            Some(datastore) if !is_whole_read_due => Ok(datastore),
            Some(_) | None => connect::open(self.global, &self.console).await,
        }
    }

    /// Reads the whole datastore, which cannot be followed, and checks it.
    async fn check_everything(&self, checker: &Checker<'_>, datastore: &Datastore) -> Result<AllFindings> {
        let person = Person::never_asked(&self.console);
        let (checked, advice) = checker.check(Access::new(datastore, &person)).await?;
        Ok(AllFindings {
            report: checked.report,
            advice,
            snapshot: Arc::new(RwLock::new(checked.snapshot)),
        })
    }

    /// Reports findings of the followed cluster that have become due since the last check, which took this time.
    /// Returns `None` if there are none, or if the datastore cannot be read: the next check says so.
    async fn confirm(&mut self, took: Duration) -> Option<Success> {
        let live = self.live.as_mut()?;
        let person = Person::never_asked(&self.console);
        let access = Access::new(self.datastore.as_ref()?, &person);
        if !live.confirm(access).await.ok()? {
            return None;
        }
        let findings = AllFindings::of_live(live);
        let checker = Checker::new(&self.args.options).ok()?;
        self.success(&checker, findings, took).ok()
    }

    /// Creates the result of a check that took this time. Leaves out the findings that the options do not ask for, with
    /// their causes.
    fn success(&mut self, checker: &Checker<'_>, findings: AllFindings, took: Duration) -> Result<Success> {
        let AllFindings {
            mut report,
            mut advice,
            snapshot,
        } = findings;
        checker.keep_requested(&mut report, &locked(&snapshot), &self.console)?;
        advice.narrow(&report);
        // Keeps later checks from repeating the notes about entries of `--ignore` that match nothing.
        self.console.quiet = true;

        let counts = self.live.as_ref().map(|live| live.counts);
        let trends = self.live.as_ref().map(|live| live.trends.clone());
        Ok(Success::new(report, advice, snapshot, took, counts, trends))
    }

    /// Begins to follow the datastore, if possible. If it is already followed, reads and checks its changes. Does
    /// nothing with `--confirm`, which needs complete reads.
    async fn follow(&mut self, checker: &Checker<'_>, datastore: &Datastore) -> Result<()> {
        if self.args.options.confirm.is_some() {
            return Ok(());
        }
        let Some(live) = &mut self.live else {
            return self.begin_to_follow(checker, datastore).await;
        };

        // The recorded history is used as soon as it has been read.
        if let Some(thread) = self.past_trends.take_if(|thread| thread.is_finished())
            && let Ok(Some(past)) = thread.join()
        {
            live.trends.recall(past);
        }

        let person = Person::never_asked(&self.console);
        let step = live.step(Access::new(datastore, &person)).await?;
        // `Whole` without a reason is the regular read of everything, which comes seldom.
        self.is_rare = matches!(step, Step::Whole(None));
        match step {
            Step::Changes(_) | Step::Whole(None) => {}
            Step::Lost(reason) => {
                self.live = None;
                self.warn_not_followed(&reason);
            }
            Step::Whole(Some(reason)) => self.tell_whole_read(&reason),
        }
        Ok(())
    }

    /// Reads the whole datastore and begins to follow it, if it can be followed.
    async fn begin_to_follow(&mut self, checker: &Checker<'_>, datastore: &Datastore) -> Result<()> {
        let person = Person::never_asked(&self.console);
        let access = Access::new(datastore, &person);
        match Live::begin(access, &checker.criteria(), checker.names()).await? {
            LiveStart::Followed(live) => {
                if let Some(folder) = &self.args.record {
                    self.past_trends = self.read_past_trends(&live, folder);
                }
                self.live = Some(*live);
                self.is_rare = true;
            }
            LiveStart::NotFollowed(reason) => {
                self.warn_not_followed(&reason);
                self.is_rare = false;
            }
        }
        Ok(())
    }

    /// Warns of a check that read everything, although the cluster is followed. A usual reason is only a `--verbose` line.
    fn tell_whole_read(&self, reason: &WholeReadReason) {
        if reason.is_usual() {
            self.console.verbose(&format!("reading everything: {reason}"));
        } else {
            self.console.warn(&format!("everything was read again: {reason}"));
        }
    }

    /// Reads the pools' earlier trends from the `--record` folder on a separate thread, since the read can take a
    /// while. Returns `None` if the thread cannot be started.
    fn read_past_trends(&self, live: &Live, folder: &Path) -> Option<JoinHandle<Option<Trends>>> {
        let shared = live.snapshot();
        let snapshot = locked(&shared);
        let pools: Vec<IpNet> = snapshot.pools.iter().map(|pool| pool.value.cidr).collect();
        let folder = folder.to_owned();
        let now = snapshot.taken_at;
        let console = self.console.clone();
        let read = move || match trends(&folder, pools.into_iter(), now, &Person::never_asked(&console)) {
            // `None` if nothing was recorded before this run.
            Ok(trends) => trends,
            Err(error) => {
                console.warn(&format!(
                    "the forecast continues without the recorded history: {error}"
                ));
                None
            }
        };
        thread::Builder::new().name("past".into()).spawn(read).ok()
    }

    /// Warns that each check reads everything, if the reason is new.
    fn warn_not_followed(&mut self, reason: &WholeReadReason) {
        let last_reason = self.reason_not_followed.replace(reason.clone());
        let is_new = last_reason.as_ref() != Some(reason);
        if is_new && *reason != WholeReadReason::NotForThisDatastore {
            self.console
                .warn(&format!("each check reads everything: {reason}"));
        }
    }

    /// Returns the shortest pause after a check that lasted `took`, so that checks use only a part of a processor. Rare
    /// checks need none.
    fn rest_for(&self, took: Duration) -> Duration {
        if self.is_rare {
            return Duration::ZERO;
        }
        if self.live.is_some()
            && let Some(rest) = rest_after(self.processor_time)
        {
            return rest;
        }
        // The `--settle` wait between two reads does not count, since it uses no processor time.
        let settle = Duration::try_from(self.args.options.recheck.settle).unwrap_or_default();
        took.saturating_sub(settle) * REST
    }

    /// Pauses after a check that lasted `took`, and waits for a change, a finding that is due, or the end of the
    /// interval. Publishes findings that become due during the pause.
    pub(super) async fn rest(&mut self, took: Duration, interval: Duration, results: &mut Results) {
        let begin = Instant::now();
        self.pause(took, interval, results).await;
        let time_left = interval.saturating_sub(took + begin.elapsed());
        self.wait_for_change(time_left).await;
    }

    /// Pauses after a check that lasted `took`. Publishes findings that become due during the pause.
    async fn pause(&mut self, took: Duration, interval: Duration, results: &mut Results) {
        let shortest_rest = match &self.live {
            Some(live) => EVERY.saturating_sub(took).min(live.until_due()),
            None => Duration::ZERO,
        };
        let longest_rest = interval.saturating_sub(took);
        // The interval is kept even if the checks then use more of a processor.
        let mut rest = self.rest_for(took).max(shortest_rest).min(longest_rest);
        let begin = Instant::now();
        while let Some(wait) = self.until_confirmable()
            && begin.elapsed() + wait < rest
        {
            tokio::time::sleep(wait).await;
            let before = processor_time();
            if let Some(success) = self.confirm(took).await {
                results.publish(success);
            }
            rest += rest_after(before).unwrap_or_default();
        }
        tokio::time::sleep(rest.saturating_sub(begin.elapsed())).await;
    }

    /// Returns the time until the next finding becomes due; `None` if there is none, or no connection to confirm it.
    fn until_confirmable(&self) -> Option<Duration> {
        self.datastore.as_ref()?;
        self.live.as_ref()?.until_confirmable()
    }

    /// Waits for a change, in the way that the datastore allows, or until no time is left.
    async fn wait_for_change(&mut self, time_left: Duration) {
        let Some(live) = &mut self.live else {
            return watch::wait(time_left, self.revision, self.global, &self.console).await;
        };
        if self.datastore.is_none() {
            let time_left = time_left.min(RETRY);
            return watch::wait(time_left, self.revision, self.global, &self.console).await;
        }
        match live.wait(time_left).await {
            // The other writes for the same pod follow in a moment.
            Ok(true) => tokio::time::sleep(POD_WRITE_TIME).await,
            Ok(false) => {}
            // The next check opens a new connection.
            Err(_) => {
                self.datastore = None;
                tokio::time::sleep(TOGETHER.min(time_left)).await;
            }
        }
    }
}

/// Locks a snapshot for reading, even if a thread has panicked while it held the lock.
fn locked(snapshot: &SharedSnapshot) -> RwLockReadGuard<'_, Snapshot> {
    snapshot.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the pause for the processor time that this process has used since it had used `before`.
fn rest_after(before: Option<Duration>) -> Option<Duration> {
    let used = processor_time()?.saturating_sub(before?);
    Some(used * REST_FOLLOWED)
}

/// Returns the processor time of this process, on all cores.
#[cfg(unix)]
fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).ok()
}

#[cfg(not(unix))]
fn processor_time() -> Option<Duration> {
    None
}
