//! `split`.

use calipam_workflow::SplitRequest;

use super::repair;
use crate::args::{Global, SplitArgs};
use crate::console::Console;
use crate::exit::{Failure, Outcome};

pub(super) fn run(args: &SplitArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let request = SplitRequest {
        pool: args.pool(),
        parts: args.parts,
        needs_lock: false,
        disables_first: false,
        intent: args.writing.intent((!args.dry_run).then(|| format!("split {}", args.parts))),
    };
    repair::run(&args.writing, args.dry_run, None, (global, console), async |datastore, person| {
        calipam_workflow::split(datastore, &request, person).await
    })
}
