//! `show`.

use std::net::IpAddr;

use calipam_check::views::{self, MapLimits, MapList, PodName};
use calipam_check::{Options, Scope, check};
use calipam_datastore::Datastore;
use calipam_datastore::read::Lookup;
use calipam_history::timeline::Event;
use calipam_model::snapshot::{Snapshot, Source};
use calipam_workflow::{Found, found_nodes, found_pools, nearest_pod};

use crate::args::{Global, ShowArgs, Subject};
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::fleet::{self, Fleet};
use crate::format::Format;
use crate::operator::Person;
use crate::past::Past;
use crate::render::show::{self as render, Shown, View};
use crate::render::text::escape;
use crate::{connect, hints};

/// Reads what the subject needs, and prints it.
///
/// # Errors
/// If the datastore cannot be read, or holds nothing of the subject.
pub(super) fn run(args: &ShowArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let has_table = !matches!(args.subject(), Subject::Map | Subject::Address(_) | Subject::Handle(_));
    if !has_table && (args.printing.no_headers || args.printing.sort_by.is_some()) {
        return Err(Failure::usage(
            "--no-headers and --sort-by only apply to tables, and this output is not a table",
        ));
    }
    if let Some(fleet) = Fleet::of_call(&args.fleet, global)? {
        return fleet::show::run(args, &fleet, console);
    }
    if args.find_range.is_some() {
        return Err(Failure::usage("--find-range needs several clusters")
            .hint("name them with --fleet or --context, which takes `*` and `?`"));
    }
    let past = Past::of_call(args.archive.as_deref(), args.at, global, console)?;
    let global = past.as_ref().map_or(global, |past| &past.global);
    let Found { found: (snapshot, outcome), not_found } = connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        show(&datastore, args, console).await
    })?;
    console.done_with(snapshot);
    let outcome = if not_found.is_empty() { outcome } else { Outcome::Refused };
    not_found.iter().for_each(|error| console.failure(error));
    Ok(outcome)
}

/// Reads what the subject needs of a datastore, and prints it, without the nodes and pools that are not found.
pub(crate) async fn show(
    datastore: &Datastore,
    args: &ShowArgs,
    console: &Console,
) -> Result<Found<(Snapshot, Outcome)>, Failure> {
    let (snapshot, subject) = read(datastore, args, console).await?;
    let events = match &subject {
        Subject::Address(address) => {
            calipam_workflow::last_events(datastore, &snapshot, *address, LAST_EVENTS).await
        }
        _ => Vec::new(),
    };
    let nodes = found_nodes(&snapshot, &args.in_nodes, args.selector.as_ref())?;
    let pools = found_pools(&snapshot, &args.in_pools)?;
    let scope = Scope { nodes: nodes.found, networks: pools.found, namespace: None };
    let outcome = print_subject(&subject, &scope, &snapshot, &events, console)?;
    let not_found = nodes.not_found.into_iter().chain(pools.not_found).collect();
    Ok(Found { found: (snapshot, outcome), not_found })
}

fn print_subject(
    subject: &Subject,
    scope: &Scope,
    snapshot: &Snapshot,
    events: &[Event],
    console: &Console,
) -> Result<Outcome, Failure> {
    match subject {
        Subject::Pools => print(&views::pools(snapshot).within(scope), snapshot, console)?,
        Subject::Blocks => print(&views::blocks(snapshot).within(scope), snapshot, console)?,
        Subject::Nodes => print(&views::nodes(snapshot).within(scope), snapshot, console)?,
        Subject::Borrowed => print(&views::borrowed(snapshot, scope), snapshot, console)?,
        Subject::Addresses(pod) => return addresses(pod.as_ref(), scope, snapshot, console),
        Subject::Configuration => print(&views::configuration(snapshot), snapshot, console)?,
        Subject::Map => print(&map(snapshot).within(scope), snapshot, console)?,
        Subject::Compare => return compare(scope, snapshot, console),
        Subject::Address(address) => return details(*address, snapshot, events, console),
        Subject::Handle(id) => return handle(id, snapshot, console),
    }
    Ok(Outcome::Clean)
}

fn print(view: &impl View, snapshot: &Snapshot, console: &Console) -> Result<(), Failure> {
    console.print(&Shown::new(view, snapshot))
}

/// Reads the few keys around one address or handle, what the view is made of, or everything. Of a handle, the whole ID
/// becomes the subject.
async fn read(
    datastore: &Datastore,
    args: &ShowArgs,
    console: &Console,
) -> Result<(Snapshot, Subject), Failure> {
    let subject = args.subject();
    let person = Person::watching(console);
    if let Some(sources) = sources(args, &subject) {
        let snapshot = calipam_workflow::read_sources(datastore, sources, &person).await?;
        return Ok((snapshot, subject));
    }
    let snapshot = match &subject {
        Subject::Address(address) if !args.all_owners => {
            calipam_workflow::read_around(datastore, &Lookup::Address(*address), &person).await?
        }
        Subject::Handle(begin) => {
            // Tables show the beginning of an ID with this after it.
            let begin = begin.trim_end_matches('…');
            let (snapshot, id) = calipam_workflow::read_around_handle(datastore, begin, &person).await?;
            let snapshot = match args.all_owners {
                true => calipam_workflow::read(datastore, &person).await?,
                false => snapshot,
            };
            return Ok((snapshot, Subject::Handle(id)));
        }
        _ => calipam_workflow::read(datastore, &person).await?,
    };
    Ok((snapshot, subject))
}

