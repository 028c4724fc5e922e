//! The person at the terminal: what the workflow has to say, show and ask, in words.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::sync::{Arc, Once};

use calipam_datastore::changes::WhyWhole;
use calipam_datastore::write::{Consent, Question};
use calipam_plan::PlanKind;
use calipam_repair::LockState;
use calipam_workflow::{Activity, Meter, NoConsent, Note, Operator, Pending, Proposal};
use jiff::{SignedDuration, Timestamp};

use crate::console::Console;
use crate::render::text::{count, quoted};
use crate::{hints, preview, progress, render};

/// The person at the terminal, who may have agreed in advance.
pub(crate) struct Person<'a> {
    console: &'a Console,
    /// `--yes`.
    agrees: bool,
    /// The whole of what the next question is about, where only a part of it was shown.
    whole: RefCell<Option<String>>,
    /// The next question is about a lock that was left, not about the plan.
    is_about_lock: Cell<bool>,
}

impl<'a> Person<'a> {
    /// One who is asked, unless there was agreement in advance.
    pub(crate) fn new(console: &'a Console, agrees: bool) -> Self {
        Self { console, agrees, whole: RefCell::default(), is_about_lock: Cell::default() }
    }

    /// One who is not asked anything.
    pub(crate) fn watching(console: &'a Console) -> Self {
        Self::new(console, false)
    }

    /// Tells of a long wait once, quiet or not.
    fn waits(&self, activity: Activity, time: SignedDuration) {
        static TOLD: Once = Once::new();
        let tell =
            || self.console.say(&format!("{}: {time:#}, until {}", progress::words(activity).1, end(time)));
        match activity {
            Activity::WaitingForSecondRead if self.console.quiet => tell(),
            // Something else has told of it.
            Activity::WaitingForSecondRead => {}
            // `serve` waits again and again.
            _ => TOLD.call_once(tell),
        }
    }
}

/// Unlocks the datastore whoever has locked it.
const UNLOCK: &str = "`calicoctl datastore migrate unlock`";

/// The commands that end a lock which the run of a journal has left.
fn unlocks(journal: &Path) -> String {
    let undo = hints::command(&["undo", &journal.to_string_lossy()]);
    format!("{undo} undoes that run and unlocks the datastore; {UNLOCK} only unlocks it")
}

