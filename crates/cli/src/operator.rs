//! Shows the workflow's messages, plans and questions to the person at the terminal.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Arc, Once};

use calipam_datastore::write::{Consent, ProposedChange, Question};
use calipam_model::hint::{Call, Hint};
use calipam_plan::PlanKind;
use calipam_repair::StaleLock;
use calipam_workflow::{Activity, Event, Failure, Meter, Operator, Pending, Proposal, Result};
use jiff::{SignedDuration, Timestamp};

use crate::console::Console;
use crate::render::text::{count, escape, quoted};
use crate::{exit, hints, preview, progress, rerun};

/// The name of a report in suggested commands.
const REPORT: &str = "report.json";

/// The person at the terminal. With `--yes`, the person has agreed in advance.
pub(crate) struct Person<'a> {
    pub console: &'a Console,
    /// True with `--yes`.
    agrees: bool,
    /// True if the program was called as calicoctl, usually by a script. Since the script reads stdout, messages are
    /// printed on stderr.
    is_script: bool,
    /// The complete plan that the next question is about, if only a part of it was shown.
    complete_plan: RefCell<Option<String>>,
    so_far: SoFar,
}

/// The parts of a command that have happened, for the failure after a signal.
#[derive(Debug, Default)]
struct SoFar {
    /// True for a command whose changes are all told, false for others and for those that change nothing.
    tells_changes: bool,
    /// The journal, once it is on disk.
    journal: RefCell<Option<PathBuf>>,
    lock: Cell<LockSoFar>,
    evicts: Cell<bool>,
    /// The activity that began last.
    activity: Cell<Option<Activity>>,
    /// The hint about a second check without this terminal, if the command waits for one.
    elsewhere: RefCell<Option<String>>,
}

/// The lock of a killed run, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LockSoFar {
    #[default]
    Untouched,
    /// The write that removes the lock was sent.
    Unlocking,
    Unlocked,
}

impl SoFar {
    /// Returns what the command has changed before its first step.
    fn changed(&self) -> &'static str {
        if self.evicts.get() {
            return "pods that were evicted stay evicted";
        }
        match self.lock.get() {
            LockSoFar::Untouched => "nothing was changed",
            LockSoFar::Unlocking => "nothing was changed, unless the lock was removed",
            LockSoFar::Unlocked => "only the lock was removed",
        }
    }
}

impl<'a> Person<'a> {
    /// Creates the person at the terminal. With `agrees`, every question is already answered with yes.
    pub(crate) fn new(console: &'a Console, agrees: bool) -> Self {
        Self {
            console,
            agrees,
            is_script: false,
            complete_plan: RefCell::new(None),
            so_far: SoFar {
                tells_changes: true,
                ..SoFar::default()
            },
        }
    }

    /// Creates a script that calls this program as calicoctl. The call itself is the consent: a script cannot answer.
    pub(crate) fn script(console: &'a Console) -> Self {
        let agrees = true;
        Self {
            is_script: true,
            // Some commands of calicoctl write without noting it here, so an interrupt must not say what has changed.
            so_far: SoFar::default(),
            ..Self::new(console, agrees)
        }
    }

    /// Creates a person for a command that asks no questions.
    pub(crate) fn never_asked(console: &'a Console) -> Self {
        let agrees = false;
        Self {
            so_far: SoFar::default(),
            ..Self::new(console, agrees)
        }
    }

    /// Returns the failure after a signal has ended the command, except while it wrote: what it has changed, and how to
    /// go on.
    pub(crate) fn interrupted(&self) -> Failure {
        let so_far = &self.so_far;
        if !so_far.tells_changes {
            return self.interrupted_read();
        }

        if let Some(journal) = &*so_far.journal.borrow() {
            let undo = hints::command(&["undo", &journal.to_string_lossy()]);
            return exit::interrupted_after("what was written before stays")
                .hint(format!("to restore what was there: {undo}"));
        }
        let elsewhere = so_far.elsewhere.borrow().clone();
        let next = elsewhere.unwrap_or_else(|| "to go on, run the command again".to_owned());
        exit::interrupted_after(so_far.changed()).hint(next)
    }

