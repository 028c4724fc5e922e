//! Mutants: copies of the code from which one guard is removed. The explorer must find a violation in each mutant.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{fs, io};

use serde::Deserialize;

const LIST: &str = "crates/tools/explore/mutants.toml";
/// The files that a build of the explorer needs.
const COPIED: &[&str] = &["crates", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo"];
/// A placeholder in `mutants.toml`, and the variable that names the mutant to try. The placeholder is true for this
/// mutant.
const SWITCH: &str = "MUTANT";
/// Time limit, in minutes, for finding a mutant.
const MINUTES: &str = "10";
/// Time limit, in minutes, for finding a mutant in the scenario that its entry names.
const FIRST: &str = "2";

#[derive(Deserialize)]
struct List {
    mutant: Vec<Mutant>,
}

/// A replacement of text in a file.
#[derive(Deserialize)]
struct Mutant {
    name: String,
    /// The scenario that is tried first.
    scenario: Option<String>,
    file: PathBuf,
    old: String,
    new: String,
    /// A second replacement in the same file.
    also: Option<Replacement>,
}

#[derive(Deserialize)]
struct Replacement {
    old: String,
    new: String,
}

/// Tries mutants in a copy of the checkout, which is the working directory. `wanted` selects those whose names begin
/// with one of its comma-separated prefixes; `None` selects all.
///
/// # Errors Returns an error if the list no longer matches the code.
pub(crate) fn run(wanted: Option<&str>) -> Result<bool, String> {
    let list: List = toml::from_str(&read(Path::new(LIST))?).map_err(|error| format!("{LIST}: {error}"))?;
    let copy = Path::new("target/mutants/checkout");
    make_copy(copy).map_err(|error| told(copy, error))?;

    let mut left: Vec<Mutant> = list.mutant.into_iter().filter(|mutant| is_wanted(mutant, wanted)).collect();
    let (all, mut found) = (left.len(), 0);
    while !left.is_empty() {
        let (mut files, mut together, mut later) = (BTreeMap::new(), Vec::new(), Vec::new());
        for mutant in left {
            let group = if add(&mutant, &mut files)? { &mut together } else { &mut later };
            group.push(mutant);
        }
        if let Some(mutant) = later.first().filter(|_| together.is_empty()) {
            return Err(format!("{}: {} has its text not just once", mutant.name, mutant.file.display()));
        }
        found += try_together(copy, &together)?;
        left = later;
    }
    println!("{found} of {all} found");
    Ok(found == all && found > 0)
}

fn told(file: &Path, error: io::Error) -> String {
    format!("{}: {error}", file.display())
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| told(file, error))
}

/// Adds a mutant to changed files. Returns false if its file does not contain the text that the mutant replaces exactly
/// once, since an earlier mutant replaces it.
fn add(mutant: &Mutant, files: &mut BTreeMap<PathBuf, String>) -> Result<bool, String> {
    let Mutant { name, file, old, new, also, .. } = mutant;
    let mut text = files.get(file).cloned().map_or_else(|| read(file), Ok)?;
    let switch = format!("std::env::var_os(\"{SWITCH}\").is_some_and(|on| on == \"{name}\")");
    for (old, new) in also.iter().map(|also| (&also.old, &also.new)).chain([(old, new)]) {
        if text.matches(old).count() != 1 {
            return Ok(false);
        }
        text = text.replace(old, &new.replace(SWITCH, &switch));
    }
    files.insert(file.clone(), text);
    Ok(true)
}

