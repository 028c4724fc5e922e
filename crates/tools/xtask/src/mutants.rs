//! `cargo xtask mutants`.

use std::fs;
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::task::Task;
use crate::{protoc, step, workspace};

/// The files that are mutated.
const FILES: &[&str] = &[
    "crates/check/src/**",
    "crates/plan/src/**",
    "crates/repair/src/**",
    "crates/assign/src/**",
    "crates/model/src/block/**",
];

pub(crate) const TASK: Task = Task {
    name: "mutants",
    arguments: "[--sample N] [--seed S]",
    summary: "Change the code in small ways, and see whether tests notice",
    details: "\
Runs cargo-mutants (`cargo install cargo-mutants`) over check, plan, repair,
assign and the block arithmetic of model: it changes one operator or the value
of one function after the other, and runs the unit tests of its crate. All of
them take most of a day; --sample takes N of them by a seed, 1 where none is
named, and those that leave out a field, which cargo-mutants 27.1 does not let
one choose. What it found is in target/mutants.out; docs/safety.md says what
was. The same seed gives the same sample of the same code only.
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    let number = |option: &str, otherwise: u64| {
        let value = arguments.iter().skip_while(|argument| *argument != option).nth(1);
        value.map_or(Ok(otherwise), |value| {
            value.parse().map_err(|_| Failure::new(format!("{option} takes a number, but got `{value}`")))
        })
    };
    let (sample, seed) = (number("--sample", u64::MAX)?, number("--seed", 1)?);

    let mut list = mutants();
    let listed = list.arg("--list").stderr(Stdio::inherit()).output();
    let listed = listed.map_err(|error| Failure::new(format!("cannot run cargo-mutants: {error}")))?;
    let text = String::from_utf8_lossy(&listed.stdout);
    // cargo-mutants 27.1 ignores filters for these mutants, and always runs all of them.
    let is_chosen = |name: &&str| !name.contains(": delete field ");
    let mut names: Vec<&str> = text.lines().filter(is_chosen).collect();
    let all = names.len();
    shuffle(&mut names, seed);
    names.truncate(usize::try_from(sample).unwrap_or(usize::MAX));
    names.sort_unstable();
    step::announce(&format!("{} of {all} mutants, seed {seed}", names.len()));

    let chosen: Vec<String> = names.iter().map(|name| format!("{name}\n")).collect();
    let path = workspace::root().join("target/mutants-chosen.txt");
    fs::write(&path, chosen.concat()).map_err(|error| Failure::io("write", &path, &error))?;
    let mut test = mutants();
    test.args(["--baseline", "skip", "--timeout", "120", "--output", "target"]);
    test.args(names.iter().flat_map(|name| ["--re".to_owned(), format!("^{}$", escaped(name))]));
    test.args(["--", "--lib"]).envs(protoc::variables()?);
    // A mutant that no test catches does not make this task fail.
    step::announce("Running the tests of each");
    test.status().map(drop).map_err(|error| Failure::new(format!("cannot run cargo-mutants: {error}")))
}

fn mutants() -> Command {
    let mut mutants = workspace::cargo();
    mutants.args(["mutants", "--workspace"]).args(FILES.iter().flat_map(|files| ["--file", files]));
    mutants
}

/// Shuffles with the Fisher-Yates algorithm and random numbers from SplitMix64.
fn shuffle(names: &mut [&str], mut seed: u64) {
    for last in (1..names.len()).rev() {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        names.swap(last, ((number ^ (number >> 31)) % (last as u64 + 1)) as usize);
    }
}

/// Escapes a string for a regular expression.
fn escaped(text: &str) -> String {
    let has_meaning = |c| r"\.+*?()|[]{}^$".contains(c);
    text.chars().map(|c| if has_meaning(c) { format!("\\{c}") } else { c.into() }).collect()
}
