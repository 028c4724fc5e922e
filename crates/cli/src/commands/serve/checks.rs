//! The checks of `serve`, one after the other. A datastore is read once and followed; of one that cannot be followed each check reads
//! what it needs.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use calipam_datastore::Datastore;
use calipam_datastore::changes::WhyWhole;
use calipam_history::trend::Trends;
use calipam_model::IpNet;
use calipam_workflow::{Live, Step, trends};

use super::super::check::Checker;
use super::served::Good;
use crate::args::{Global, ServeArgs};
use crate::connect;
use crate::console::Console;
use crate::exit::Failure;
use crate::operator::Person;
use crate::watch::{self, TOGETHER};

/// After a check it rests for so many times as long, so that changes that never end take less than a tenth of the time.
const REST: u32 = 10;
/// The same where the datastore is followed, by the processor time of a check: it takes less than a quarter of a core.
const REST_FOLLOWED: u32 = 4;
/// A datastore that is followed is asked for changes no more often, so that many changes are checked together.
const EVERY: Duration = Duration::from_secs(1);
/// What Calico writes for one pod comes within this time, as a rule.
const OF_ONE_POD: Duration = Duration::from_millis(100);
/// After how long a datastore that is followed is asked again if it does not answer.
const RETRY: Duration = Duration::from_secs(10);

/// Checks, and what is kept from one to the next.
pub(super) struct Checks<'a> {
    args: &'a ServeArgs,
    global: &'a Global,
    console: Console,
    /// The cluster that is followed.
    live: Option<Live>,
    /// What is being read of the recording since it is followed.
    past: Option<JoinHandle<Option<Trends>>>,
    /// Why it is not.
    not_followed: Option<WhyWhole>,
    /// Open for as long as it answers, if it is followed.
    datastore: Option<Datastore>,
    /// The revision that was read last; of a file or an old datastore there is none.
    revision: Option<i64>,
    /// What the last check did beyond its changes is not done again soon: nothing rests for it.
    is_rare: bool,
    /// Of this process, when the last check began.
    processor_time: Option<Duration>,
}

impl<'a> Checks<'a> {
    pub(super) fn new(args: &'a ServeArgs, global: &'a Global, console: &Console) -> Self {
        let console = Console { progress: false, ..console.clone() };
        Self {
            args,
            global,
            console,
            live: None,
            past: None,
            not_followed: None,
            datastore: None,
            revision: None,
            is_rare: false,
            processor_time: None,
        }
    }

    /// One check, and all that is served of it.
    pub(super) async fn check(&mut self, begin: Instant) -> Result<Good, Failure> {
        let options = &self.args.options;
        let checker = Checker::new(options)?;
        self.revision = None;
        self.processor_time = processor_time();
        let is_due = self.live.as_ref().is_some_and(Live::is_due);
        let datastore = match self.datastore.take() {
            Some(datastore) if !is_due => datastore,
            _ => connect::open(self.global, &self.console).await?,
        };
        self.follow(&checker, &datastore).await?;

        let (mut report, snapshot, counts) = match &mut self.live {
            Some(live) => (live.report().clone(), live.snapshot(), Some(live.counts)),
            None => {
                let checked = checker.check_datastore(&datastore, &self.console).await?;
                (checked.report, Arc::new(RwLock::new(checked.snapshot)), None)
            }
        };
        self.revision = report.cluster.revision.parse().ok();
        self.datastore = self.live.is_some().then_some(datastore);
        let asked = snapshot.read().unwrap_or_else(PoisonError::into_inner);
        checker.keep(&mut report, &asked, &self.console)?;
        drop(asked);
        // Entries of a file with accepted findings that match nothing are told once.
        self.console.quiet = true;

        let trends = self.live.as_ref().map(|live| live.trends.clone());
        Ok(Good::new(report, snapshot, begin.elapsed(), counts, trends))
    }