/// What a view is made of, if that is not everything. Whether there is a node of a name, all sources say that name
/// nodes.
fn sources(args: &ShowArgs, subject: &Subject) -> Option<&'static [Source]> {
    let sources: &[Source] = match subject {
        // Free ranges are beside services, too.
        Subject::Pools if args.find_range.is_some() => &views::sources::PLACES,
        Subject::Pools => &views::sources::POOLS,
        Subject::Blocks => &views::sources::BLOCKS,
        Subject::Nodes => &views::sources::NODES,
        Subject::Borrowed => &views::sources::BORROWED,
        Subject::Configuration => &views::sources::CONFIGURATION,
        Subject::Compare
        | Subject::Map
        | Subject::Address(_)
        | Subject::Handle(_)
        | Subject::Addresses(_) => return None,
    };
    (args.in_nodes.is_empty() && args.selector.is_none()).then_some(sources)
}

/// What keeps a map within a few screens.
const CELLS: u32 = 2048;

/// The maps of all pools, marked by what a check finds in a single read.
fn map(snapshot: &Snapshot) -> MapList {
    let report = check(snapshot, &Options::default());
    let limits = MapLimits { cells: CELLS, blocks: 0, owners: 0 };
    MapList { pools: views::map(snapshot, &report, limits) }
}

/// What is shown of an address ends with so many events.
const LAST_EVENTS: usize = 3;

fn details(
    address: IpAddr,
    snapshot: &Snapshot,
    events: &[Event],
    console: &Console,
) -> Result<Outcome, Failure> {
    let view = views::address(snapshot, address);
    print(&render::AddressDetails { view: &view, events }, snapshot, console)?;
    if view.pools.is_empty() && view.blocks.is_empty() && view.owners.is_empty() {
        console.hint(&format!(
            "it is in none of the pools and blocks; {} lists the pools",
            hints::command(&["show"])
        ));
        return Ok(Outcome::Refused);
    }
    hint_at_the_rest(&view.partly_read, ["--ip", &address.to_string()], console);
    Ok(Outcome::Clean)
}

/// Names the command that reads everything, where only a part was read.
fn hint_at_the_rest(partly_read: &[Source], [option, value]: [&str; 2], console: &Console) {
    if !partly_read.is_empty() {
        let all = hints::command(&["show", option, value, "--all-owners"]);
        console.hint(&format!("{all} reads everything, and shows every owner and finding"));
    }
}

/// What nodes hold, or a pod.
fn addresses(
    pod: Option<&PodName>,
    scope: &Scope,
    snapshot: &Snapshot,
    console: &Console,
) -> Result<Outcome, Failure> {
    let within = |scope| views::addresses(snapshot, scope, pod.map(std::slice::from_ref).unwrap_or_default());
    let list = within(scope);
    if let (Some((namespace, name)), true) = (pod, list.addresses.is_empty()) {
        let pod = format!("{namespace}/{name}");
        if !within(&Scope::default()).addresses.is_empty() {
            let all = format!("{} shows all that it has", hints::command(&["show", "--pod", &pod]));
            let message = format!("the pod {pod} has no address on the nodes or in the pools that are named");
            return Err(Failure::refused(message).hint(all));
        }
        if let Some(explanation) = views::explain_pod(snapshot, namespace, name) {
            return Err(Failure::refused(explanation.sentence())
                .hint(format!("{} says more", hints::command(&["explain", "--pod", &pod]))));
        }
        return Err(Failure::refused(format!(
            "no address is recorded for the pod {pod}, and it is not known to use one"
        ))
        .hint_if(match snapshot.has_read(Source::Pods) || snapshot.has_read(Source::Endpoints) {
            false => Some(read_pods()),
            true => near_pod(snapshot, namespace, name),
        }));
    }
    print(&list, snapshot, console)?;
    Ok(Outcome::Clean)
}

/// The hint that says how to read pods.
pub(super) fn read_pods() -> String {
    format!("pods were not read: {}", name_kubeconfig())
}

/// A pod of a similar name.
pub(super) fn near_pod(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<String> {
    nearest_pod(snapshot, namespace, name).map(|near| format!("did you mean `{}`?", escape(&near)))
}

/// What makes that pods are read.
fn name_kubeconfig() -> String {
    format!("name the kubeconfig of the cluster, {}", hints::connected(&["--kubeconfig", "FILE"], &[]))
}

/// The comparison that people make by hand before and after a repair; exit code 1 if the two differ.
fn compare(scope: &Scope, snapshot: &Snapshot, console: &Console) -> Result<Outcome, Failure> {
    let Some(comparison) = views::compare(snapshot).map(|comparison| comparison.within(scope)) else {
        return Err(
            Failure::refused("there is nothing to compare with: pods were not read").hint(name_kubeconfig())
        );
    };
    print(&comparison, snapshot, console)?;
    let agree = comparison.nodes.iter().all(render::agrees);
    if !agree && console.format == Format::Table {
        console.hint(&format!("{} names the addresses", hints::again(&["-o", "wide"], &["output"])));
    }
    Ok(if agree { Outcome::Clean } else { Outcome::Findings })
}

fn handle(id: &str, snapshot: &Snapshot, console: &Console) -> Result<Outcome, Failure> {
    let Some(view) = views::handle(snapshot, id) else {
        return Err(Failure::refused(format!("there is no handle {id:?}")).hint(format!(
            "{} lists handles that allocations name without an object",
            hints::command(&["check", "--rule", "missing-handle", "-o", "wide"])
        )));
    };
    print(&view, snapshot, console)?;
    hint_at_the_rest(&view.partly_read, ["--handle", id], console);
    Ok(Outcome::Clean)
}
