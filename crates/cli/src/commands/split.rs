//! `split`.

use calipam_workflow::{SplitRequest, Writing};

use super::repair;
use crate::args::{Global, SplitArgs};
use crate::connect;
use crate::exit::{Failure, Outcome};
use crate::operator::Person;
use crate::output::Console;

pub(super) fn run(args: &SplitArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    // On Kubernetes the pools are written one by one: while they are, no pod starts or stops.
    let writing = || Writing { lock: true, ..args.writing.writing(format!("split {}", args.parts)) };
    let request = SplitRequest {
        pool: args.pool(),
        parts: args.parts,
        needs_lock: false,
        disables_first: false,
        writing: (!args.dry_run).then(writing),
        max_changes: args.writing.max_changes,
    };
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let person = Person::new(console, args.writing.yes);
        let repaired = calipam_workflow::split(&datastore, &request, &person).await?;
        repair::finish(repaired, args.dry_run, datastore.is_live(), console)
    })
}
