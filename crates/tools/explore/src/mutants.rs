//! Mutants: copies of the code from which one guard is removed. The explorer must find a violation in each mutant.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

const LIST: &str = "crates/tools/explore/mutants.toml";
/// The files that a build of the explorer needs.
const COPIED: [&str; 5] = [
    "crates",
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
    ".cargo",
];
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

/// Replacements of text in a file.
#[derive(Deserialize)]
struct Mutant {
    name: String,
    /// The scenario that is tried first.
    scenario: String,
    file: PathBuf,
    #[serde(flatten)]
    main: Replacement,
    /// A second replacement.
    also: Option<SecondReplacement>,
}

#[derive(Deserialize)]
struct SecondReplacement {
    /// The file; `None` for that of the mutant.
    file: Option<PathBuf>,
    #[serde(flatten)]
    replacement: Replacement,
}

#[derive(Deserialize)]
struct Replacement {
    old: String,
    new: String,
}

/// Tries mutants in a copy of the checkout, which is the working directory. `wanted` contains prefixes of the names of
/// the mutants to try; if it is empty, tries all. Mutants are built together unless they replace the same text.
///
/// # Errors
/// Returns an error if the list no longer matches the code.
pub(crate) fn run(wanted: &[String]) -> Result<bool> {
    let list: List = toml::from_str(&fs::read_to_string(LIST).context(LIST)?).context(LIST)?;
    let is_wanted = |mutant: &Mutant| wanted.iter().any(|name| mutant.name.starts_with(name));
    let copy = Path::new("target/mutants/checkout");
    make_copy(copy)?;

    let mut left = list.mutant;
    left.retain(|mutant| wanted.is_empty() || is_wanted(mutant));
    let all = left.len();
    let mut found = 0;
    while !left.is_empty() {
        let mut together = Vec::new();
        let mut later = Vec::new();
        for mutant in left {
            let group = if mutant.add_to(copy)? {
                &mut together
            } else {
                &mut later
            };
            group.push(mutant);
        }
        ensure!(
            !together.is_empty(),
            "{} has its text not just once",
            later[0].name
        );
        let names: Vec<&str> = together.iter().map(|mutant| mutant.name.as_str()).collect();
        let binary = build(copy)
            .with_context(|| format!("these mutants cannot be built together: {}", names.join(", ")))?;
        for mutant in &together {
            found += usize::from(mutant.is_found(&binary)?);
        }
        for (file, _) in together.iter().flat_map(Mutant::replacements) {
            fs::copy(file, copy.join(file))?;
        }
        left = later;
    }
    println!("{found} of {all} found");
    Ok(found == all && found > 0)
}

impl Mutant {
    /// Returns each replacement with its file.
    fn replacements(&self) -> Vec<(&Path, &Replacement)> {
        let mut replacements = vec![(self.file.as_path(), &self.main)];
        if let Some(SecondReplacement { file, replacement }) = &self.also {
            replacements.push((file.as_deref().unwrap_or(&self.file), replacement));
        }
        replacements
    }

    /// Changes the mutant's files in a copy of the checkout. Returns false, and changes nothing, if a file does not
    /// contain the text that the mutant replaces exactly once, since an earlier mutant replaces it.
    fn add_to(&self, copy: &Path) -> Result<bool> {
        let switch = format!(
            "std::env::var_os(\"{SWITCH}\").is_some_and(|on| on == \"{}\")",
            self.name
        );
        let mut changed: BTreeMap<PathBuf, String> = BTreeMap::new();
        for (file, Replacement { old, new }) in self.replacements() {
            let path = copy.join(file);
            let text = match changed.remove(&path) {
                Some(text) => text,
                None => fs::read_to_string(&path)?,
            };
            if text.matches(old).count() != 1 {
                return Ok(false);
            }
            changed.insert(path, text.replace(old, &new.replace(SWITCH, &switch)));
        }
        for (path, text) in changed {
            fs::write(path, text)?;
        }
        Ok(true)
    }

    /// Tries the mutant, first in the scenario that its entry names.
    fn is_found(&self, binary: &Path) -> Result<bool> {
        let begin = Instant::now();
        let mut found = explored(binary, &self.name, FIRST, &[&self.scenario])?;
        if found.is_none() {
            found = explored(binary, &self.name, MINUTES, &[])?;
        }
        let what = found.as_deref().unwrap_or("NOT FOUND");
        println!(
            "{:<44} {what} ({:.0} s)",
            self.name,
            begin.elapsed().as_secs_f64()
        );
        Ok(found.is_some())
    }
}

/// Builds the explorer in the copy.
fn build(copy: &Path) -> Result<PathBuf> {
    let target = fs::canonicalize("target/mutants")?;
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args([
        "build",
        "--quiet",
        "--profile",
        "explore",
        "--package",
        "calipam-explore",
    ]);
    build.current_dir(copy).env("CARGO_TARGET_DIR", &target);
    let built = build.status().context("cargo")?;
    ensure!(built.success(), "cargo ended with {built}");
    Ok(target.join("explore/explore"))
}

fn make_copy(copy: &Path) -> Result<()> {
    fs::create_dir_all(copy)?;
    let present = COPIED.iter().filter(|path| Path::new(path).exists());
    let copied = Command::new("cp").arg("-a").args(present).arg(copy).status()?;
    ensure!(
        copied.success(),
        "the checkout cannot be copied to {}",
        copy.display()
    );
    // A mutant may ignore the results of calls.
    let manifest = copy.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    fs::write(
        manifest,
        text.replace("unused_must_use = \"deny\"", "unused_must_use = \"allow\""),
    )?;
    Ok(())
}

/// Explores the named scenarios, or all if none is named. Returns the scenario that finds the mutant; `None` if the
/// mutant survives. A mutant with an endless loop is also found.
fn explored(binary: &Path, name: &str, minutes: &str, scenarios: &[&str]) -> Result<Option<String>> {
    let mut explore = Command::new("timeout");
    explore
        .env(SWITCH, name)
        .arg("900")
        .arg(binary)
        .args(["--minutes", minutes])
        .args(scenarios);
    explore.current_dir("target/mutants");
    let explored = explore.stderr(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&explored.stdout);
    Ok(match explored.status.code() {
        Some(0) => None,
        Some(1) => {
            let script = said
                .lines()
                .find_map(|line| line.strip_prefix("scenario "))
                .unwrap_or_default();
            let what = said
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix("# "))
                .unwrap_or_default();
            Some(format!("{script}: {what}"))
        }
        Some(124) => Some("does not end".to_owned()),
        _ => bail!("the explorer failed: {said}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the list, since a mutant whose text is missing is never tried.
    #[test]
    fn every_mutant_has_its_text_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let list: List = toml::from_str(&fs::read_to_string(root.join(LIST)).unwrap()).unwrap();
        for mutant in list.mutant {
            for (file, Replacement { old, .. }) in mutant.replacements() {
                let text = fs::read_to_string(root.join(file)).unwrap();
                let times = text.matches(old.as_str()).count();
                assert_eq!(times, 1, "{}: {}", mutant.name, file.display());
            }
        }
    }
}
