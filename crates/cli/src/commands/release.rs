//! `release`.

use std::io::{self, BufRead};

use calipam_plan::release::{Force, Request};
use calipam_workflow::ReleaseRequest;

use super::repair;
use crate::args::{Global, ReleaseArgs};
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::operator::Person;
use crate::{connect, hints};

pub(super) fn run(args: &ReleaseArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    if args.handles.iter().any(|id| id == "-") && global.datastore.as_deref() == Some("-") {
        return Err(Failure::usage(
            "stdin cannot be both the datastore (--datastore -) and the handles (--handle -)",
        ));
    }
    let request = ReleaseRequest {
        targets: targets(args)?,
        pools: args.pools.clone(),
        selector: args.selector.clone(),
        reports: args.reports.clone(),
        criteria: args.criteria.criteria(),
        intent: args.writing.intent((!args.dry_run).then(|| format!("release{}", flags(args)))),
        lock: args.writing.lock,
    };
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        // Without --yes a file is planned on as in a dry run; who agrees in advance expects a write.
        if args.writing.yes && !args.dry_run && !datastore.is_live() {
            return Err(calipam_workflow::Error::NotLive("release --yes").into());
        }
        let person = Person::new(console, args.writing.yes);
        let repaired = calipam_workflow::release(&datastore, &request, &person).await?;
        repair::finish(repaired, args.dry_run, datastore.is_live(), console)
    })
}

/// The targets of the call, for the journal.
fn flags(args: &ReleaseArgs) -> String {
    let flags = [
        (args.leaked, " --leaked"),
        (args.orphan_handles, " --orphan-handles"),
        (!args.reports.is_empty(), " --from-report"),
        (!args.nodes.is_empty(), " --node"),
        (!args.addresses.is_empty(), " --ip"),
        (!args.handles.is_empty(), " --handle"),
        (!args.pools.is_empty(), " --pool"),
        (args.namespace.is_some(), " --namespace"),
        (args.selector.is_some(), " --selector"),
        (args.force, " --force"),
    ];
    flags.into_iter().filter(|(given, _)| *given).map(|(_, text)| text).collect()
}

fn targets(args: &ReleaseArgs) -> Result<Request, Failure> {
    let mut handles = Vec::new();
    for id in &args.handles {
        if id == "-" { handles.extend(handles_of_stdin()?) } else { handles.push(id.clone()) }
    }
    let by_report = !args.reports.is_empty();
    let request = Request {
        addresses: args.addresses.clone(),
        handles,
        nodes: args.nodes.clone(),
        pools: Vec::new(),
        namespace: args.namespace.clone(),
        leaked: args.leaked || (by_report && !args.orphan_handles),
        orphan_handles: args.orphan_handles || (by_report && !args.leaked),
        force: match (args.force, by_report) {
            (true, true) => Force::Reported,
            (true, false) => Force::Named,
            (false, _) => Force::Nothing,
        },
    };

    let named = request.addresses.len() + request.handles.len();
    let others = request.leaked || request.orphan_handles || !request.nodes.is_empty();
    if named == 0 && !others {
        return Err(Failure::Usage {
            message:
                "specify what to release: --leaked, --orphan-handles, --node, --ip, --handle or --from-report"
                    .into(),
            hint: Some(format!("{} explains them", hints::command_elsewhere(&["release", "--help"]))),
        });
    }
    if request.is_of_nodes() && args.selector.is_some() {
        return Err(Failure::Usage {
            message: "--selector needs another target than --node: a deleted node has no labels".into(),
            hint: Some("such as --leaked".into()),
        });
    }
    let filtered = !args.pools.is_empty() || args.namespace.is_some() || args.selector.is_some();
    if request.force == Force::Named && (named != 1 || others || filtered) {
        return Err(Failure::Usage {
            message: "--force needs exactly one --ip or --handle".into(),
            hint: Some("without it, what is in use is skipped and its owner named".into()),
        });
    }
    Ok(request)
}

/// Handles, one per line; empty lines and what follows `#` do not count.
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
