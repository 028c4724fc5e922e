//! The `release` command.

use std::io::{self, BufRead};

use calipam_plan::release::{Force, Request};
use calipam_workflow::ReleaseRequest;

use super::repair;
use crate::args::{Global, ReleaseArgs};
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::hints;

/// Releases what the options name, or only shows the plan.
pub(super) fn run(args: &ReleaseArgs, global: &Global, console: &Console) -> Result<Outcome> {
    let are_handles_on_stdin = args.handles.iter().any(|id| id == "-");
    let is_datastore_on_stdin = global.datastore.as_deref() == Some("-");
    if are_handles_on_stdin && is_datastore_on_stdin {
        return Err(Failure::usage(
            "stdin cannot be both the datastore (--datastore -) and the handles (--handle -)",
        ));
    }
    let command = if args.dry_run {
        None
    } else {
        Some(format!("release{}", flags(args)))
    };
    let request = ReleaseRequest {
        targets: targets(args)?,
        names: args.selection.names(args.namespace.as_ref()),
        reports: args.reports.clone(),
        criteria: args.criteria.criteria(),
        intent: args.writing.intent(command),
        lock: args.writing.lock,
    };

    // Without --yes, a release from a file is a dry run. With --yes, the user expects a write, which a file does not
    // support.
    let refusal_of_file = args.writing.yes.then(|| repair::not_live("release --yes"));
    repair::run(
        &args.writing,
        args.dry_run,
        refusal_of_file,
        (global, console),
        async |access| calipam_workflow::release(access, &request).await,
    )
}

/// Formats the options of this call that say what is released, and `--force`, for the journal. Their values are left
/// out, since there can be thousands; the journal lists the objects itself.
fn flags(args: &ReleaseArgs) -> String {
    let options = [
        (args.leaked, " --leaked"),
        (args.orphan_handles, " --orphan-handles"),
        (!args.reports.is_empty(), " --from-report"),
        (!args.selection.nodes.is_empty(), " --node"),
        (!args.addresses.is_empty(), " --ip"),
        (!args.handles.is_empty(), " --handle"),
        (!args.selection.pools.is_empty(), " --pool"),
        (args.namespace.is_some(), " --namespace"),
        (args.selection.selector.is_some(), " --selector"),
        (args.force, " --force"),
    ];
    let mut flags = String::new();
    for (is_given, flag) in options {
        if is_given {
            flags.push_str(flag);
        }
    }
    flags
}

/// Reads the targets from the arguments, and refuses combinations that have no effect or are dangerous.
fn targets(args: &ReleaseArgs) -> Result<Request> {
    let mut handles = Vec::new();
    let mut has_read_stdin = false;
    for id in &args.handles {
        if id != "-" {
            handles.push(id.clone());
        } else if !has_read_stdin {
            handles.extend(handles_of_stdin()?);
            has_read_stdin = true;
        }
    }
    let has_reports = !args.reports.is_empty();
    let force = if !args.force {
        Force::Nothing
    } else if has_reports {
        Force::Reported
    } else {
        Force::Named
    };
    let request = Request {
        addresses: args.addresses.clone(),
        handles,
        leaked: args.leaked || (has_reports && !args.orphan_handles),
        orphan_handles: args.orphan_handles || (has_reports && !args.leaked),
        force,
        ..Request::default()
    };

    let number_named = request.addresses.len() + request.handles.len();
    let has_other_targets = request.leaked || request.orphan_handles || !args.selection.nodes.is_empty();
    if number_named == 0 && !has_other_targets {
        return Err(Failure::usage(
            "specify what to release: --leaked, --orphan-handles, --node, --ip, --handle or --from-report",
        )
        .hint(format!(
            "{} explains them",
            hints::command_elsewhere(&["release", "--help"])
        )));
    }
    if request.is_of_nodes() && args.selection.selector.is_some() {
        return Err(Failure::usage(
            "--selector needs a target other than --node: a deleted node has no labels",
        )
        .hint("for example --leaked"));
    }
    let has_filters =
        !args.selection.pools.is_empty() || args.namespace.is_some() || args.selection.selector.is_some();
    if request.force == Force::Named && (number_named != 1 || has_other_targets || has_filters) {
        return Err(Failure::usage("--force needs exactly one --ip or --handle")
            .hint("without it, what is in use is skipped, and its owner is named"));
    }
    Ok(request)
}

/// Reads handles from stdin, one per line. Skips empty lines and comments after `#`.
fn handles_of_stdin() -> Result<Vec<String>> {
    let failure = Failure::io("read handles from stdin");
    let mut handles = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line.map_err(&failure)?;
        let id = line.split('#').next().unwrap_or_default().trim();
        if !id.is_empty() {
            handles.push(id.to_owned());
        }
    }
    Ok(handles)
}
