//! `diff` of many clusters, each with its own earlier state.

use std::path::Path;

use calipam_datastore::settings::{Overrides, Settings};
use calipam_workflow::{Side, state_at};
use jiff::Timestamp;

use super::compare;
use crate::args::DiffArgs;
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::fleet::{
    Earlier, Fleet, Named, ReadOfCluster, Source, documents, place, read, refuse, unattended,
};
use crate::format::Format;
use crate::operator::Person;
use crate::past::shown_as;
use crate::render::text::count;
use crate::{connect, rerun};

/// The source of the earlier states.
enum Old<'a> {
    Fleet(Earlier),
    /// The folder with an archive of each cluster, and the time at which to read the archives.
    Archives(&'a Path, Timestamp),
}

/// Returns the earlier states that the options name: the archives of the clusters, or OLD without a revision.
fn earlier_states(args: &DiffArgs) -> Result<Old<'_>> {
    if let Some(folder) = &args.archive
        && let Some(at) = args.at
        && args.old.is_none()
    {
        return Ok(Old::Archives(folder, at));
    }
    if let Some(old) = &args.old
        && old.revision.is_none()
        && args.archive.is_none()
    {
        let earlier = Fleet::earlier(Path::new(&old.datastore))?;
        return Ok(Old::Fleet(earlier));
    }
    let message =
        "with several clusters, OLD is a file or folder of earlier states; or use --archive and --at";
    let example = "for example a folder that `export --fleet` has written: see docs/fleet.md";
    Err(Failure::usage(message).hint(example))
}

/// Compares each cluster with its earlier state, and prints the differences; exit code 1 if there are any.
///
/// # Errors
/// If an option only makes sense for one cluster, the earlier states cannot be found, or two clusters have the same
/// earlier state. Clusters that cannot be read are reported and skipped.
pub(crate) fn run(args: &DiffArgs, fleet: &Fleet, console: &Console) -> Result<Outcome> {
    let selection = &args.selection;
    let options_of_one_cluster = [
        ("--ip", !args.addresses.is_empty()),
        ("--block", !args.blocks.is_empty()),
        ("--node", !selection.nodes.is_empty()),
        ("--selector", selection.selector.is_some()),
        ("--pool", !selection.pools.is_empty()),
        ("NEW", args.new.is_some()),
    ];
    refuse(
        &options_of_one_cluster,
        "compare that cluster alone; with several, OLD is a file or folder as for --fleet",
    )?;
    let old = earlier_states(args)?;

    fleet.require_distinct_places()?;

    let (mut list, new_clusters) = documents(
        fleet,
        &args.fleet,
        console,
        "is not compared",
        |cluster, console| match &old {
            Old::Fleet(earlier) => match earlier.of(cluster) {
                Some(named) => compare_cluster(named.source.settings(), cluster, args, console),
                None => Ok(ReadOfCluster::Read((Outcome::Clean, Some(cluster.name.clone())))),
            },
            Old::Archives(folder, at) => {
                let archive = place(folder, cluster, "");
                compare_with_archive(&archive, *at, cluster, args, console)
            }
        },
    )?;

    list.omits = Some(Outcome::Clean);
    list.only_new = new_clusters.into_iter().flatten().collect();
    if let Old::Fleet(earlier) = &old {
        list.only_old = earlier
            .others(&fleet.clusters)
            .into_iter()
            .map(str::to_owned)
            .collect();
    }
    let differing = list
        .clusters
        .iter()
        .filter(|cluster| cluster.outcome != Outcome::Clean)
        .count();
    let compared = count(list.clusters.len(), "cluster", "clusters");
    list.sums.push(match differing {
        0 => format!("No difference in {compared}"),
        number => format!("Differences in {number} of {compared}"),
    });
    let is_whole = list.unreadable.is_empty();
    let is_same = is_whole && differing == 0 && list.only_old.is_empty() && list.only_new.is_empty();
    if !is_same || console.prints_empty_results() {
        console.print(&list)?;
    }
    if console.format == Format::Table && !is_same {
        console.hint(&format!("{} lists every change", rerun::in_wide_form()));
    }
    if !is_whole {
        Ok(Outcome::PartlyRead)
    } else if is_same {
        Ok(Outcome::Clean)
    } else {
        Ok(Outcome::Findings)
    }
}

/// The result of comparing a cluster: also its name, if the earlier states do not have the cluster.
type Compared = ReadOfCluster<(Outcome, Option<String>)>;

/// Compares a cluster with the state at a time in its archive.
fn compare_with_archive(
    archive: &Path,
    at: Timestamp,
    cluster: &Named,
    args: &DiffArgs,
    console: &Console,
) -> Result<Compared> {
    // `state` keeps the archive's temporary file until the comparison has read it.
    let state = match state_at(archive, at, &Person::never_asked(console)) {
        Ok(state) => state,
        Err(failure) => return Ok(ReadOfCluster::Unreadable(failure.message)),
    };
    let overrides = Overrides {
        shown_as: Some(shown_as(archive, &state)),
        ..unattended()
    };
    let earlier = Source::of_file(state.path.clone(), &overrides);
    compare_cluster(earlier.settings(), cluster, args, console)
}

/// Compares a cluster with the earlier state in the datastore of `earlier`, and prints the differences.
fn compare_cluster(
    earlier: Result<Settings>,
    cluster: &Named,
    args: &DiffArgs,
    console: &Console,
) -> Result<Compared> {
    // Settings that cannot be used concern only this cluster.
    let earlier = match earlier {
        Ok(settings) => settings,
        Err(failure) => return Ok(ReadOfCluster::Unreadable(failure.message)),
    };
    read(cluster, &args.fleet, console, async |access| {
        let old = Side {
            datastore: connect::open_by(&earlier, console).await?,
            revision: None,
        };
        let new = Side {
            datastore: access.datastore.clone(),
            revision: None,
        };
        let outcome = compare([&old, &new], args, console).await?;
        Ok((outcome, None))
    })
}
