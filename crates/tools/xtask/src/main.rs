//! Development tasks of calipam, run as `cargo xtask <task>`.
//!
//! A task is one file with one [`Task`] in it, listed in [`TASKS`].

mod bench;
mod charts;
mod demo;
mod dist;
mod docs;
mod env;
mod explore;
mod failure;
mod foreign;
mod generate;
mod help;
mod left_out;
mod mutants;
mod protoc;
mod publisher;
mod replay;
mod servers;
mod soak;
mod step;
mod task;
mod test;
// Shared with the tests, which look for the servers where this program puts them.
#[expect(unreachable_pub, reason = "public in testkit")]
#[path = "../../testkit/src/servers/tool.rs"]
mod tool;
mod tools;
mod workspace;
mod zig;

use std::process::ExitCode;

use failure::Failure;
use task::Task;

/// Every task, in the order in which `cargo xtask help` lists them.
const TASKS: &[Task] = &[
    demo::TASK,
    test::TASK,
    soak::TASK,
    explore::TASK,
    mutants::TASK,
    replay::TASK,
    bench::TASK,
    env::TASK,
    generate::TASK,
    docs::TASK,
    dist::TASK,
    dist::IMAGE,
];

/// The exit code of a task that failed.
const FAILED: u8 = 1;

/// The exit code of an invalid command line.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        eprint!("{}", help::overview(TASKS));
        return ExitCode::from(USAGE);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        return show_help(rest.first().map(String::as_str));
    }
    let Some(task) = task::find(TASKS, name) else { return unknown(name) };
    match rest.split_first() {
        Some((first, _)) if matches!(first.as_str(), "--help" | "-h") => show_help(Some(name)),
        // What follows `--` is for the program that the task runs.
        Some((first, rest)) if first == "--" => finish(start(task, rest)),
        _ => finish(start(task, rest)),
    }
}

fn show_help(task: Option<&str>) -> ExitCode {
    match task.map(|name| (name, task::find(TASKS, name))) {
        None => print!("{}", help::overview(TASKS)),
        Some((_, Some(task))) => print!("{}", help::details(task)),
        Some((name, None)) => return unknown(name),
    }
    ExitCode::SUCCESS
}

fn unknown(name: &str) -> ExitCode {
    eprintln!("error: there is no task `{name}`\nhint: `cargo xtask help` lists the tasks");
    ExitCode::from(USAGE)
}

fn start(task: &Task, arguments: &[String]) -> Result<(), Failure> {
    workspace::enter()?;
    (task.run)(arguments)
}

fn finish(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(FAILED)
        }
    }
}
