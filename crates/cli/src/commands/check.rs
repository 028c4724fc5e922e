//! `check`.

use calipam_check::{Options, Report};
use calipam_datastore::Datastore;
use calipam_model::snapshot::Snapshot;

use super::sight::{Sight, sight};
use super::{ignore, selection};
use crate::args::{CheckArgs, Global};
use crate::exit::{Failure, Outcome};
use crate::output::Console;
use crate::{connect, progress, render};

/// Reads, judges and prints.
///
/// # Errors
/// Where the datastore or a file cannot be read.
pub fn run(args: &CheckArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    if args.list_rules {
        render::codes::list(console)?;
        return Ok(Outcome::Clean);
    }
    let ignored = args.ignore.as_deref().map(ignore::read).transpose()?.unwrap_or_default();
    let report = connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let (mut report, snapshot) = judge(&datastore, args, console).await?;
        let filter = selection::filter(args, ignored, &snapshot)?;
        report.filter(&filter);
        // What a million objects take in memory need not be given back one by one before the process ends.
        std::mem::forget(snapshot);
        Ok(report)
    })?;
    render::check::print(&report, console)?;
    let outcome = if args.fail_on.fails(report.worst()) { Outcome::Findings } else { Outcome::Clean };
    std::mem::forget(report);
    Ok(outcome)
}

/// Reads once or, with `--confirm`, twice.
async fn judge(
    datastore: &Datastore,
    args: &CheckArgs,
    console: &Console,
) -> Result<(Report, Snapshot), Failure> {
    let options = Options { grace: args.grace, pool_threshold: args.pool_threshold };
    let Sight { report: first, snapshot, .. } =
        sight(datastore, &options, args.settling.settle, console).await?;
    let Some(pause) = args.confirm.filter(|pause| pause.is_positive()) else {
        return Ok((first, snapshot));
    };
    if !datastore.is_live() {
        console.warn("`--confirm` does nothing here: a file does not change");
        return Ok((first, snapshot));
    }
    drop(snapshot);
    progress::wait(console, pause, "waiting to read a second time").await;
    let Sight { report: mut second, snapshot, .. } =
        sight(datastore, &options, args.settling.settle, console).await?;
    second.confirm(&first);
    Ok((second, snapshot))
}