    /// Reads and checks what has changed, if the datastore can be followed. Two reads that confirm each other are whole ones.
    async fn follow(&mut self, checker: &Checker<'_>, datastore: &Datastore) -> Result<(), Failure> {
        if self.args.options.confirm.is_some() {
            return Ok(());
        }
        let person = Person::watching(&self.console);
        let Some(live) = &mut self.live else {
            match Live::begin(datastore, &checker.criteria(), &person).await? {
                Ok(live) => {
                    self.past = self.args.record.as_deref().and_then(|folder| self.recall(&live, folder));
                    self.live = Some(live);
                }
                Err(why) => self.not_followed(&why),
            }
            self.is_rare = self.live.is_some();
            return Ok(());
        };
        if let Some(past) = self.past.take_if(|past| past.is_finished()) {
            past.join().ok().flatten().into_iter().for_each(|past| live.trends.recall(past));
        }
        let step = live.step(datastore, &person).await?;
        self.is_rare = matches!(step, Step::Whole(None));
        match step {
            Step::Changes(_) | Step::Whole(None) => {}
            Step::Lost(why) => {
                self.live = None;
                self.not_followed(&why);
            }
            Step::Whole(Some(why)) if why.is_usual() => {
                self.console.verbose(&format!("reading everything: {why}"));
            }
            Step::Whole(Some(why)) => self.console.warn(&format!("everything was read again: {why}")),
        }
        Ok(())
    }

    /// Reads on a thread of its own what the recording tells of the time before: that of a busy cluster takes a while.
    fn recall(&self, live: &Live, folder: &Path) -> Option<JoinHandle<Option<Trends>>> {
        let snapshot = live.snapshot();
        let snapshot = snapshot.read().unwrap_or_else(PoisonError::into_inner);
        let pools: Vec<IpNet> = snapshot.pools.iter().map(|pool| pool.value.cidr).collect();
        let (folder, now, console) = (folder.to_owned(), snapshot.taken_at, self.console.clone());
        let read = move || match trends(&folder, pools.into_iter(), now, &Person::watching(&console)) {
            // Where nothing was recorded before, the recorder begins now.
            Ok(past) => past,
            Err(error) => {
                console.warn(&format!("the forecast goes on without what was recorded: {error}"));
                None
            }
        };
        thread::Builder::new().name("past".into()).spawn(read).ok()
    }

    /// Says why each check reads everything.
    fn not_followed(&mut self, why: &WhyWhole) {
        let is_new = self.not_followed.replace(why.clone()).as_ref() != Some(why);
        if is_new && *why != WhyWhole::NotForThisDatastore {
            self.console.warn(&format!("each check reads the whole cluster: {why}"));
        }
    }

    /// The rest after a check that took so long.
    fn rest_for(&self, took: Duration) -> Duration {
        let used = processor_time().zip(self.processor_time).map(|(now, before)| now.saturating_sub(before));
        match used {
            _ if self.is_rare => Duration::ZERO,
            Some(used) if self.live.is_some() => used * REST_FOLLOWED,
            // Between its two reads a check waits for `settle`, which costs nothing.
            _ => {
                let settle = Duration::try_from(self.args.options.recheck.settle).unwrap_or_default();
                took.saturating_sub(settle) * REST
            }
        }
    }

    /// Rests after a check that took so long, and waits for a change, or until the interval has passed.
    pub(super) async fn rest(&mut self, took: Duration, interval: Duration) {
        let least = self
            .live
            .as_ref()
            .map_or(Duration::ZERO, |live| EVERY.saturating_sub(took).min(live.until_due()));
        let rest = self.rest_for(took).max(least).min(interval.saturating_sub(took));
        tokio::time::sleep(rest).await;
        let most = interval.saturating_sub(took + rest);
        let (Some(live), Some(datastore)) = (&mut self.live, &self.datastore) else {
            let most = if self.live.is_some() { most.min(RETRY) } else { most };
            return watch::wait(most, self.revision, self.global, &self.console).await;
        };
        match live.wait(datastore, most).await {
            Ok(true) => tokio::time::sleep(OF_ONE_POD).await,
            Ok(false) => {}
            Err(_) => {
                self.datastore = None;
                tokio::time::sleep(TOGETHER.min(most)).await;
            }
        }
    }
}

/// Processor time that this process has used, on all cores.
#[cfg(unix)]
fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).ok()
}

#[cfg(not(unix))]
fn processor_time() -> Option<Duration> {
    None
}
