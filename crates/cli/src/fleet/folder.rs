//! A folder with an export of each cluster. The exports in a subfolder form a group.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use calipam_datastore::settings::Overrides;

use super::{Fleet, Named, Source, file, unattended};
use crate::exit::{Failure, Result};
use crate::render::text::escape;

/// Lists the files in a folder as clusters. The folders in it are groups. A fleet's own file can be among the exports;
/// it is left out.
pub(super) fn fleet(folder: &Path) -> Result<Fleet> {
    let base = unattended();
    let mut clusters: Vec<Named> = Vec::new();
    let mut notes = Vec::new();
    for (file, group) in files_with_groups(folder)? {
        if file::is_fleet(&file) {
            let name = file.to_string_lossy();
            notes.push(format!(
                "{} names clusters and is no export: it is left out",
                escape(&name)
            ));
        } else {
            clusters.push(cluster_of_file(file, group, &base));
        }
    }

    let mut names = HashSet::new();
    for cluster in &mut clusters {
        make_unique(&mut cluster.name, &mut names);
    }
    Ok(Fleet {
        clusters,
        notes,
        ..Fleet::default()
    })
}

/// Lists the files in a folder, then those in its subfolders, each with the name of the subfolder.
fn files_with_groups(folder: &Path) -> Result<Vec<(PathBuf, Option<String>)>> {
    let (subfolders, files): (Vec<PathBuf>, Vec<PathBuf>) =
        entries(folder)?.into_iter().partition(|path| path.is_dir());
    let mut all: Vec<(PathBuf, Option<String>)> = files.into_iter().map(|file| (file, None)).collect();
    for subfolder in subfolders {
        let group = name_of(&subfolder);
        for path in entries(&subfolder)? {
            if !path.is_dir() {
                all.push((path, Some(group.clone())));
            }
        }
    }
    Ok(all)
}

/// Appends a number to the name if another cluster already has it, and adds it to the `names` that clusters have.
fn make_unique(name: &mut String, names: &mut HashSet<String>) {
    let original = name.clone();
    for number in 2.. {
        let is_new = names.insert(name.clone());
        if is_new {
            return;
        }
        *name = format!("{original}-{number}");
    }
}

/// Creates a cluster for an export. The cluster's name begins with the group, since two groups can have clusters with
/// the same name.
fn cluster_of_file(file: PathBuf, group: Option<String>, base: &Overrides) -> Named {
    let file_name = name_of(&file);
    let name = match &group {
        Some(group) => format!("{group}/{file_name}"),
        None => file_name,
    };
    Named {
        name,
        group,
        labels: BTreeMap::new(),
        services: Vec::new(),
        source: Source::of_file(file, base),
    }
}

/// Returns the path of a cluster's file in the folder of a fleet or, if `ending` is empty, the path of its archive.
/// Each group has a subfolder.
pub(crate) fn place(folder: &Path, cluster: &Named, ending: &str) -> PathBuf {
    // A name must not turn into a path, or into the name of an unfinished file, which would not be read.
    let file_name = |name: &str| {
        let without_slashes = name.replace(['/', '\\'], "_");
        if is_unfinished(&without_slashes) {
            without_slashes.replace('.', "_")
        } else {
            without_slashes
        }
    };
    let Named { name, group, .. } = cluster;
    let Some(group) = group else {
        return folder.join(file_name(name) + ending);
    };
    let name_in_group = name.strip_prefix(&format!("{group}/")).unwrap_or(name);
    folder
        .join(file_name(group))
        .join(file_name(name_in_group) + ending)
}

/// True for a file that is still being written: hidden, as with rsync, or with the ending `.tmp` or `.part`.
fn is_unfinished(name: &str) -> bool {
    name.starts_with('.') || [".tmp", ".part"].iter().any(|end| name.ends_with(end))
}

/// Lists a folder without unfinished files, sorted by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failure = Failure::io_at("read the folder", folder);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(&failure)? {
        let entry = entry.map_err(&failure)?;
        if !is_unfinished(&entry.file_name().to_string_lossy()) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// The endings of readable files. They are removed from the name, while any other dot is part of the name.
const ENDINGS: [&str; 5] = [".zst", ".jsonl", ".json", ".db", ".snapshot"];

/// Returns the name of the cluster for a file, or of the group for a folder. Underscores replace whitespace and control
/// characters.
fn name_of(path: &Path) -> String {
    let mut name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    // In the order of ENDINGS, so that `a.jsonl.zst` loses both of its endings.
    for ending in ENDINGS {
        if let Some(stem) = name.strip_suffix(ending)
            && !stem.is_empty()
        {
            name = stem.to_owned();
        }
    }
    name.replace(|c: char| c.is_whitespace() || c.is_control(), "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_names_are_file_names_without_endings() {
        let name = |path: &str| name_of(Path::new(path));
        assert_eq!(name("a/prod.eu-1.jsonl.zst"), "prod.eu-1");
        assert_eq!(
            ["x.json", "y.db", ".zst", "dir"].map(name),
            ["x", "y", ".zst", "dir"]
        );
        assert_eq!(name("prod eu\u{7}.json"), "prod_eu_");
    }

    #[test]
    fn exported_files_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        for (group, name) in [
            (None, ".."),
            (None, "."),
            (None, "a.part"),
            (None, "a/../b"),
            (Some(".."), ".c"),
            (Some("x.tmp"), "x.tmp/d"),
        ] {
            let cluster = cluster_of_file(PathBuf::from("x"), None, &unattended());
            let cluster = Named {
                name: name.into(),
                group: group.map(str::to_owned),
                ..cluster
            };
            let path = place(folder.path(), &cluster, ".jsonl");
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let read = fleet(folder.path()).unwrap().clusters;
        let names: Vec<&str> = read.iter().map(|cluster| cluster.name.as_str()).collect();
        assert_eq!(names, ["_", "__", "a_.._b", "a_part", "__/_c", "x_tmp/d"]);
    }
}
