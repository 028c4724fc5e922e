//! `split`.

use calipam_workflow::SplitRequest;

use super::repair;
use crate::args::{Global, SplitArgs};
use crate::connect;
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::operator::Person;

pub(super) fn run(args: &SplitArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let request = SplitRequest {
        pool: args.pool(),
        parts: args.parts,
        needs_lock: false,
        disables_first: false,
        intent: args.writing.intent((!args.dry_run).then(|| format!("split {}", args.parts))),
    };
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let person = Person::new(console, args.writing.yes);
        let repaired = calipam_workflow::split(&datastore, &request, &person).await?;
        repair::finish(repaired, args.dry_run, datastore.is_live(), console)
    })
}
