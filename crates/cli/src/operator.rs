//! The person at the terminal: what the workflow has to say, show and ask, in words.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::Arc;

use calipam_datastore::write::{Consent, Question};
use calipam_repair::LockState;
use calipam_workflow::{Activity, Meter, NoConsent, Note, Operator, Proposal};

use crate::output::Console;
use crate::render::text::{count, quoted, thousands};
use crate::{progress, render};

/// The person at the terminal, who may have agreed in advance.
pub struct Person<'a> {
    pub console: &'a Console,
    /// `--yes`.
    pub agrees: bool,
}

impl<'a> Person<'a> {
    /// One who is not asked anything.
    pub fn watching(console: &'a Console) -> Self {
        Self { console, agrees: false }
    }
}

impl Operator for Person<'_> {
    fn note(&self, note: Note<'_>) {
        let console = self.console;
        match note {
            Note::Read(cluster) => console.verbose(&render::header::read(cluster)),
            Note::Journal(journal) => console.tell(&format!("journal: {}", quoted(journal))),
            Note::ShortGrace(grace) => console.warn(&format!(
                "a grace period of {grace:#} is shorter than an operation of a CNI plugin can take: an address that a pod \
                 is just being given looks unused meanwhile; 10s and more are safe"
            )),
            Note::ReadAround { revision, requests } => {
                console.verbose(&format!("read at revision {revision} in {requests} requests"));
            }
            Note::Rereading { objects, after } => {
                console.verbose(&format!("{} objects are read again after {after:#}", thousands(objects)));
            }
            Note::CannotConfirm => console.warn("`--confirm` does nothing here: a file does not change"),
            Note::SecondLook { addresses, after } => console.verbose(&format!(
                "{} addresses or handles were seen unused once; they are looked at again after {after:#}",
                thousands(addresses)
            )),
            Note::SecondLookAssumed { addresses, after } => console.warn(&format!(
                "{} addresses or handles were seen unused once; they are planned as if a second look, {after:#} later, saw the \
                 same",
                thousands(addresses)
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
                    console.warn(&format!(
                        "{run} was killed and has left the datastore locked: no pod starts or stops (journal {journal})"
                    ));
                    console.say("This restores what `datastoreReady` was before that run.");
                } else {
                    console.warn(&format!(
                        "the datastore is locked: no pod starts or stops. {run} was killed while it held the lock, but \
                         ClusterInformation has changed since, and the lock may be that of others (journal {journal})"
                    ));
                    console.hint("once it is clear whose lock it is: `calicoctl datastore migrate unlock`");
                }
            }
            Note::LockRestored => console.say("The lock is restored."),
            Note::LockStays => console.hint(
                "`--yes` does not restore a lock: run it on a terminal without `--yes`, or \
                 `calicoctl datastore migrate unlock`",
            ),
            Note::JournalWithoutEnd => console.warn(
                "the run of this journal was killed or broke off: what it did after the last line of the journal, if \
                 anything, is not undone",
            ),
        }
    }

    fn start(&self, activity: Activity) -> Arc<dyn Meter> {
        progress::start(self.console, activity)
    }

    /// YAML and JSON are printed once, at the end: where the operator will be asked, a table goes to stderr meanwhile.
    fn show(&self, proposal: Proposal<'_>) -> io::Result<()> {
        let asked = !self.agrees && io::stdin().is_terminal();
        render::preview(proposal, asked, self.console)
    }

    async fn ask(&self, question: Question) -> Result<Consent, NoConsent> {
        if let Some(consent) = Consent::from_option(question.clone(), self.agrees) {
            self.console.verbose(&format!("{question} --yes"));
            return Ok(consent);
        }
        if !io::stdin().is_terminal() {
            return Err(NoConsent::NoTerminal);
        }
        let answer = answer(question.to_string()).await.map_err(NoConsent::Failed)?;
        Consent::from_answer(question, &answer).ok_or(NoConsent::Declined)
    }
}

/// Asks and waits for a line, on a thread of its own: ctrl-c ends the program meanwhile.
async fn answer(question: String) -> io::Result<String> {
    let asked = tokio::task::spawn_blocking(move || -> io::Result<String> {
        let mut out = io::stderr().lock();
        write!(out, "{question} [y/N] ")?;
        out.flush()?;
        drop(out);
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(answer)
    });
    asked.await.map_err(io::Error::other)?
}
