//! The `show` command.

use std::net::IpAddr;

use calipam_check::views::{self, MapLimits, MapList, PodName};
use calipam_check::{Options, Scope, check};
use calipam_datastore::read::Lookup;
use calipam_history::timeline::Event;
use calipam_model::snapshot::{Snapshot, Source};
use calipam_workflow::{Access, Found, Object, nearest_pod};

use crate::args::{Global, ShowArgs, Subject};
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::fleet::{self, Fleet};
use crate::format::Format;
use crate::past::Past;
use crate::render::show::{self as render, View, ViewDocument};
use crate::render::text::escape;
use crate::{connect, hints};

/// Reads the data of the subject, and prints it.
///
/// # Errors
/// If the datastore cannot be read, or does not have the subject.
pub(super) fn run(args: &ShowArgs, global: &Global, console: &Console) -> Result<Outcome> {
    let subject = args.subject();
    if args.quick && !is_one(&subject) {
        return Err(Failure::usage(
            "--quick works with an address or --handle: everything else needs all data",
        ));
    }
    check_table(&subject, args)?;
    if let Some(fleet) = Fleet::of_call(&args.fleet, global)? {
        return fleet::show::run(args, &fleet, console);
    }
    if args.find_range.is_some() {
        return Err(Failure::usage("--find-range needs several clusters")
            .hint("name them with --fleet or --context, which takes `*` and `?`"));
    }
    let past = Past::of_call(args.archive.as_deref(), args.at, global, console)?;
    let global = past.as_ref().map_or(global, |past| &past.global);
    let Found { found: (snapshot, outcome), not_found } =
        connect::with(global, console, async |access| show(access, args, console).await)?;
    console.done_with(snapshot);
    let outcome = if not_found.is_empty() { outcome } else { Outcome::Refused };
    not_found.iter().for_each(|error| console.failure(error));
    Ok(outcome)
}

/// True if the subject is an address or a handle, judging only by the form of its name.
fn is_one(subject: &Subject) -> bool {
    let Subject::Object(object) = subject else { return false };
    matches!(object.clone().by_form(), Object::Address(_) | Object::Handle(_))
}

/// Refuses table options if the subject is not printed as a table.
fn check_table(subject: &Subject, args: &ShowArgs) -> Result<()> {
    let is_set = args.printing.no_headers || args.printing.sort_by.is_some();
    match is_set && (is_one(subject) || *subject == Subject::Map) {
        true => Err(Failure::usage(
            "--no-headers and --sort-by only apply to tables, and this output is not a table",
        )),
        false => Ok(()),
    }
}

/// Reads the data of the subject, and prints it. The result includes an error for each missing node or pool.
pub(crate) async fn show(
    access: Access<'_>,
    args: &ShowArgs,
    console: &Console,
) -> Result<Found<(Snapshot, Outcome)>> {
    let (snapshot, subject) = read(access, args).await?;
    check_table(&subject, args)?;
    let events = match &subject {
        Subject::Object(Object::Address(address)) => {
            calipam_workflow::last_events(access.datastore, &snapshot, *address, LAST_EVENTS).await
        }
        _ => Vec::new(),
    };
    let of_object = if let Subject::Object(object) = &subject { object.names() } else { None };
    let names = of_object.unwrap_or_else(|| args.selection.names(None));
    let Found { found: scope, not_found } = names.found(&[&snapshot])?;
    let outcome = print_subject(&subject, &scope, &snapshot, &events, console)?;
    Ok(Found { found: (snapshot, outcome), not_found })
}

fn print_subject(
    subject: &Subject,
    scope: &Scope,
    snapshot: &Snapshot,
    events: &[Event],
    console: &Console,
) -> Result<Outcome> {
    match subject {
        Subject::Pools | Subject::Object(Object::Pool(_)) => {
            print(&views::pools(snapshot).within(scope), snapshot, console)?;
        }
        Subject::Blocks | Subject::Object(Object::Network(_)) => {
            print(&views::blocks(snapshot).within(scope), snapshot, console)?;
        }
        Subject::Nodes => print(&views::nodes(snapshot).within(scope), snapshot, console)?,
        Subject::Borrowed => print(&views::borrowed(snapshot, scope), snapshot, console)?,
        Subject::Configuration => print(&views::configuration(snapshot), snapshot, console)?,
        Subject::Map => print(&map(snapshot).within(scope), snapshot, console)?,
        Subject::Compare => return compare(scope, snapshot, console),
        Subject::Addresses | Subject::Object(Object::Node(_)) => {
            return addresses(None, scope, snapshot, console);
        }
        Subject::Object(Object::Pod(pod)) => return addresses(Some(pod), scope, snapshot, console),
        Subject::Object(Object::Address(address)) => return details(*address, snapshot, events, console),
        Subject::Object(Object::Handle(id) | Object::Text(id)) => return handle(id, snapshot, console),
    }
    Ok(Outcome::Clean)
}

fn print(view: &impl View, snapshot: &Snapshot, console: &Console) -> Result<()> {
    console.print(&ViewDocument::new(view, snapshot))
}

