//! The `undo` command.

use std::path::{Path, PathBuf};

use calipam_datastore::settings::{KubernetesSettings, LocalFiles, Target};
use calipam_datastore::{Datastore, context_of_server};
use calipam_model::hint::{Call, Hint};
use calipam_model::snapshot::DatastoreKind;
use calipam_repair::journal::{Header, Recorded, undo_command};
use calipam_workflow::Access;

use super::{journals, repair};
use crate::args::{Global, UndoArgs, journals_folder};
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::operator::Person;
use crate::render::text::joined;
use crate::render::undo::UndoDocument;
use crate::{connect, hints};

/// Undoes the run of a journal, or the newest run. With `--list`, lists the runs.
pub(super) fn run(args: &UndoArgs, global: &Global, console: &Console) -> Result<Outcome> {
    if args.list {
        return journals::run_list(&required_folder()?, console);
    }
    if args.run.is_none() && !args.last {
        return Err(Failure::usage("no run was specified").hint(format!(
            "{} undoes the newest run, {} lists them",
            hints::command(&["undo", "--last"]),
            hints::command(&["undo", "--list"])
        )));
    }

    let person = Person::new(console, args.writing.yes);
    let is_cluster_named = args.run.is_none() && hints::names_connection();
    connect::block_on_of(&person, async {
        if is_cluster_named {
            undo_last_on_cluster(args, global, &person).await
        } else {
            undo_journal(args, global, &person).await
        }
    })
}

/// Undoes the newest run on the cluster that the connection options name. Its GUID tells which journal that is.
async fn undo_last_on_cluster(args: &UndoArgs, global: &Global, person: &Person<'_>) -> Result<Outcome> {
    let console = person.console;
    let datastore = connect::open(global, console).await?;
    let guid = calipam_workflow::guid(&datastore).await?;
    let path = journals::newest_to_undo(&required_folder()?, Some(&guid), console)?;
    let recorded = Recorded::read(&path)?;
    undo(args, &path, recorded, &datastore, person).await
}

/// Undoes the run of a journal: the named one, or that of the newest run. The journal tells to which datastore to
/// connect.
async fn undo_journal(args: &UndoArgs, global: &Global, person: &Person<'_>) -> Result<Outcome> {
    let console = person.console;
    let path = match &args.run {
        Some(path) => path.clone(),
        None => journals::newest_to_undo(&required_folder()?, None, console)?,
    };
    let recorded = Recorded::read(&path)?;
    let options = options_for_journal(global, &recorded.header, console);
    let datastore = connect::open(&options, console).await?;
    undo(args, &path, recorded, &datastore, person).await
}

/// Returns the folder with the journals of all runs.
///
/// # Errors
/// If the environment names no folder for the state of programs.
fn required_folder() -> Result<PathBuf> {
    journals_folder().ok_or_else(|| {
        let undo_of_journal = Call::to(["undo", "JOURNAL"]);
        let hint = "set HOME or XDG_STATE_HOME to an absolute path, or name the journal of a run: {}";
        Failure::no_journal_directory().hint(Hint::new(hint, [undo_of_journal]))
    })
}

/// Undoes a run, and prints the plan and the result.
async fn undo(
    args: &UndoArgs,
    path: &Path,
    recorded: Recorded,
    datastore: &Datastore,
    person: &Person<'_>,
) -> Result<Outcome> {
    let console = person.console;
    // Without a command to record, the undo is only planned.
    let recorded_command = if args.dry_run {
        None
    } else {
        Some(undo_command(path))
    };
    let intent = args.writing.intent(recorded_command);
    let access = Access::new(datastore, person);
    let undone = calipam_workflow::undo(access, path, recorded, journals_folder(), &intent).await?;

    let is_plan_empty = undone.plan.steps().is_empty() && undone.plan.skipped().is_empty();
    if !is_plan_empty || console.prints_empty_results() {
        console.print(&UndoDocument::new(
            &undone.header,
            &undone.plan,
            undone.run.as_ref(),
        ))?;
    }

    if args.dry_run {
        console.info("dry run: nothing was changed");
    }
    if undone.run.is_some() {
        let skipped = undone.plan.skipped().iter();
        let not_undone = skipped.map(|step| format!("{}: {}", joined(&step.keys, ", "), step.reason));
        repair::warn_of_each("not undone", not_undone.collect(), console);
    }
    if let Some(max_changes) = undone.exceeds {
        repair::warn_of_limit(max_changes, console);
    }

    let is_partial = undone.leaves_something();
    repair::print_run(undone.run, is_partial, console)
}

/// Returns the options with which an undo connects: those of the command line or, if it has no connection options,
/// options for the journal's datastore. For Kubernetes, the options name a context with the journal's API server. The
/// user and the certificates come from the settings, and so do the etcd endpoints if they include the journal's
/// endpoint. In any case, an undo refuses to write to another cluster.
fn options_for_journal(global: &Global, header: &Header, console: &Console) -> Global {
    if hints::names_connection() {
        return global.clone();
    }

    let mut options = Global {
        datastore: Some(header.datastore.to_string()),
        ..global.clone()
    };
    // The current context can be that of another cluster.
    if let Some(context) = context_at(&options, header) {
        options.contexts = vec![context];
    }
    let needs_context = header.datastore == DatastoreKind::Kubernetes && !options.contexts.is_empty();
    if !needs_context && leads_to_journal(global, header) {
        return global.clone();
    }

    if header.datastore != DatastoreKind::Kubernetes {
        options.etcd_endpoints = Some(header.location.clone());
    }
    let mut context = String::new();
    for name in &options.contexts {
        context.push_str(&format!(" (context {name})"));
    }
    let Header {
        datastore, location, ..
    } = header;
    console.info(&format!(
        "connecting to the journal's datastore: {datastore} {location}{context}"
    ));
    options
}

/// True if the settings without connection options lead to the journal's datastore. For Kubernetes, only the kind is
/// compared, since [`context_at`] compares the servers.
fn leads_to_journal(global: &Global, header: &Header) -> bool {
    let Ok(settings) = connect::settings(global) else {
        return false;
    };
    match (header.datastore, &settings.target) {
        (DatastoreKind::Kubernetes, Target::Kubernetes) => true,
        (DatastoreKind::Etcd, Target::Etcd(etcd)) | (DatastoreKind::EtcdV2, Target::EtcdV2(etcd)) => {
            etcd.endpoints.contains(&header.location)
        }
        _ => false,
    }
}

/// Returns the kubeconfig context with the journal's API server, if the current context uses another server.
fn context_at(global: &Global, header: &Header) -> Option<String> {
    if header.datastore != DatastoreKind::Kubernetes {
        return None;
    }
    let settings =
        KubernetesSettings::resolve(&global.overrides(), &connect::environment(), &LocalFiles).ok()?;
    context_of_server(&settings, &header.location).ok()?
}
