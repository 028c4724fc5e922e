//! `export` of many clusters: one file for each, in a folder for `check --fleet`, or one archive for each.

use std::fs;
use std::path::{Path, PathBuf};

use crate::args::ExportArgs;
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::fleet::{Fleet, each, place, read};
use crate::render::text::count;
use crate::rerun;

/// Writes an export of each cluster.
///
/// # Errors
/// If the folder cannot be written, or already contains the file of a cluster and `--overwrite` is not given. Clusters
/// that cannot be read are reported and skipped.
pub(crate) fn run(args: &ExportArgs, fleet: &Fleet, console: &Console) -> Result<Outcome> {
    let folder = args
        .archive
        .as_ref()
        .or(args.file.as_ref())
        .filter(|folder| *folder != Path::new("-"));
    let folder = folder
        .ok_or_else(|| Failure::usage("several clusters are exported into a folder: give only the folder"))?;
    let ending = if args.archive.is_some() { "" } else { ".jsonl.zst" };
    let paths: Vec<PathBuf> = fleet
        .clusters
        .iter()
        .map(|cluster| place(folder, cluster, ending))
        .collect();
    prepare(&paths, args)?;
    for note in &fleet.notes {
        console.note(note);
    }
    let written = each(&fleet.clusters, &args.fleet, console, |cluster, console| {
        let path = place(folder, cluster, ending);
        let result = read(cluster, &args.fleet, console, async |access| {
            if args.archive.is_some() {
                calipam_workflow::archive(access, &path, args.keep.as_ref()).await?;
            } else {
                calipam_workflow::export(access, &path).await?;
            }
            Ok(())
        });
        Ok(result?
            .map_err(|reason| console.warn(&format!("not exported: {reason}")))
            .is_ok())
    })?;
    let number = written.iter().filter(|written| **written).count();
    console.say(&format!(
        "wrote {} to {}",
        count(number, "export", "exports"),
        folder.display()
    ));
    Ok(if number == written.len() {
        Outcome::Clean
    } else {
        Outcome::PartlyRead
    })
}

/// Creates the folders. Refuses two clusters with the same file, and existing files without `--overwrite`.
fn prepare(paths: &[PathBuf], args: &ExportArgs) -> Result<()> {
    let mut sorted: Vec<&PathBuf> = paths.iter().collect();
    sorted.sort();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Failure::usage(format!(
            "two clusters would be written to {}",
            pair[0].display()
        )));
    }
    let may_be_there = args.overwrite || args.archive.is_some();
    if let Some(existing) = paths.iter().find(|path| path.exists())
        && !may_be_there
    {
        let overwriting = rerun::replacing("overwrite", &["--overwrite"]);
        let hint = format!("choose another folder, or replace it: {overwriting}");
        return Err(Failure::usage(format!("{} exists", existing.display())).hint(hint));
    }
    for folder in paths.iter().filter_map(|path| path.parent()) {
        fs::create_dir_all(folder).map_err(Failure::io_at("create the folder", folder))?;
    }
    Ok(())
}
