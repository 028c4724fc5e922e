//! The caller of calicoctl: a script. It agrees by the call, is never asked, and reads stdout.

use std::io;
use std::sync::Arc;

use calipam_datastore::write::{Consent, Question};
use calipam_workflow::{Activity, Meter, NoConsent, Note, Operator, Pending, Proposal};

use crate::console::Console;
use crate::hints;
use crate::operator::{Person, second_read};

pub(super) struct Script<'a> {
    console: &'a Console,
    person: Person<'a>,
}

impl<'a> Script<'a> {
    pub(super) fn new(console: &'a Console) -> Self {
        let agrees = true;
        Self { console, person: Person::new(console, agrees) }
    }
}

impl Operator for Script<'_> {
    fn note(&self, note: Note<'_>) {
        match note {
            // calicoctl has no option for it.
            Note::SecondRead { addresses, after, .. } => self.console.info(&second_read(addresses, after)),
            Note::LockStays => {
                self.console
                    .warn("the datastore stays locked: `calicoctl datastore migrate unlock` unlocks it");
            }
            note => self.person.note(note),
        }
    }

    fn start(&self, activity: Activity) -> Arc<dyn Meter> {
        self.person.start(activity)
    }

    fn can_agree(&self) -> Result<(), NoConsent> {
        self.person.can_agree()
    }

    /// stdout has the lines of calicoctl alone: only what the caller should know is said.
    fn show(&self, proposal: Proposal<'_>) -> io::Result<()> {
        if let Proposal::Plan(plan) = proposal {
            plan.warnings.iter().for_each(|warning| self.console.warn(&hints::plan::warning(warning)));
        }
        Ok(())
    }

    fn ask(&self, question: Question) -> Pending<'_, Result<Consent, NoConsent>> {
        self.person.ask(question)
    }
}
