//! The `export` command.

mod of_fleet;

use std::fs::File;
use std::io;
use std::path::Path;

use calipam_history::keep::Keep;
use calipam_workflow::{Archiving, archive};

use crate::args::{ExportArgs, Global};
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::fleet::Fleet;
use crate::render::text::count;
use crate::{connect, hints, rerun};

/// The file name endings of compression formats that exports do not use.
const UNSUPPORTED_COMPRESSIONS: [&str; 14] = [
    "gz", "tgz", "bz2", "tbz", "xz", "txz", "lzma", "lz", "lz4", "zip", "7z", "br", "Z", "zstd",
];

/// Exports the cluster into a file, an archive or standard output; or each cluster of a fleet.
pub(super) fn run(args: &ExportArgs, global: &Global, console: &Console) -> Result<Outcome> {
    if let Some(fleet) = Fleet::of_call(&args.fleet, global)? {
        return of_fleet::run(args, &fleet, console);
    }
    if let Some(folder) = &args.archive {
        return to_archive(folder, args.keep.as_ref(), global, console);
    }
    // clap ensures that a file or an archive is named.
    let stdout = Path::new("-");
    let file = args.file.as_deref().unwrap_or(stdout);
    if file == stdout {
        return to_stdout(global, console);
    }
    check_file(file, args.overwrite)?;
    to_file(file, global, console)
}

/// Refuses a file whose name asks for an unsupported compression, or that exists and is not to be overwritten.
fn check_file(file: &Path, overwrite: bool) -> Result<()> {
    if let Some(ending) = file.extension().and_then(|ending| ending.to_str())
        && UNSUPPORTED_COMPRESSIONS.contains(&ending)
    {
        let message = format!("{}: exports are not compressed as .{ending}", file.display());
        let hint =
            "a name that ends in .zst compresses the export; standard output can be piped to another tool";
        return Err(Failure::usage(message).hint(hint));
    }
    if file.exists() && !overwrite {
        let overwriting = rerun::replacing("overwrite", &["--overwrite"]);
        let hint = format!("choose another name, or replace it: {overwriting}");
        return Err(Failure::usage(format!("{} exists", file.display())).hint(hint));
    }
    Ok(())
}

/// Exports into a file, and prints the number of objects.
fn to_file(file: &Path, global: &Global, console: &Console) -> Result<Outcome> {
    let objects = export(global, file, console)?;
    console.say(&format!(
        "wrote {} to {}",
        count(objects, "object", "objects"),
        file.display()
    ));
    let check = hints::command_elsewhere(&["check", "--datastore", &file.to_string_lossy()]);
    console.hint(&format!("check it with {check}"));
    Ok(Outcome::Clean)
}

/// Adds an export to an archive, prunes the archive by the rules in `keep`, and prints how many exports it contains.
fn to_archive(folder: &Path, keep: Option<&Keep>, global: &Global, console: &Console) -> Result<Outcome> {
    let Archiving {
        added,
        removed,
        exports: remaining,
    } = connect::with(global, console, async |access| {
        archive(access, folder, keep).await
    })?;

    let path = added.export.path.display();
    if added.already_existed {
        console.info(&format!("nothing was added: {path} is from the same time"));
    } else {
        let number = usize::try_from(added.entries).unwrap_or(usize::MAX);
        let objects = count(number, "object", "objects");
        console.info(&format!("wrote {objects} to {path}"));
    }

    // The number of exports after the old ones were removed.
    let mut contents = count(remaining, "export", "exports");
    if !removed.is_empty() {
        let removed = count(removed.len(), "export", "exports");
        contents.push_str(&format!("; {removed} removed"));
    }
    console.info(&format!("the archive holds {contents}"));
    Ok(Outcome::Clean)
}

/// Exports to stdout. A temporary file is written first, so that nothing is printed if the read fails or restarts.
fn to_stdout(global: &Global, console: &Console) -> Result<Outcome> {
    let failed = Failure::io("write a temporary file");
    let folder = tempfile::tempdir().map_err(&failed)?;
    let path = folder.path().join("export.jsonl");
    export(global, &path, console)?;
    let mut file = File::open(&path).map_err(failed)?;
    console.data(|out| io::copy(&mut file, out).map(drop))?;
    Ok(Outcome::Clean)
}

fn export(global: &Global, path: &Path, console: &Console) -> Result<usize> {
    let objects = connect::with(global, console, async |access| {
        calipam_workflow::export(access, path).await
    })?;
    Ok(usize::try_from(objects).unwrap_or(usize::MAX))
}
