//! `replay [--programs FOLDER] [FILE...]`: replays the given traces, or all traces of the project, on a real etcd, with
//! the plugin and the drop-in for calicoctl. Prints each difference by step and field, and exits with 1 if there is
//! one.

// The future of all operations is nested more deeply than the compiler's default recursion limit allows.
#![recursion_limit = "256"]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use calipam_replay::{Environment, KnownDifference, Trace, known, replay, traces};

/// The exit code if something differs or a trace cannot be replayed.
const DIFFERENT: u8 = 1;
/// The exit code of an invalid command line.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let Some((programs, files)) = arguments() else {
        eprintln!("usage: replay [--programs FOLDER] [FILE...]");
        return ExitCode::from(USAGE);
    };
    match run(&programs, &files) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(DIFFERENT),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(DIFFERENT)
        }
    }
}

/// Parses the arguments: the folder of the programs, by default that of this program, and the traces.
fn arguments() -> Option<(PathBuf, Vec<PathBuf>)> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let programs = match arguments.next_if(|first| first == "--programs") {
        Some(_) => arguments.next()?.into(),
        None => std::env::current_exe().ok()?.parent()?.to_owned(),
    };
    Some((programs, arguments.map(PathBuf::from).collect()))
}

/// Replays all files. Returns the number of differences; a trace that cannot be replayed counts as one.
#[tokio::main(flavor = "current_thread")]
async fn run(programs: &Path, files: &[PathBuf]) -> Result<usize> {
    let files = match files {
        [] => traces(Path::new("."))?,
        named => named.to_vec(),
    };
    let environment = Environment::start(programs).await?;
    let known = known();
    let (mut differences, mut steps) = (0, 0);
    for file in &files {
        match replay_file(file, &environment, &known).await {
            Ok((of_file, its_steps)) => {
                differences += of_file;
                steps += its_steps;
            }
            Err(error) => {
                println!("{}: {error:#}", file.display());
                differences += 1;
            }
        }
    }
    println!("{} traces, {steps} steps: {differences} differences", files.len());
    Ok(differences)
}

/// Replays a file and prints the result. Returns the number of differences and of steps.
async fn replay_file(
    file: &Path,
    environment: &Environment,
    known: &[KnownDifference],
) -> Result<(usize, usize)> {
    let trace = Trace::read(file)?;
    let outcome = replay(&trace, environment, known).await?;
    for (step, reason) in &outcome.on_purpose {
        println!("{} step {step} differs on purpose: {reason}", file.display());
    }
    for step in &outcome.other_choices {
        println!("{} step {step}: another choice than Calico's, which is as good", file.display());
    }
    for (step, difference) in &outcome.differences {
        println!("{} step {step} ({}): {difference}", trace.scenario, trace.steps[*step].op);
    }
    Ok((outcome.differences.len(), trace.steps.len()))
}
