//! Mutants: copies of the code from which one guard is removed. The explorer must find a violation in each mutant.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

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

/// The result for a mutant.
enum Outcome {
    /// The scenario that found the mutant.
    Found(String),
    Survived,
    /// The mutant caused an endless loop: a step took too long.
    DoesNotEnd,
}

/// Tries mutants in a copy of the checkout, which is the working directory. `wanted` selects those whose names begin
/// with one of its comma-separated prefixes; `None` selects all.
///
/// # Errors Returns an error if the list no longer matches the code.
pub(crate) fn run(wanted: Option<&str>) -> Result<bool, String> {
    let list = fs::read_to_string(LIST).map_err(|error| format!("{LIST}: {error}"))?;
    let list: List = toml::from_str(&list).map_err(|error| format!("{LIST}: {error}"))?;
    let copy = Path::new("target/mutants/checkout");
    make_copy(copy).map_err(|error| format!("{}: {error}", copy.display()))?;

    let mut left: Vec<Mutant> = list.mutant.into_iter().filter(|mutant| is_wanted(mutant, wanted)).collect();
    let (all, mut found) = (left.len(), 0);
    while !left.is_empty() {
        let together;
        (together, left) = fitting(left)?;
        found += try_together(copy, &together)?;
    }
    println!("{found} of {all} found");
    Ok(found == all && found > 0)
}

/// Splits mutants into those that can be built together, and those whose text an earlier mutant replaces.
fn fitting(mutants: Vec<Mutant>) -> Result<(Vec<Mutant>, Vec<Mutant>), String> {
    let (mut together, mut left, mut made) = (Vec::new(), Vec::new(), ChangedFiles::default());
    for mutant in mutants {
        let group = if made.add(&mutant)? { &mut together } else { &mut left };
        group.push(mutant);
    }
    match left.first().filter(|_| together.is_empty()) {
        Some(mutant) => Err(format!("{}: {} has its text not just once", mutant.name, mutant.file.display())),
        None => Ok((together, left)),
    }
}

/// Changed files with their contents.
#[derive(Default)]
struct ChangedFiles(BTreeMap<PathBuf, String>);

impl ChangedFiles {
    /// Adds a mutant. Returns false if the file does not contain the text that the mutant replaces exactly once.
    fn add(&mut self, mutant: &Mutant) -> Result<bool, String> {
        let Mutant { name, file, old, new, also, .. } = mutant;
        let mut text = match self.0.get(file) {
            Some(text) => text.clone(),
            None => fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?,
        };
        let switch = format!("std::env::var_os(\"{SWITCH}\").is_some_and(|on| on == \"{name}\")");
        for (old, new) in also.iter().map(|also| (&also.old, &also.new)).chain([(old, new)]) {
            if text.matches(old).count() != 1 {
                return Ok(false);
            }
            text = text.replace(old, &new.replace(SWITCH, &switch));
        }
        self.0.insert(file.clone(), text);
        Ok(true)
    }
}

/// Builds mutants together and tries each. If the build fails, does the same for each half of them. Returns the number
/// of mutants found.
fn try_together(copy: &Path, mutants: &[Mutant]) -> Result<usize, String> {
    let told = |file: &Path, error: std::io::Error| format!("{}: {error}", file.display());
    let mut made = ChangedFiles::default();
    for mutant in mutants {
        made.add(mutant)?;
    }
    for (file, text) in &made.0 {
        fs::write(copy.join(file), text).map_err(|error| told(file, error))?;
    }
    let binary = build(copy)?;
    let mut found = 0;
    for mutant in mutants.iter().filter(|_| binary.is_some()) {
        found += usize::from(try_one(binary.as_deref().unwrap_or(copy), mutant)?);
    }
    for file in made.0.keys() {
        let sound = fs::read_to_string(file).map_err(|error| told(file, error))?;
        fs::write(copy.join(file), sound).map_err(|error| told(file, error))?;
    }
    match (binary, mutants) {
        (None, [mutant]) => println!("{:<44} CANNOT BE BUILT", mutant.name),
        (None, mutants) => {
            let (first, second) = mutants.split_at(mutants.len() / 2);
            return Ok(try_together(copy, first)? + try_together(copy, second)?);
        }
        (Some(_), _) => {}
    }
    Ok(found)
}

/// Returns true if the mutant is found.
fn try_one(binary: &Path, mutant: &Mutant) -> Result<bool, String> {
    let begin = Instant::now();
    let explored = |minutes, scenarios: &[&str]| explored(binary, &mutant.name, minutes, scenarios);
    let first = match &mutant.scenario {
        Some(scenario) => explored(FIRST, &[scenario])?,
        None => Outcome::Survived,
    };
    let outcome = match first {
        Outcome::Survived => explored(MINUTES, &[])?,
        found => found,
    };
    let told = match &outcome {
        Outcome::Found(scenario) => scenario,
        Outcome::Survived => "NOT FOUND",
        Outcome::DoesNotEnd => "does not end",
    };
    println!("{:<44} {told} ({:.0} s)", mutant.name, begin.elapsed().as_secs_f64());
    Ok(!matches!(outcome, Outcome::Survived))
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

fn make_copy(copy: &Path) -> std::io::Result<()> {
    fs::create_dir_all(copy)?;
    let present = COPIED.iter().filter(|path| Path::new(path).exists());
    let status = Command::new("cp").arg("-a").args(present).arg(copy).status()?;
    if !status.success() {
        return Err(std::io::Error::other("cp failed"));
    }
    // A mutant may ignore the results of calls.
    let manifest = copy.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    fs::write(&manifest, text.replace("unused_must_use = \"deny\"", "unused_must_use = \"allow\""))
}

/// Explores the named scenarios, or all if none is named, and returns the result.
fn explored(binary: &Path, name: &str, minutes: &str, scenarios: &[&str]) -> Result<Outcome, String> {
    let mut explore = Command::new("timeout");
    explore.env(SWITCH, name).arg("900").arg(binary).args(["--minutes", minutes]).args(scenarios);
    let explored = explore.stderr(Stdio::null()).output().map_err(|error| format!("timeout: {error}"))?;
    let said = String::from_utf8_lossy(&explored.stdout);
    match explored.status.code() {
        Some(0) => Ok(Outcome::Survived),
        Some(1) => {
            let script = said.lines().find_map(|line| line.strip_prefix("scenario ")).unwrap_or_default();
            let what = said.lines().last().unwrap_or_default();
            Ok(Outcome::Found(format!("{script}: {}", what.trim_start_matches("# "))))
        }
        Some(124) => Ok(Outcome::DoesNotEnd),
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
