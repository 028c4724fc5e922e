//! The views of subjects, with the notes and the outcome of each.

use std::net::IpAddr;

use calipam_check::views::{self, AddressView, Asking, MapLimits, MapList, PodName};
use calipam_check::{Context, Finding, Options, Scope, check};
use calipam_history::timeline::Event;
use calipam_model::snapshot::{Snapshot, Source};
use calipam_workflow::{Object, nearest_pod};

use crate::args::Subject;
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::format::Format;
use crate::render::show::{self as render, View, ViewDocument};
use crate::render::text::{escape, joined};
use crate::{hints, rerun};

/// Prints a subject.
///
/// # Errors
/// If the snapshot does not have it.
pub(super) fn print(
    subject: &Subject,
    scope: &Scope,
    snapshot: &Snapshot,
    events: &[Event],
    console: &Console,
) -> Result<Outcome> {
    match subject {
        Subject::Pools | Subject::Object(Object::Pool(_)) => {
            write(&views::pools(snapshot).within(scope), snapshot, console)?;
        }
        Subject::Blocks | Subject::Object(Object::Network(_)) => {
            write(&views::blocks(snapshot).within(scope), snapshot, console)?;
        }
        Subject::Nodes => write(&views::nodes(snapshot).within(scope), snapshot, console)?,
        Subject::Namespaces => {
            let report = check(snapshot, &Options::default());
            write(&views::namespaces(snapshot, &report, scope), snapshot, console)?;
        }
        Subject::Borrowed => write(&views::borrowed(snapshot, scope), snapshot, console)?,
        Subject::Configuration => write(&views::configuration(snapshot), snapshot, console)?,
        Subject::Map => write(&map(snapshot).within(scope), snapshot, console)?,
        Subject::Compare => return print_comparison(scope, snapshot, console),
        Subject::Addresses | Subject::Object(Object::Node(_)) => {
            write(&views::addresses(snapshot, scope, &[]), snapshot, console)?;
        }
        Subject::Object(Object::Pod(pod)) => return print_pod(pod, scope, snapshot, console),
        Subject::Object(Object::Address(address)) => {
            return print_address(*address, snapshot, events, console);
        }
        Subject::Object(Object::Handle(id) | Object::Text(id)) => return print_handle(id, snapshot, console),
    }
    Ok(Outcome::Clean)
}

fn write(view: &impl View, snapshot: &Snapshot, console: &Console) -> Result<()> {
    console.print(&ViewDocument::new(view, snapshot))
}

/// The maximum number of cells, which limits a map to a few screens.
const CELLS: u32 = 2048;

/// Creates the maps of all pools, with the findings of a single read. The limits leave out the details that only the
/// page of a check shows.
fn map(snapshot: &Snapshot) -> MapList {
    let report = check(snapshot, &Options::default());
    let limits = MapLimits {
        cells: CELLS,
        blocks: 0,
        owners: 0,
    };
    MapList {
        pools: views::map(snapshot, &report, limits),
    }
}

/// Prints everything about an address, with its last events.
fn print_address(
    address: IpAddr,
    snapshot: &Snapshot,
    events: &[Event],
    console: &Console,
) -> Result<Outcome> {
    let view = views::address(snapshot, address);
    write(&render::AddressDetails::new(&view, events), snapshot, console)?;
    let outcome = outcome_of(&view, console);
    if outcome == Outcome::Clean {
        hint_at_complete_read(&view.partly_read, console);
    }
    Ok(outcome)
}

/// Returns the outcome for an address. Prints a hint at the pools if nothing is known about it.
pub(super) fn outcome_of(view: &AddressView, console: &Console) -> Outcome {
    let is_unknown = view.pools.is_empty() && view.blocks.is_empty() && view.owners.is_empty();
    if !is_unknown {
        return Outcome::Clean;
    }
    let pools = hints::command(&["show"]);
    console.hint(&format!(
        "{} is in no pool or block; {pools} lists the pools",
        view.address
    ));
    Outcome::Refused
}

/// Prints what the objects around an address show, without findings, and returns it.
pub(super) fn print_answer<'a>(
    address: IpAddr,
    around: &Snapshot,
    events: &'a [Event],
    console: &Console,
) -> Result<render::Answer<'a>> {
    let answer = render::Answer {
        view: views::address(around, address),
        events,
    };
    write(&answer, around, console)?;
    Ok(answer)
}

/// Prints what everything shows about an address beyond an earlier answer: its findings, and what has changed since.
pub(super) fn print_rest(
    answer: &render::Answer<'_>,
    snapshot: &Snapshot,
    console: &Console,
) -> Result<Outcome> {
    let view = views::address(snapshot, answer.view.address);
    console.print(&render::Rest { answer, view: &view })?;
    Ok(outcome_of(&view, console))
}

/// Prints the command that reads everything, if this one has read some sources only partly.
fn hint_at_complete_read(partly_read: &[Source], console: &Console) {
    if !partly_read.is_empty() {
        let complete_command = rerun::without("quick");
        console.hint(&format!(
            "{complete_command} reads everything, and shows every owner and finding"
        ));
    }
}

