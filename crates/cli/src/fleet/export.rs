//! `export` of many clusters: a file for each, in a folder that `check --fleet` reads.

use std::fs;
use std::path::{Path, PathBuf};

use super::run::{Read, read};
use super::{Fleet, Named, each};
use crate::args::ExportArgs;
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::hints;
use crate::operator::Person;
use crate::render::text::count;

/// Writes an export of each cluster.
///
/// # Errors
/// Where the folder cannot be written, or holds a file of a cluster already. A cluster that cannot be read is told, and stops nothing.
pub(crate) fn run(args: &ExportArgs, fleet: &Fleet, console: &Console) -> Result<Outcome, Failure> {
    let folder = match (&args.file, &args.archive) {
        (Some(folder), None) if folder != Path::new("-") => folder,
        _ => {
            return Err(Failure::usage(
                "exports of several clusters are files of a folder: name the folder alone",
            ));
        }
    };
    let mut paths: Vec<PathBuf> = fleet.clusters.iter().map(|cluster| place(folder, cluster)).collect();
    paths.sort();
    if let Some(pair) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Failure::usage(format!("two clusters would be written to {}", pair[0].display())));
    }
    if let Some(there) = paths.iter().find(|path| path.exists() && !args.overwrite) {
        return Err(Failure::Usage {
            message: format!("{} exists", there.display()),
            hint: Some(format!(
                "choose another folder, or replace it: {}",
                hints::again(&["--overwrite"], &["overwrite"])
            )),
        });
    }
    for folder in paths.iter().filter_map(|path| path.parent()) {
        fs::create_dir_all(folder)
            .map_err(|error| Failure::Io { doing: format!("make the folder {}", folder.display()), error })?;
    }
    let written = each(&fleet.clusters, &args.fleet, console, |cluster, console| {
        let path = place(folder, cluster);
        let result = read(cluster, &args.fleet, console, async |datastore| {
            Ok(calipam_workflow::export(datastore, &path, &Person::watching(console)).await?)
        });
        let written = match result? {
            Ok(Read::Datastore(_)) => true,
            Ok(Read::Summary(_)) => {
                console.warn("it is a summary, which holds no data to export");
                false
            }
            Err(reason) => {
                console.warn(&format!("cannot be read: {reason}"));
                false
            }
        };
        Ok(written)
    });
    let written = written.into_iter().collect::<Result<Vec<bool>, Failure>>()?;
    let number = written.iter().filter(|written| **written).count();
    console.say(&format!("wrote {} to {}", count(number, "export", "exports"), folder.display()));
    Ok(if number == written.len() { Outcome::Clean } else { Outcome::PartlyRead })
}

/// The file of a cluster; the clusters of a group in a folder of it, as `check --fleet DIR` reads it.
fn place(folder: &Path, cluster: &Named) -> PathBuf {
    let Named { name, group, .. } = cluster;
    let own = group.as_deref().and_then(|group| name.strip_prefix(&format!("{group}/"))).unwrap_or(name);
    // A name is no path.
    let plain = |text: &str| text.replace(['/', '\\'], "_").trim_start_matches('.').to_owned();
    let folder = group.as_ref().map_or_else(|| folder.to_owned(), |group| folder.join(plain(group)));
    folder.join(format!("{}.jsonl.zst", plain(own)))
}