    /// Returns the failure after a signal has ended a command that only reads. During a recheck, its hint is the call
    /// that does not wait.
    fn interrupted_read(&self) -> Failure {
        let is_recheck = self.so_far.activity.get() == Some(Activity::Rechecking);
        // calicoctl has no option that shortens the wait.
        if self.is_script || !is_recheck {
            return exit::interrupted();
        }
        let command = rerun::replacing("settle", &["--settle", "0"]);
        exit::interrupted().hint(format!(
            "{command} does not wait, and also reports changes in progress"
        ))
    }

    /// Announces a long wait even with `--quiet`, unless the workflow has announced it. Of the waits before a recheck
    /// or a confirmation, only the first is announced, since `serve` waits repeatedly.
    fn announce_wait(&self, activity: Activity, time: SignedDuration) {
        static ANNOUNCED: Once = Once::new();
        let announce = || {
            let (_, words) = progress::words(activity);
            self.console
                .say(&format!("{words}: {time:#}, until {}", end_of_wait(time)));
        };
        match activity {
            Activity::WaitingForSecondRead if self.console.quiet => announce(),
            // The workflow has announced this wait.
            Activity::WaitingForSecondRead => {}
            _ => ANNOUNCED.call_once(announce),
        }
    }
}

impl Person<'_> {
    /// Announces a recheck, and the commands that need no terminal during the wait before it.
    fn tell_second_read(&self, addresses: usize, after: SignedDuration, kind: PlanKind) {
        let leaks = count(
            addresses,
            "leaked address or handle",
            "leaked addresses or handles",
        );
        self.console.info(&format!(
            "rechecking {leaks} in {after:#}, at {}; ctrl-c leaves them as they are",
            end_of_wait(after)
        ));

        // calicoctl has no option for it.
        if self.is_script {
            return;
        }
        let release = match kind {
            PlanKind::Release => rerun::adding(&["--from-report", REPORT]),
            PlanKind::Rebuild => {
                let command = ["release", "--leaked", "--from-report", REPORT];
                hints::command_with(&command, &hints::remedy::PART)
            }
            _ => return,
        };
        let kept_options = [&hints::remedy::PART[..], &["grace"]].concat();
        let check = hints::into_file(&["check", "-o", "json"], &kept_options, REPORT);
        let elsewhere = format!(
            "to wait without this terminal: run {check} now, and after {after:#} {release}; a shorter --grace waits less"
        );
        self.console.hint(&elsewhere);
        self.so_far.elsewhere.replace(Some(elsewhere));
    }

    /// Warns about the lock of a run that did not finish.
    fn tell_stale_lock(&self, lock: &StaleLock) {
        let StaleLock {
            command,
            started_at,
            journal,
            ..
        } = lock;
        self.console.warn(&format!(
            "the run `{command}` of {started_at} did not finish and left the datastore locked: no pod starts or stops (journal {})",
            quoted(journal)
        ));
        self.console.hint(&hints::text(&lock.hint()));
        if !self.agrees {
            self.console
                .say("This restores `datastoreReady` to its value before that run.");
        }
    }

    /// Warns that the datastore stays locked, and says how to unlock it.
    fn tell_lock_stays(&self) {
        // A script cannot be asked.
        if self.is_script {
            let unlock = hints::calicoctl("datastore migrate unlock");
            self.console
                .warn(&format!("the datastore stays locked: {unlock} unlocks it"));
            return;
        }
        self.console
            .warn("the datastore stays locked: `--yes` does not remove a lock");
        self.console.hint(&format!(
            "to remove it, run {} on a terminal and confirm",
            rerun::without("yes")
        ));
    }

    /// Returns the complete plan that a question is about, if only a part of it was shown.
    fn plan_to_list(&self, question: &Question) -> Option<String> {
        // A question about a lock is not about the plan that was shown.
        if question.change == ProposedChange::Unlock {
            return None;
        }
        self.complete_plan.borrow().clone()
    }
}

