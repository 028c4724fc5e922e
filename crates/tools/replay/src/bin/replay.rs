//! `replay [--programs FOLDER] [FILE...]`: replays the given traces, or all traces of the project, on a real etcd, with
//! the plugin and the drop-in for calicoctl. Prints each difference by step and field, and exits with 1 if there is
//! one.

// The future of all operations is nested more deeply than the compiler's default recursion limit allows.
#![recursion_limit = "256"]

#[path = "replay/etcd.rs"]
mod etcd;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use calipam_replay::{Outcome, Trace, known, replay, traces};

use self::etcd::EtcdEnvironment;

/// The exit code if something differs or a trace cannot be replayed.
const DIFFERENT: u8 = 1;
/// The exit code of an invalid command line.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let Some((programs, files)) = arguments() else {
        eprintln!("usage: replay [--programs FOLDER] [FILE...]");
        return ExitCode::from(USAGE);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(programs, &files)),
        Err(error) => Err(error.to_string()),
    };
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(DIFFERENT),
        Err(error) => {
            eprintln!("error: {error}");
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
async fn run(programs: PathBuf, files: &[PathBuf]) -> Result<usize, String> {
    let files = match files {
        [] => traces(Path::new(".")).map_err(|error| format!("tests/traces: {error}"))?,
        named => named.to_vec(),
    };
    let environment = EtcdEnvironment::start(programs).await?;
    let known = known();
    let (mut differences, mut steps) = (0, 0);
    for file in &files {
        let outcome = match Trace::read(file) {
            Ok(trace) => {
                steps += trace.steps.len();
                let replayed = replay(&trace, &environment, &known).await;
                replayed.map_err(|error| format!("{}: {error}", file.display()))
            }
            Err(error) => Err(error.to_string()),
        };
        match outcome {
            Ok(outcome) => {
                print(file, &outcome);
                differences += outcome.differences.len();
            }
            Err(error) => {
                println!("{error}");
                differences += 1;
            }
        }
    }
    println!("{} traces, {steps} steps: {differences} differences", files.len());
    Ok(differences)
}

fn print(file: &Path, outcome: &Outcome) {
    for (step, reason) in &outcome.on_purpose {
        println!("{} step {step} differs on purpose: {reason}", file.display());
    }
    for step in &outcome.other_choices {
        println!("{} step {step}: another choice than Calico's, which is as good", file.display());
    }
    for difference in &outcome.differences {
        println!("{difference}");
    }
}
