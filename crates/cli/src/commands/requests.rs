//! The commands that only turn options into a request: `assign`, `configure`, `rebuild` and `split`.

use calipam_workflow as workflow;

use super::repair;
use crate::args::{AssignArgs, ConfigureArgs, Global, RebuildArgs, SplitArgs};
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};

type Call<'a> = (&'a Global, &'a Console);

/// Assigns addresses, and says that the next check reports unused ones.
pub(super) fn assign(args: &AssignArgs, call: Call<'_>) -> Result<Outcome> {
    let request = args.request()?;
    let refusal_of_file = Some(Failure::not_live("an assignment"));
    let outcome = repair::run(
        &args.writing,
        args.dry_run,
        refusal_of_file,
        call,
        async |access| workflow::assign(access, &request).await,
    )?;
    // An address that was assigned by hand has no pod, and so looks leaked.
    let (_, console) = call;
    if outcome == Outcome::Clean && !args.dry_run {
        console.note(
            "the next check reports assigned addresses that nobody uses as `leaked-address`; to accept one, add a line \
             `leaked-address ADDRESS` to the file for `check --ignore`",
        );
    }
    Ok(outcome)
}

/// Changes settings of IPAM.
pub(super) fn configure(args: &ConfigureArgs, call: Call<'_>) -> Result<Outcome> {
    let request = args.request()?;
    let refusal_of_file = None;
    repair::run(
        &args.writing,
        args.dry_run,
        refusal_of_file,
        call,
        async |access| workflow::configure(access, &request).await,
    )
}

/// Makes blocks, handles and affinities match the addresses in use, or with no `--apply` shows what would change.
pub(super) fn rebuild(args: &RebuildArgs, call: Call<'_>) -> Result<Outcome> {
    let request = args.request();
    let dry_run = !args.apply;
    let refusal_of_file = Some(repair::not_live("rebuild --apply"));
    repair::run(&args.writing, dry_run, refusal_of_file, call, async |access| {
        workflow::rebuild(access, &request).await
    })
}

/// Replaces a pool with smaller ones.
pub(super) fn split(args: &SplitArgs, call: Call<'_>) -> Result<Outcome> {
    let request = args.request();
    let refusal_of_file = None;
    repair::run(
        &args.writing,
        args.dry_run,
        refusal_of_file,
        call,
        async |access| workflow::split(access, &request).await,
    )
}