/// Reads the data of the subject. With `--quick`, reads only the objects around an address or a handle. Otherwise,
/// reads the sources that a view needs, or everything. In the returned subject, a handle has its complete ID, and the
/// kind of a named object is known.
async fn read(access: Access<'_>, args: &ShowArgs) -> Result<(Snapshot, Subject)> {
    let object = match args.subject() {
        Subject::Object(object) => object,
        subject => {
            let snapshot = match sources(args, &subject) {
                Some(sources) => calipam_workflow::read_sources(access, sources).await?,
                None => calipam_workflow::read(access).await?,
            };
            return Ok((snapshot, subject));
        }
    };
    if !args.quick {
        let snapshot = calipam_workflow::read(access).await?;
        let object = object.find(&snapshot)?;
        return Ok((snapshot, Subject::Object(object)));
    }
    let (snapshot, object) = match object.by_form() {
        Object::Address(address) => {
            let lookup = Lookup::Address(address);
            (calipam_workflow::read_around(access, &lookup).await?, Object::Address(address))
        }
        Object::Handle(begin) => {
            let (snapshot, id) = calipam_workflow::read_around_handle(access, &begin).await?;
            (snapshot, Object::Handle(id))
        }
        _ => unreachable!("a usage error"),
    };
    Ok((snapshot, Subject::Object(object)))
}

/// Returns the sources that a view needs, or `None` if it needs all of them. All sources are also needed if options
/// name nodes, since only a complete read finds these nodes.
fn sources(args: &ShowArgs, subject: &Subject) -> Option<&'static [Source]> {
    let sources: &[Source] = match subject {
        // This includes services, since free ranges must not overlap them.
        Subject::Pools if args.find_range.is_some() => &views::sources::PLACES,
        Subject::Pools => &views::sources::POOLS,
        Subject::Blocks => &views::sources::BLOCKS,
        Subject::Nodes => &views::sources::NODES,
        Subject::Borrowed => &views::sources::BORROWED,
        Subject::Configuration => &views::sources::CONFIGURATION,
        Subject::Compare | Subject::Map | Subject::Object(_) | Subject::Addresses => return None,
    };
    (!args.selection.names_nodes()).then_some(sources)
}

/// The maximum number of cells, which limits a map to a few screens.
const CELLS: u32 = 2048;

/// Creates the maps of all pools, with the findings of a single read.
fn map(snapshot: &Snapshot) -> MapList {
    let report = check(snapshot, &Options::default());
    let limits = MapLimits { cells: CELLS, blocks: 0, owners: 0 };
    MapList { pools: views::map(snapshot, &report, limits) }
}

/// The maximum number of events in the details of an address.
const LAST_EVENTS: usize = 3;

fn details(address: IpAddr, snapshot: &Snapshot, events: &[Event], console: &Console) -> Result<Outcome> {
    let view = views::address(snapshot, address);
    print(&render::AddressDetails::new(&view, events), snapshot, console)?;
    if view.pools.is_empty() && view.blocks.is_empty() && view.owners.is_empty() {
        console.hint(&format!(
            "{address} is in no pool or block; {} lists the pools",
            hints::command(&["show"])
        ));
        return Ok(Outcome::Refused);
    }
    hint_at_the_rest(&view.partly_read, console);
    Ok(Outcome::Clean)
}

/// If only a part was read, prints the command that reads everything.
fn hint_at_the_rest(partly_read: &[Source], console: &Console) {
    if !partly_read.is_empty() {
        let all = hints::again(&[], &["quick"]);
        console.hint(&format!("{all} reads everything, and shows every owner and finding"));
    }
}

/// Prints the addresses of nodes, or of a pod.
fn addresses(
    pod: Option<&PodName>,
    scope: &Scope,
    snapshot: &Snapshot,
    console: &Console,
) -> Result<Outcome> {
    let within = |scope| views::addresses(snapshot, scope, pod.map(std::slice::from_ref).unwrap_or_default());
    let list = within(scope);
    if let (Some((namespace, name)), true) = (pod, list.addresses.is_empty()) {
        let pod = format!("{namespace}/{name}");
        if !within(&Scope::default()).addresses.is_empty() {
            let all = format!("{} shows all its addresses", hints::command(&["show", "--pod", &pod]));
            let message = format!("the pod {pod} has no address on the named nodes or in the named pools");
            return Err(Failure::refused(message).hint(all));
        }
        if let Some(explanation) = views::explain_pod(snapshot, namespace, name) {
            return Err(Failure::refused(explanation.sentence())
                .hint(format!("{} explains it", hints::command(&["explain", "--pod", &pod]))));
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

/// Returns the hint that pods were not read and need a kubeconfig.
pub(super) fn read_pods() -> String {
    format!("pods were not read: {}", name_kubeconfig())
}

/// Returns a hint that suggests a pod with a similar name.
pub(super) fn near_pod(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<String> {
    nearest_pod(snapshot, namespace, name).map(|near| format!("did you mean `{}`?", escape(&near)))
}

/// Returns the hint to name the kubeconfig that is needed to read pods, with the command for it.
fn name_kubeconfig() -> String {
    format!("name the cluster's kubeconfig: {}", hints::connected(&["--kubeconfig", "FILE"], &[]))
}

/// Compares pods and records; exit code 1 if they differ.
fn compare(scope: &Scope, snapshot: &Snapshot, console: &Console) -> Result<Outcome> {
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

fn handle(id: &str, snapshot: &Snapshot, console: &Console) -> Result<Outcome> {
    let Some(view) = views::handle(snapshot, id) else {
        return Err(Failure::refused(format!("handle {id:?} not found")).hint(format!(
            "{} lists handles that allocations name but that have no object",
            hints::command(&["check", "--rule", "missing-handle", "-o", "wide"])
        )));
    };
    print(&render::of_handle(&view), snapshot, console)?;
    hint_at_the_rest(&view.partly_read, console);
    Ok(Outcome::Clean)
}
