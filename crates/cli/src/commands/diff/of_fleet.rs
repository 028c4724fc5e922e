//! `diff` of many clusters, each with its own earlier state.

use std::path::Path;

use calipam_datastore::settings::Overrides;
use calipam_workflow::{Side, state_at};
use jiff::Timestamp;

use super::compare;
use crate::args::DiffArgs;
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::fleet::{Earlier, Fleet, Source, documents, place, read, refuse, unattended};
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

/// Compares each cluster with its earlier state, and prints the differences; exit code 1 if there are any.
///
/// # Errors
/// If an option only makes sense for one cluster, or the earlier states cannot be found. Clusters that cannot be read
/// are reported and skipped.
pub(crate) fn run(args: &DiffArgs, fleet: &Fleet, console: &Console) -> Result<Outcome> {
    let selection = &args.selection;
    let of_one = [
        ("--ip", !args.addresses.is_empty()),
        ("--block", !args.blocks.is_empty()),
        ("--node", !selection.nodes.is_empty()),
        ("--selector", selection.selector.is_some()),
        ("--pool", !selection.pools.is_empty()),
        ("NEW", args.new.is_some()),
    ];
    refuse(
        &of_one,
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
    let (mut list, new) = documents(
        fleet,
        &args.fleet,
        console,
        "is not compared",
        |cluster, console| {
            // This variable keeps the archive's temporary file until the file is read.
            let mut archived = None;
            let earlier = match &old {
                Old::Fleet(earlier) => match earlier.of(cluster) {
                    Some(named) => Ok(named.source.clone()),
                    None => return Ok(Ok((Outcome::Clean, Some(cluster.name.clone())))),
                },
                Old::Archives(folder, at) => {
                    let archive = place(folder, cluster, "");
                    state_at(&archive, *at, &Person::watching(console)).map(|state| {
                        let overrides = Overrides {
                            shown_as: Some(shown_as(&archive, &state)),
                            ..unattended()
                        };
                        Source::of_file(archived.insert(state).path.clone(), &overrides)
                    })
                }
            };
            match earlier.and_then(|earlier| earlier.settings()) {
                Ok(settings) => read(cluster, &args.fleet, console, async |access| {
                    let side = |datastore| Side {
                        datastore,
                        revision: None,
                    };
                    let old = side(connect::open_by(&settings, console).await?);
                    Ok((
                        compare([&old, &side(access.datastore.clone())], args, console).await?,
                        None,
                    ))
                }),
                Err(failure) => Ok(Err(failure.message)),
            }
        },
    )?;

    list.omits = Some(Outcome::Clean);
    list.only_new = new.into_iter().flatten().collect();
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
        .filter(|of| of.outcome != Outcome::Clean)
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
    Ok(if !is_whole {
        Outcome::PartlyRead
    } else if is_same {
        Outcome::Clean
    } else {
        Outcome::Findings
    })
}
