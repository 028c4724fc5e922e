//! Guards that are taken out of the code one by one: the explorer has to find each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Deserialize;

const LIST: &str = "crates/tools/explore/mutants.toml";
/// What a build of the explorer needs.
const COPIED: &[&str] = &["crates", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo"];
/// How long one may take to be found.
const MINUTES: &str = "10";
/// The same for the scenario that is named.
const FIRST: &str = "2";

#[derive(Deserialize)]
struct List {
    mutant: Vec<Mutant>,
}

/// A text of a file that is replaced.
#[derive(Deserialize)]
struct Mutant {
    name: String,
    /// Where it is looked for first.
    scenario: Option<String>,
    file: PathBuf,
    old: String,
    new: String,
    /// Another text of the file.
    also: Option<Replacement>,
}

#[derive(Deserialize)]
struct Replacement {
    old: String,
    new: String,
}

/// What became of a mutant.
enum Outcome {
    /// With the scenario.
    Found(String),
    Lives,
    /// It takes longer than anyone wants to wait: it goes on for ever within one step.
    DoesNotEnd,
    /// The list does not fit the code any more.
    NotBuilt,
}

/// Tries mutants in a copy of the checkout, which is the working directory: all of them, or those whose name begins so.
///
/// # Errors
/// Where the list does not fit the code any more, or something cannot be built.
pub(crate) fn run(wanted: Option<&str>) -> Result<bool, String> {
    let list = fs::read_to_string(LIST).map_err(|error| format!("{LIST}: {error}"))?;
    let list: List = toml::from_str(&list).map_err(|error| format!("{LIST}: {error}"))?;
    let copy = Path::new("target/mutants/checkout");
    make_copy(copy).map_err(|error| format!("{}: {error}", copy.display()))?;

    let mutants: Vec<Mutant> = list.mutant.into_iter().filter(|mutant| is_wanted(mutant, wanted)).collect();
    let mut found = 0;
    for mutant in &mutants {
        let begin = Instant::now();
        let outcome = try_one(copy, mutant).map_err(|error| format!("{}: {error}", mutant.name))?;
        let told = match &outcome {
            Outcome::Found(scenario) => scenario,
            Outcome::Lives => "NOT FOUND",
            Outcome::DoesNotEnd => "does not end",
            Outcome::NotBuilt => "CANNOT BE BUILT",
        };
        found += usize::from(matches!(outcome, Outcome::Found(_) | Outcome::DoesNotEnd));
        println!("{:<44} {told} ({:.0} s with its build)", mutant.name, begin.elapsed().as_secs_f64());
    }
    println!("{found} of {} found", mutants.len());
    Ok(found == mutants.len() && found > 0)
}

fn is_wanted(mutant: &Mutant, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| mutant.name.starts_with(wanted))
}

fn make_copy(copy: &Path) -> std::io::Result<()> {
    fs::create_dir_all(copy)?;
    let present = COPIED.iter().filter(|path| Path::new(path).exists());
    let status = Command::new("cp").arg("-a").args(present).arg(copy).status()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other("cp failed")) }
}

fn try_one(copy: &Path, mutant: &Mutant) -> Result<Outcome, String> {
    let told = |error: std::io::Error| format!("{}: {error}", mutant.file.display());
    let path = copy.join(&mutant.file);
    let sound = fs::read_to_string(&path).map_err(told)?;
    let also = mutant.also.iter().map(|also| (&also.old, &also.new));
    let mut damaged = sound.clone();
    for (old, new) in also.chain([(&mutant.old, &mutant.new)]) {
        if sound.matches(old).count() != 1 {
            return Err(format!("{} has its text not just once", mutant.file.display()));
        }
        damaged = damaged.replace(old, new);
    }
    fs::write(&path, damaged).map_err(told)?;
    let outcome = explore(copy, mutant.scenario.as_deref());
    fs::write(&path, sound).map_err(told)?;
    outcome
}

fn explore(copy: &Path, first: Option<&str>) -> Result<Outcome, String> {
    let target = fs::canonicalize("target/mutants").map_err(|error| error.to_string())?;
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--profile", "explore", "--package", "calipam-explore"]);
    build.current_dir(copy).env("CARGO_TARGET_DIR", &target).env("RUSTFLAGS", "--cap-lints=allow");
    let built = build.status().map_err(|error| format!("cargo: {error}"))?;
    if !built.success() {
        return Ok(Outcome::NotBuilt);
    }

    let binary = target.join("explore/explore");
    if let Some(scenario) = first {
        match explored(&binary, FIRST, &[scenario])? {
            Outcome::Lives => {}
            found => return Ok(found),
        }
    }
    explored(&binary, MINUTES, &[])
}

/// What comes of exploring these scenarios, or all.
fn explored(binary: &Path, minutes: &str, scenarios: &[&str]) -> Result<Outcome, String> {
    let mut explore = Command::new("timeout");
    explore.arg("900").arg(binary).args(["--minutes", minutes]).args(scenarios);
    let explored = explore.stderr(Stdio::null()).output().map_err(|error| format!("timeout: {error}"))?;
    let said = String::from_utf8_lossy(&explored.stdout);
    match explored.status.code() {
        Some(0) => Ok(Outcome::Lives),
        Some(1) => {
            let script = said.lines().find_map(|line| line.strip_prefix("scenario ")).unwrap_or_default();
            let what = said.lines().last().unwrap_or_default();
            Ok(Outcome::Found(format!("{script}: {}", what.trim_start_matches("# "))))
        }
        Some(124) => Ok(Outcome::DoesNotEnd),
        _ => Err(format!("the explorer failed: {said}")),
    }
}