impl Operator for Person<'_> {
    fn note(&self, note: Note<'_>) {
        let console = self.console;
        match note {
            Note::Read(cluster) => console.verbose(&render::header::read(cluster)),
            Note::Journal(journal) => console.info(&format!("journal: {}", quoted(journal))),
            Note::ShortGrace(grace) => console.warn(&format!(
                "a grace period of {grace:#} is shorter than a CNI operation can take: an address that is just being assigned may look unused; use 10s or more"
            )),
            Note::ReadAround { revision, requests } => {
                console.verbose(&format!("read at revision {revision} in {requests} requests"));
            }
            Note::Rereading { objects, after } => {
                console.verbose(&format!("rechecking {} after {after:#}", count(objects, "object", "objects")));
            }
            Note::CannotConfirm => console.warn("`--confirm` has no effect: a file does not change"),
            Note::SecondRead { addresses, after, kind } => {
                console.info(&second_read(addresses, after));
                let release = match kind {
                    PlanKind::Release => hints::again(&["--from-report", "report.json"], &[]),
                    PlanKind::Rebuild => hints::command_with(
                        &["release", "--leaked", "--from-report", "report.json"],
                        &hints::remedy::PART,
                    ),
                    _ => return,
                };
                console.hint(&format!(
                    "without waiting here: {} now, and after {after:#} {release}",
                    hints::into_file(
                        &["check", "-o", "json"],
                        &[&hints::remedy::PART[..], &["grace"]].concat(),
                        "report.json"
                    ),
                ));
            }
            Note::WrittenFirst { waiting, after } => console.info(&format!(
                "{} found unused once and checked again in {after:#}: what does not have to wait is written first",
                count(waiting, "address or handle was", "addresses or handles were")
            )),
            Note::SecondLook { after } => console.info(&format!(
                "checking the pool again in {after:#}, before it is deleted: a pod that was starting when it was disabled may still get a block there"
            )),
            Note::LongWait { activity, time } => self.waits(activity, time),
            Note::PlanHasChanged => console.info("the plan has changed since the first check"),
            Note::SecondReadAssumed { addresses, after } => console.warn(&format!(
                "{} found unused once; planned as if a second check, {after:#} later, had found the same",
                count(addresses, "address or handle was", "addresses or handles were")
            )),
            Note::ReportForced { report, objection } => {
                console.warn(&format!("--force: {objection} ({report})"));
            }
            Note::BlockFiles { files, directory } => {
                console.verbose(&format!("{} in {}", count(files, "file", "files"), quoted(directory)));
            }
            Note::StaleLock(lock, left) => {
                let run = format!("the run `{}` of {}", lock.command, lock.started_at);
                let journal = quoted(&lock.journal);
                if left == LockState::AsItWas {
                    self.is_about_lock.set(true);
                    console.warn(&format!(
                        "{run} did not finish and left the datastore locked: no pod starts or stops (journal {journal})"
                    ));
                    console.hint(&unlocks(&lock.journal));
                    if !self.agrees {
                        console.say("This restores `datastoreReady` to its value before that run.");
                    }
                } else {
                    console.warn(&format!(
                        "the datastore is locked: no pod starts or stops. {run} did not finish while it held the lock, but \
                         ClusterInformation has changed since, and another program may hold the lock (journal {journal})"
                    ));
                    console.hint(&format!("once you know whose lock it is: {UNLOCK}"));
                }
            }
            Note::LockRestored => console.say("The lock is restored."),
            Note::LockStays => {
                console.warn("the datastore stays locked: `--yes` does not restore a lock");
                console.hint(&format!("to be asked for it: {} on a terminal", hints::again(&[], &["yes"])));
            }
            Note::LockStaysForPools(lock) => {
                console.warn("the datastore stays locked: pools of that run are not undone, and may overlap");
                console.hint(&format!("once the reason is gone: {}", unlocks(&lock.journal)));
            }
            Note::LockOfRun(lock) => console.warn(&format!(
                "the run did not finish and left the datastore locked: no pod starts or stops; its undo restores `datastoreReady` \
                 (journal {})",
                quoted(&lock.journal)
            )),
            Note::LockChanged => console.warn(
                "the datastore stays locked: ClusterInformation has changed since, and another program may hold the lock",
            ),
            Note::TwoClustersForced { guids } => {
                console.warn(&format!("--force: comparing two clusters, {} and {}", guids[0], guids[1]));
            }
            Note::JournalPassedOver { reason } => {
                console.warn(&format!("{reason}: changes of that run are not marked"));
            }
            Note::ArchiveOfUnknown => console.warn(
                "the cluster has no GUID: it cannot be checked whether all exports of this archive are from the same cluster",
            ),
            Note::ExportDamaged { reason } => {
                console.warn(&format!("{reason}: this export of the archive is damaged, and left as it is"));
            }
            Note::ArchiveSetBack { times: [first, second] } => console.warn(&format!(
                "the export of {second} has older data than that of {first}: a clock was set back, or the datastore was \
                 restored; events between the two may be in another order"
            )),
            Note::RecordingBegun { path, why } => console.info(&match why {
                None | Some(WhyWhole::New) => format!("recording from {} on", quoted(path)),
                Some(why) => format!("a gap: {why}; recording from {} on", quoted(path)),
            }),
            Note::RecordingResumed { path, last } => {
                console.info(&format!("recording continues after {last}, {}", quoted(path)));
            }
            Note::RecordingClock { now, last } => console.warn(&format!(
                "the clock was set back from {last} to {now}: changes are recorded as of {last} until the clock has passed that time"
            )),
            Note::RecordedSetBack { path, by } => console.warn(&format!(
                "the clock was set back by {by:#} while {} was recorded: later changes carry the time before that, until the clock had passed it",
                quoted(path)
            )),
            Note::RecordingDamaged { reason, until } => {
                console.warn(&format!("{reason}: nothing is known between {until} and the next export"));
            }
            Note::NotRecorded { time, last, next } => {
                let end = next.map_or_else(|| "and none since".to_owned(), |next| format!("and not before {next}"));
                console.warn(&format!("nothing was recorded at {time}: this is the state of {last}; no change is known after it, {end}"));
            }
            Note::ClusterNotKnown { location } => console.warn(&format!(
                "{location} does not name its cluster: it cannot be checked whether both are the same one"
            )),
            Note::Evicted { pods, tied, refused } => {
                console.info(&format!("evicted {}", count(pods, "pod", "pods")));
                if tied > 0 {
                    let tied = count(tied, "pod", "pods");
                    console.warn(&format!("not evicted, since an annotation asks for the old pool or an address of it: {tied}"));
                }
                for machine in refused {
                    console.warn(&format!("KubeVirt does not migrate the virtual machine {machine}"));
                }
            }
            Note::JournalWithoutEnd => console.warn(
                "the run of this journal did not finish: anything it did after the last line of the journal is not undone",
            ),
        }
    }

    fn start(&self, activity: Activity) -> Arc<dyn Meter> {
        progress::start(self.console, activity)
    }

    /// YAML and JSON are printed once, at the end: where the operator will be asked, a table goes to stderr meanwhile.
    fn show(&self, proposal: Proposal<'_>) -> io::Result<()> {
        let asked = !self.agrees && io::stdin().is_terminal();
        if asked {
            self.whole.replace(preview::whole(proposal, self.console)?);
        }
        preview::preview(proposal, asked, self.console)
    }

    fn can_agree(&self) -> Result<(), NoConsent> {
        if self.agrees || io::stdin().is_terminal() { Ok(()) } else { Err(NoConsent::NoTerminal) }
    }

    fn ask(&self, question: Question) -> Pending<'_, Result<Consent, NoConsent>> {
        Box::pin(async move {
            if let Some(consent) = Consent::from_option(question.clone(), self.agrees) {
                self.console.verbose(&format!("{question} --yes"));
                return Ok(consent);
            }
            self.can_agree()?;
            let is_about_lock = self.is_about_lock.replace(false);
            let whole = self.whole.borrow().clone().filter(|_| !is_about_lock);
            let answers = if whole.is_some() { "y/N/l" } else { "y/N" };
            loop {
                let answer = answer(format!("{question} [{answers}] ")).await.map_err(NoConsent::Failed)?;
                match &whole {
                    Some(whole) if ["l", "list"].contains(&answer.trim().to_ascii_lowercase().as_str()) => {
                        write!(io::stderr().lock(), "{whole}").map_err(NoConsent::Failed)?;
                    }
                    _ => return Consent::from_answer(question, &answer).ok_or(NoConsent::Declined),
                }
            }
        })
    }
}

/// That so many addresses are checked again after this time.
pub(crate) fn second_read(addresses: usize, after: SignedDuration) -> String {
    let what = count(addresses, "leaked address or handle", "leaked addresses or handles");
    format!("rechecking {what} in {after:#}, at {}", end(after))
}

/// The time of day at the end of a wait.
fn end(after: SignedDuration) -> String {
    Timestamp::now().saturating_add(after).unwrap_or(Timestamp::MAX).strftime("%H:%M:%S UTC").to_string()
}

/// Asks and waits for a line, on a thread of its own: ctrl-c ends the program meanwhile.
async fn answer(question: String) -> io::Result<String> {
    let asked = tokio::task::spawn_blocking(move || -> io::Result<String> {
        let mut out = io::stderr().lock();
        write!(out, "{question}")?;
        out.flush()?;
        drop(out);
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(answer)
    });
    asked.await.map_err(io::Error::other)?
}
