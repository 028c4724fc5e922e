//! `diff` of many clusters, each with its own earlier state.

use std::path::Path;

use calipam_check::Scope;
use calipam_datastore::settings::Settings;
use calipam_workflow::{Side, diff, read_pair, state_at};
use jiff::Timestamp;

use super::folder::place;
use super::run::read;
use super::{Earlier, Fleet, Named, Source, each, refuse, unattended};
use crate::args::DiffArgs;
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::format::Format;
use crate::operator::Person;
use crate::render::diff::State;
use crate::render::fleet::{DiffOfCluster, FleetDiff};
use crate::{connect, hints};

type IsGiven = fn(&DiffArgs) -> bool;

/// Options that only make sense for one cluster.
const OF_ONE: [(&str, IsGiven); 6] = [
    ("--ip", |args| !args.addresses.is_empty()),
    ("--block", |args| !args.blocks.is_empty()),
    ("--node", |args| !args.nodes.is_empty()),
    ("--selector", |args| args.selector.is_some()),
    ("--pool", |args| !args.pools.is_empty()),
    ("NEW", |args| args.new.is_some()),
];

/// The source of the earlier states.
enum Old<'a> {
    Fleet(Earlier),
    /// The folder with an archive of each cluster, and the time at which to read the archives.
    Archives(&'a Path, Timestamp),
}

/// Compares each cluster with its earlier state, and prints the differences; exit code 1 if there are any.
///
/// # Errors
/// If an option only makes sense for one cluster, or the earlier states cannot be found. Clusters that cannot be read
/// are reported and skipped.
pub(crate) fn run(args: &DiffArgs, fleet: &Fleet, console: &Console) -> Result<Outcome, Failure> {
    let of_one = OF_ONE.iter().find(|(_, is_given)| is_given(args));
    refuse(
        of_one.map(|(name, _)| *name),
        "compare that cluster alone; with several, OLD is a file or folder as for --fleet",
    )?;
    let old =
        match (&args.archive, args.at, &args.old) {
            (Some(folder), Some(at), None) => Old::Archives(folder, at),
            (None, _, Some(old)) if old.revision.is_none() => {
                Old::Fleet(Fleet::earlier(Path::new(&old.datastore))?)
            }
            _ => return Err(Failure::usage(
                "with several clusters, OLD is a file or folder of earlier states; or use --archive and --at",
            )
            .hint("for example a folder that `export --fleet` has written: see docs/fleet.md")),
        };
    let compared: Vec<Result<_, Failure>> =
        each(&fleet.clusters, &args.fleet, console, |cluster, console| {
            // Keeps the archive's temporary file until it is read.
            let mut archived = None;
            let earlier = match &old {
                Old::Fleet(earlier) => match earlier.of(cluster) {
                    Some(named) => Ok(named.source.clone()),
                    None => return Ok(None),
                },
                Old::Archives(folder, at) => {
                    let state = state_at(&place(folder, cluster, ""), *at, &Person::watching(console));
                    let path = state.map(|state| archived.insert(state).path.clone());
                    path.map(|path| Source::of_file(path, &unattended()))
                }
            };
            let compared = match earlier.and_then(|earlier| earlier.settings()) {
                Ok(settings) => compare(cluster, &settings, args, console)?,
                Err(failure) => Err(failure.message),
            };
            Ok(Some(compared))
        });

    let mut document = FleetDiff::default();
    if let Old::Fleet(earlier) = &old {
        document.only_old = earlier.others(&fleet.clusters).into_iter().map(str::to_owned).collect();
    }
    for (Named { name, .. }, compared) in fleet.clusters.iter().zip(compared) {
        match compared? {
            Some(Ok(compared)) => document.clusters.push(compared),
            Some(Err(reason)) => {
                console.warn(&format!("{name} is not compared: {reason}"));
                document.unreadable.insert(name.clone(), reason);
            }
            None => document.only_new.push(name.clone()),
        }
    }
    if !document.is_same() || console.prints_nothing_new() {
        console.print(&document)?;
    }
    if console.format == Format::Table && !document.is_same() {
        console.hint(&format!("{} lists every change", hints::again(&["-o", "wide"], &["output"])));
    }
    Ok(match document.is_same() {
        _ if !document.unreadable.is_empty() => Outcome::PartlyRead,
        true => Outcome::Clean,
        false => Outcome::Findings,
    })
}

/// Compares a cluster with its earlier state, or returns the reason why they cannot be compared.
fn compare(
    cluster: &Named,
    earlier: &Settings,
    args: &DiffArgs,
    console: &Console,
) -> Result<Result<DiffOfCluster, String>, Failure> {
    let Named { name, group, .. } = cluster.clone();
    read(cluster, &args.fleet, console, async |datastore| {
        let side = |datastore| Side { datastore, revision: None };
        let old = side(connect::open_by(earlier, console).await?);
        let new = side(datastore.clone());
        let person = Person::watching(console);
        let pair = read_pair(&old, &new, args.force, &person).await?;
        let found = diff(&pair, [&old, &new], &Scope::default(), args.recheck.settle, &person).await?;
        let states = [State::of(&pair.old, &old), State::of(&pair.new, &new)];
        let compared = DiffOfCluster::of((name, group), states, &found, console.format);
        compared.map_err(|error| Failure::io("write the difference")(error.into()))
    })
}
