//! `export` of many clusters: one file for each, in a folder for `check --fleet`, or one archive for each.

use std::fs;
use std::path::{Path, PathBuf};

use crate::args::ExportArgs;
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::fleet::{Fleet, ReadOfCluster, each, place, read};
use crate::render::text::count;
use crate::rerun;

/// Writes an export of each cluster.
///
/// # Errors
/// If the folder cannot be written, or already contains the file of a cluster and `--overwrite` is not given. Clusters
/// that cannot be read are reported and skipped.
pub(crate) fn run(args: &ExportArgs, fleet: &Fleet, console: &Console) -> Result<Outcome> {
    let folder = match args.archive.as_ref().or(args.file.as_ref()) {
        Some(folder) if folder != Path::new("-") => folder,
        _ => {
            return Err(Failure::usage(
                "several clusters are exported into a folder: give only the folder",
            ));
        }
    };
    let ending = if args.archive.is_some() { "" } else { ".jsonl.zst" };
    let mut paths: Vec<PathBuf> = Vec::new();
    for cluster in &fleet.clusters {
        paths.push(place(folder, cluster, ending));
    }
    fleet.require_distinct_places()?;
    prepare(&paths, args)?;
    for note in &fleet.notes {
        console.note(note);
    }

    let are_written: Vec<bool> = each(&fleet.clusters, &args.fleet, console, |cluster, console| {
        let path = place(folder, cluster, ending);
        let result = read(cluster, &args.fleet, console, async |access| {
            if args.archive.is_some() {
                calipam_workflow::archive(access, &path, args.keep.as_ref()).await?;
            } else {
                calipam_workflow::export(access, &path).await?;
            }
            Ok(())
        })?;
        match result {
            ReadOfCluster::Read(()) => Ok(true),
            ReadOfCluster::Unreadable(reason) => {
                console.warn(&format!("not exported: {reason}"));
                Ok(false)
            }
        }
    })?;

    let number = are_written.iter().filter(|is_written| **is_written).count();
    console.say(&format!(
        "wrote {} to {}",
        count(number, "export", "exports"),
        folder.display()
    ));
    if number == are_written.len() {
        Ok(Outcome::Clean)
    } else {
        Ok(Outcome::PartlyRead)
    }
}

/// Creates the folders. Refuses existing files without `--overwrite`.
fn prepare(paths: &[PathBuf], args: &ExportArgs) -> Result<()> {
    // An archive is a folder, to which an export is added.
    let may_exist = args.overwrite || args.archive.is_some();
    if !may_exist && let Some(existing) = paths.iter().find(|path| path.exists()) {
        let overwriting = rerun::replacing("overwrite", &["--overwrite"]);
        let hint = format!("choose another folder, or replace it: {overwriting}");
        return Err(Failure::usage(format!("{} exists", existing.display())).hint(hint));
    }
    for path in paths {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Failure::io_at("create the folder", folder))?;
        }
    }
    Ok(())
}
