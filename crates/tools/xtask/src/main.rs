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
mod generate;
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

/// The exit code of an invalid command line.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, wants_help, rest) = match words[..] {
        [] => {
            eprint!("{}", task::overview(TASKS));
            return ExitCode::from(USAGE);
        }
        ["help" | "--help" | "-h"] => {
            print!("{}", task::overview(TASKS));
            return ExitCode::SUCCESS;
        }
        ["help" | "--help" | "-h", name, ..] | [name, "--help" | "-h", ..] => (name, true, &[][..]),
        // The arguments after `--` are for the program that the task runs.
        [name, "--", ..] => (name, false, &arguments[2..]),
        [name, ..] => (name, false, &arguments[1..]),
    };
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprintln!("error: there is no task `{name}`\nhint: `cargo xtask help` lists the tasks");
        return ExitCode::from(USAGE);
    };
    if wants_help {
        print!("{}", task::details(task));
        return ExitCode::SUCCESS;
    }
    match workspace::enter().and_then(|()| (task.run)(rest)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