impl Operator for Person<'_> {
    /// Prints an event of a workflow, and remembers it if it changes what an interrupted command has to say.
    fn tell(&self, event: Event<'_>) {
        let console = self.console;
        match event {
            Event::Detail(text) => console.verbose(&text),
            Event::Info(text) => console.info(&text),
            Event::Said(text) => console.say(text),
            Event::Journal(path) => {
                console.info(&format!("journal: {}", quoted(path)));
                self.so_far.journal.replace(Some(path.to_owned()));
            }
            Event::Stopping => {
                console.warn("interrupted: the writes that have begun are finished, and no others begin");
            }
            Event::Unlocking => self.so_far.lock.set(LockSoFar::Unlocking),
            Event::Unlocked => {
                console.say("The datastore is no longer locked.");
                self.so_far.lock.set(LockSoFar::Unlocked);
            }
            Event::Warning(text) => console.warn(&text),
            Event::Hint(hint) => console.hint(&hints::text(&hint)),
            Event::SecondRead {
                addresses,
                after,
                kind,
            } => self.tell_second_read(addresses, after, kind),
            Event::LongWait { activity, time } => self.announce_wait(activity, time),
            Event::StaleLock(lock) => self.tell_stale_lock(lock),
            Event::LockStays => self.tell_lock_stays(),
        }
    }

    /// Notes that an activity begins, for what an interrupted command says, and shows its progress.
    fn start(&self, activity: Activity) -> Arc<dyn Meter> {
        self.so_far.activity.set(Some(activity));
        if activity == Activity::Evicting {
            self.so_far.evicts.set(true);
        }
        let cluster = self.console.fleet.as_ref().map(|cluster| &*cluster.name);
        progress::start(activity, self.console.progress, cluster)
    }

    /// Shows a plan with [`preview::preview`]. For a script, shows only the warnings of the plan.
    fn show(&self, proposal: Proposal<'_>) -> Result<()> {
        if self.is_script {
            // stdout contains only calicoctl's lines.
            if let Proposal::Plan(plan) = proposal {
                for warning in &plan.warnings {
                    self.console.warn(&hints::text(warning));
                }
            }
            return Ok(());
        }
        let is_asked = !self.agrees && io::stdin().is_terminal();
        let complete_plan =
            preview::preview(proposal, is_asked, self.console).map_err(Failure::io("show the plan"))?;
        self.complete_plan.replace(complete_plan);
        Ok(())
    }

    /// Fails if a question could not be answered: no option has, and no terminal can.
    fn can_agree(&self) -> Result<()> {
        if self.agrees || io::stdin().is_terminal() {
            return Ok(());
        }
        let hint = Hint::new(
            "use {}; {} only shows the plan",
            [Call::again_with(["--yes"]), Call::DryRun],
        );
        Err(Failure::usage("confirmation needed, but stdin is not a terminal").hint(hint))
    }

    /// Asks a question, unless an option has answered it. Returns the consent, or `None` after any other answer than
    /// yes. Shows the whole plan on request, and asks again.
    fn ask(&self, question: Question) -> Pending<'_, Result<Option<Consent>>> {
        Box::pin(async move {
            if let Some(consent) = Consent::from_option(question.clone(), self.agrees) {
                self.console.verbose(&format!("{question} --yes"));
                return Ok(Some(consent));
            }
            self.can_agree()?;

            let complete_plan = self.plan_to_list(&question);
            let choices = if complete_plan.is_some() { "y/N/l" } else { "y/N" };
            let failure = Failure::io("ask");
            loop {
                let prompt = format!("{question} [{choices}] ");
                let answer = read_answer(prompt).await.map_err(&failure)?;
                let asks_for_list = matches!(answer.trim().to_ascii_lowercase().as_str(), "l" | "list");
                match &complete_plan {
                    Some(plan) if asks_for_list => {
                        write!(io::stderr().lock(), "{plan}").map_err(&failure)?;
                    }
                    _ => return Ok(Consent::from_answer(question, &answer)),
                }
            }
        })
    }
}

/// Formats the time of day at the end of a wait.
fn end_of_wait(time: SignedDuration) -> String {
    Timestamp::now()
        .saturating_add(time)
        .unwrap_or(Timestamp::MAX)
        .strftime("%H:%M:%S UTC")
        .to_string()
}

/// Prints a question and waits for a line on a separate thread, so that ctrl-c can end the program.
async fn read_answer(question: String) -> io::Result<String> {
    let reading = tokio::task::spawn_blocking(move || -> io::Result<String> {
        let mut out = io::stderr().lock();
        write!(out, "{}", escape(&question))?;
        out.flush()?;
        drop(out);
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(answer)
    });
    reading.await.map_err(io::Error::other)?
}
