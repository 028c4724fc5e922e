//! `replay [FILE...]`: replays the given traces, or all traces of the project, on a real etcd, with the plugin and the
//! drop-in for calicoctl, which are in the folder of this program. Prints each difference by step and field, and exits
//! with 1 if there is one. A trace that cannot be replayed counts as a difference.

// The future of all operations is nested more deeply than the compiler's default recursion limit allows.
#![recursion_limit = "256"]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use calipam_replay::{Environment, Trace, known, replay, traces};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let mut files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        files = traces(Path::new("."))?;
    }
    let program = std::env::current_exe()?;
    let environment = Environment::start(program.parent().context("this program is in no folder")?).await?;
    let mut differences = 0;
    let mut steps = 0;
    for file in &files {
        let replayed = replay_file(file, &environment).await;
        let (found, its_steps) = replayed.unwrap_or_else(|error| {
            println!("{}: {error:#}", file.display());
            (1, 0)
        });
        differences += found;
        steps += its_steps;
    }
    println!("{} traces, {steps} steps: {differences} differences", files.len());
    Ok(if differences == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Replays a file and prints the result. Returns the number of differences and of steps.
async fn replay_file(file: &Path, environment: &Environment) -> Result<(usize, usize)> {
    let trace = Trace::read(file)?;
    let outcome = replay(&trace, environment, &known()).await?;
    for (step, reason) in &outcome.on_purpose {
        println!("{} step {step} differs on purpose: {reason}", file.display());
    }
    for step in &outcome.other_choices {
        println!(
            "{} step {step}: another choice than Calico's, which is as good",
            file.display()
        );
    }
    for (step, difference) in &outcome.differences {
        println!(
            "{} step {step} ({}): {difference}",
            trace.scenario, trace.steps[*step].op
        );
    }
    Ok((outcome.differences.len(), trace.steps.len()))
}