/// Prints the addresses of a pod that are in the scope.
fn print_pod(pod: &PodName, scope: &Scope, snapshot: &Snapshot, console: &Console) -> Result<Outcome> {
    let pods = std::slice::from_ref(pod);
    let list = views::addresses(snapshot, scope, pods);
    if list.addresses.is_empty() {
        let everywhere = views::addresses(snapshot, &Scope::default(), pods);
        let has_others = !everywhere.addresses.is_empty();
        let (namespace, name) = pod;
        return Err(without_address(snapshot, namespace, name, has_others));
    }
    write(&list, snapshot, console)?;
    hint_at_faults(snapshot, pod, console);
    Ok(Outcome::Clean)
}

/// Hints at the critical findings about the addresses of a pod, such as another pod that uses one of them.
fn hint_at_faults(snapshot: &Snapshot, (namespace, name): &PodName, console: &Console) {
    let context = Context::new(snapshot, &Options::default());
    let Some(explanation) = views::explain(&context, snapshot, Asking::Pod(namespace, name)) else {
        return;
    };
    if explanation.critical.is_empty() {
        return;
    }
    let pod = format!("{namespace}/{name}");
    let explain = hints::command(&["explain", "--pod", &pod]);
    let problems = joined(explanation.critical.iter().map(Finding::message), "; ");
    console.hint(&format!("{problems}; {explain} says what to do"));
}

/// Creates the failure to list the addresses of a pod that has none, with the reason why if the pod is known.
/// `has_others` is true if the pod has addresses that the options leave out.
fn without_address(snapshot: &Snapshot, namespace: &str, name: &str, has_others: bool) -> Failure {
    let pod = format!("{namespace}/{name}");
    if has_others {
        let message = format!("the pod {pod} has no address on the named nodes or in the named pools");
        let show = hints::command(&["show", "--pod", &pod]);
        return Failure::refused(message).hint(format!("{show} shows all its addresses"));
    }

    let context = Context::new(snapshot, &Options::default());
    if let Some(explanation) = views::explain(&context, snapshot, Asking::Pod(namespace, name)) {
        let explain = hints::command(&["explain", "--pod", &pod]);
        return Failure::refused(explanation.sentence()).hint(format!("{explain} explains it"));
    }

    let hint = if snapshot.has_read(Source::Pods) || snapshot.has_read(Source::Endpoints) {
        similar_pod(snapshot, namespace, name)
    } else {
        Some(pods_not_read())
    };
    let message = format!("no address is recorded for the pod {pod}, and it is not known to use one");
    Failure::refused(message).hint_if(hint)
}

/// Returns the hint that pods were not read and need a kubeconfig.
pub(in crate::commands) fn pods_not_read() -> String {
    format!("pods were not read: {}", name_kubeconfig())
}

/// Returns the hint that services were not read and need a kubeconfig.
pub(in crate::commands) fn services_not_read() -> String {
    format!("services were not read: {}", name_kubeconfig())
}

/// Returns a hint that suggests a pod with a similar name.
pub(in crate::commands) fn similar_pod(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<String> {
    nearest_pod(snapshot, namespace, name).map(|near| format!("did you mean `{}`?", escape(&near)))
}

/// Returns the hint to name the kubeconfig that is needed to read pods, with the command for it.
fn name_kubeconfig() -> String {
    format!(
        "name the cluster's kubeconfig: {}",
        hints::connected(&["--kubeconfig", "FILE"], &[])
    )
}

/// Compares pods and records; exit code 1 if they differ.
fn print_comparison(scope: &Scope, snapshot: &Snapshot, console: &Console) -> Result<Outcome> {
    let Some(comparison) = views::compare(snapshot) else {
        return Err(
            Failure::refused("there is nothing to compare with: pods were not read").hint(name_kubeconfig()),
        );
    };
    let comparison = comparison.within(scope);
    write(&comparison, snapshot, console)?;
    if comparison.nodes.iter().all(render::agrees) {
        return Ok(Outcome::Clean);
    }
    // A table has only the numbers of addresses that differ.
    if console.format == Format::Table {
        console.hint(&format!("{} names the addresses", rerun::in_wide_form()));
    }
    Ok(Outcome::Findings)
}

/// Prints a handle with its blocks and addresses.
///
/// # Errors
/// If the snapshot does not have it.
fn print_handle(id: &str, snapshot: &Snapshot, console: &Console) -> Result<Outcome> {
    let Some(view) = views::handle(snapshot, id) else {
        return Err(handle_not_found(id));
    };
    write(&render::of_handle(&view), snapshot, console)?;
    hint_at_complete_read(&view.partly_read, console);
    Ok(Outcome::Clean)
}

/// Creates the failure for a handle that has no object and that no allocation names.
fn handle_not_found(id: &str) -> Failure {
    let check = hints::command(&["check", "--rule", "missing-handle", "-o", "wide"]);
    Failure::refused(format!("handle {id:?} not found")).hint(format!(
        "{check} lists handles that allocations name but that have no object"
    ))
}
