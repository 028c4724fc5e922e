//! `release`.

use std::io::{self, BufRead};
use std::path::Path;

use calipam_check::Options;
use calipam_datastore::Datastore;
use calipam_model::snapshot::Snapshot;
use calipam_plan::release::{self, ReadReport, ReportError, Request, Sightings, objections, read_report};
use jiff::Timestamp;

use super::repair::{Looks, carry_out, outcome, plan, will_ask};
use crate::args::{Global, ReleaseArgs};
use crate::exit::{Failure, Outcome};
use crate::output::Console;
use crate::render::plan::Shown;
use crate::render::text::quoted;
use crate::{connect, render};

/// Looks, plans, shows the plan, asks, and releases.
///
/// # Errors
/// Where something cannot be read or written, or nobody agrees.
pub fn run(args: &ReleaseArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let request = request(args)?;
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let for_real = !args.dry_run && datastore.is_live();
        let locked = args.writing.lock;
        let looks = Looks {
            options: Options { grace: args.judgement.grace, ..Options::default() },
            settle: args.judgement.settling.settle,
            for_real,
            reported: &|snapshot| reported(args, snapshot, locked, console),
            planner: &|basis, sightings, cooldown| Ok(release::plan(basis, &request, sightings, cooldown)),
            planned: &|_, _| Ok(()),
        };
        let plan = plan(&datastore, &looks, console).await?;
        finish(&datastore, plan, args, console).await
    })
}

async fn finish(
    datastore: &Datastore,
    plan: calipam_plan::Plan,
    args: &ReleaseArgs,
    console: &Console,
) -> Result<Outcome, Failure> {
    let skipped = !plan.skipped.is_empty();
    let shown = Shown::of(&plan);
    let left = if skipped { Outcome::Refused } else { Outcome::Clean };
    if plan.is_empty() || args.dry_run || !datastore.is_live() {
        render::plan::print(&shown, None, console)?;
        render::plan::why_not_written(&shown, args.dry_run, datastore.is_live(), console);
        return Ok(left);
    }
    render::plan::preview(&shown, will_ask(&args.writing), console)?;
    let command = format!("release{}", targets(args));
    let done = carry_out(datastore, plan, &command, &args.writing, console).await?;
    render::plan::print(&shown, Some(&done), console)?;
    outcome(done, skipped, console)
}

/// The targets of the call, for the journal.
fn targets(args: &ReleaseArgs) -> String {
    let flags = [
        (args.leaked, " --leaked"),
        (args.orphan_handles, " --orphan-handles"),
        (!args.reports.is_empty(), " --from-report"),
        (!args.nodes.is_empty(), " --node"),
        (!args.addresses.is_empty(), " --ip"),
        (!args.handles.is_empty(), " --handle"),
        (args.force, " --force"),
    ];
    flags.into_iter().filter(|(given, _)| *given).map(|(_, text)| text).collect()
}

fn request(args: &ReleaseArgs) -> Result<Request, Failure> {
    let mut handles = Vec::new();
    for id in &args.handles {
        if id == "-" { handles.extend(handles_of_stdin()?) } else { handles.push(id.clone()) }
    }
    let by_report = !args.reports.is_empty();
    let request = Request {
        addresses: args.addresses.clone(),
        handles,
        nodes: args.nodes.clone(),
        leaked: args.leaked || by_report,
        orphan_handles: args.orphan_handles || by_report,
        force: args.force && !by_report,
    };
    let named = request.addresses.len() + request.handles.len();
    let others = request.leaked || request.orphan_handles || !request.nodes.is_empty();
    if named == 0 && !others {
        return Err(Failure::Usage {
            message: "nothing says what to release".into(),
            hint: Some("`--leaked` is what leaked; `calipam release --help` lists the other choices".into()),
        });
    }
    if request.force && (named != 1 || others) {
        return Err(Failure::Usage {
            message: "--force goes with exactly one --ip or --handle".into(),
            hint: Some("without it, what is in use is skipped and its owner named".into()),
        });
    }
    Ok(request)
}

/// Handles, one a line; empty lines and what follows `#` do not count.
fn handles_of_stdin() -> Result<Vec<String>, Failure> {
    let read = |error| Failure::Io { doing: "read handles from stdin".into(), error };
    let mut handles = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line.map_err(read)?;
        let id = line.split('#').next().unwrap_or_default().trim();
        if !id.is_empty() {
            handles.push(id.to_owned());
        }
    }
    Ok(handles)
}

/// What the reports of `--from-report` saw, where nothing speaks against using them.
fn reported(
    args: &ReleaseArgs,
    snapshot: &Snapshot,
    lock: bool,
    console: &Console,
) -> Result<Vec<Sightings>, Failure> {
    let is_locked = snapshot.cluster.as_ref().is_some_and(|cluster| cluster.datastore_ready == Some(false));
    let read = |path: &std::path::PathBuf| read_file(path, snapshot, lock || is_locked);
    let reports = args.reports.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    for (name, objection) in objections(&reports) {
        let message = format!("the report {name} cannot be used: {objection}");
        if !objection.can_be_forced() {
            let hint = Some("connect to the cluster that it is about".into());
            return Err(Failure::Refused { message, hint });
        }
        if !args.force {
            return Err(Failure::Refused { message, hint: Some(way_out(objection).into()) });
        }
        console.warn(&format!("--force: {objection} ({name})"));
    }
    Ok(reports.into_iter().map(|report: ReadReport| report.sightings).collect())
}

/// What to do about an objection that `--force` passes over.
fn way_out(objection: &ReportError) -> &'static str {
    match objection {
        ReportError::NotLocked => {
            "`--lock` locks the datastore for the duration of the release; `--force` does without"
        }
        ReportError::Stale => {
            "write a new one; or pass over this with `--force`: what it lists is released only if it is unused now"
        }
        _ => "pass over this with `--force`: what it lists is released only if it is unused now",
    }
}

fn read_file(path: &Path, snapshot: &Snapshot, locked: bool) -> Result<ReadReport, Failure> {
    let failed = |error| Failure::Io { doing: format!("read {}", quoted(path)), error };
    let bytes = std::fs::read(path).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let written = std::fs::metadata(path).and_then(|meta| meta.modified()).map_err(failed)?;
    let written = Timestamp::try_from(written).unwrap_or(Timestamp::MAX);
    read_report(&quoted(path), &text, written, snapshot, locked).map_err(|error| Failure::Usage {
        message: format!("{}: {error}", quoted(path)),
        hint: Some("write one with `calipam check -o json` or `calicoctl ipam check --output FILE`".into()),
    })
}