/// Builds mutants together and tries each. If the build fails, does the same for each half of them. Returns the number
/// of mutants found.
fn try_together(copy: &Path, mutants: &[Mutant]) -> Result<usize, String> {
    let mut files = BTreeMap::new();
    for mutant in mutants {
        add(mutant, &mut files)?;
    }
    for (file, text) in &files {
        fs::write(copy.join(file), text).map_err(|error| told(file, error))?;
    }
    let restore = || {
        files
            .keys()
            .try_for_each(|file| fs::write(copy.join(file), read(file)?).map_err(|error| told(file, error)))
    };
    let Some(binary) = build(copy)? else {
        restore()?;
        if let [mutant] = mutants {
            println!("{:<44} CANNOT BE BUILT", mutant.name);
            return Ok(0);
        }
        let (first, second) = mutants.split_at(mutants.len() / 2);
        return Ok(try_together(copy, first)? + try_together(copy, second)?);
    };
    let mut found = 0;
    for mutant in mutants {
        let begin = Instant::now();
        let first = match &mutant.scenario {
            Some(scenario) => explored(&binary, &mutant.name, FIRST, &[scenario])?,
            None => None,
        };
        let outcome =
            first.map_or_else(|| explored(&binary, &mutant.name, MINUTES, &[]), |first| Ok(Some(first)))?;
        found += usize::from(outcome.is_some());
        let what = outcome.unwrap_or_else(|| "NOT FOUND".to_owned());
        println!("{:<44} {what} ({:.0} s)", mutant.name, begin.elapsed().as_secs_f64());
    }
    restore()?;
    Ok(found)
}

/// Builds the explorer in the copy. Returns `None` if the build fails.
fn build(copy: &Path) -> Result<Option<PathBuf>, String> {
    let target = fs::canonicalize("target/mutants").map_err(|error| error.to_string())?;
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--profile", "explore", "--package", "calipam-explore"]);
    build.current_dir(copy).env("CARGO_TARGET_DIR", &target);
    let built = build.status().map_err(|error| format!("cargo: {error}"))?;
    Ok(built.success().then(|| target.join("explore/explore")))
}

fn is_wanted(mutant: &Mutant, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| wanted.split(',').any(|name| mutant.name.starts_with(name)))
}

fn make_copy(copy: &Path) -> io::Result<()> {
    fs::create_dir_all(copy)?;
    let present = COPIED.iter().filter(|path| Path::new(path).exists());
    let status = Command::new("cp").arg("-a").args(present).arg(copy).status()?;
    if !status.success() {
        return Err(io::Error::other("cp failed"));
    }
    // A mutant may ignore the results of calls.
    let manifest = copy.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    fs::write(&manifest, text.replace("unused_must_use = \"deny\"", "unused_must_use = \"allow\""))
}

/// Explores the named scenarios, or all if none is named. Returns the scenario that finds the mutant; `None` if the
/// mutant survives. A mutant with an endless loop is also found.
fn explored(binary: &Path, name: &str, minutes: &str, scenarios: &[&str]) -> Result<Option<String>, String> {
    let mut explore = Command::new("timeout");
    explore.env(SWITCH, name).arg("900").arg(binary).args(["--minutes", minutes]).args(scenarios);
    let explored = explore.stderr(Stdio::null()).output().map_err(|error| format!("timeout: {error}"))?;
    let said = String::from_utf8_lossy(&explored.stdout);
    match explored.status.code() {
        Some(0) => Ok(None),
        Some(1) => {
            let script = said.lines().find_map(|line| line.strip_prefix("scenario ")).unwrap_or_default();
            let what = said.lines().last().unwrap_or_default();
            Ok(Some(format!("{script}: {}", what.trim_start_matches("# "))))
        }
        Some(124) => Ok(Some("does not end".to_owned())),
        _ => Err(format!("the explorer failed: {said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the list, since a mutant whose text is missing is never tried.
    #[test]
    fn every_mutant_has_its_text_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let list: List = toml::from_str(&fs::read_to_string(root.join(LIST)).unwrap()).unwrap();
        for Mutant { name, file, old, also, .. } in list.mutant {
            let text = fs::read_to_string(root.join(&file)).unwrap();
            for old in also.iter().map(|also| &also.old).chain([&old]) {
                assert_eq!(text.matches(old.as_str()).count(), 1, "{name}: {}", file.display());
            }
        }
    }
}
