//! Development tasks of calipam, run as `cargo xtask <task>`.
//!
//! A task is one file with a struct of its arguments, whose comment is its help.

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
mod lender;
mod mutants;
mod protoc;
mod publisher;
mod replay;
mod servers;
mod soak;
mod step;
mod test;
// Shared with the tests, which look for the servers where this program puts them.
#[expect(unreachable_pub, reason = "public in testkit")]
#[path = "../../testkit/src/servers/tool.rs"]
mod tool;
mod tools;
mod workspace;
mod zig;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development tasks of calipam. Run them from anywhere in the checkout.
#[derive(Parser)]
#[command(
    bin_name = "cargo xtask",
    after_help = "`cargo xtask help <task>` says what a task does and needs.\n\
                  New here? `cargo xtask demo` shows what calipam finds in an example cluster."
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Demo(demo::Demo),
    Test(test::Test),
    Soak(soak::Soak),
    Explore(explore::Explore),
    Mutants(mutants::Mutants),
    Replay(replay::Replay),
    Bench(bench::Bench),
    Env(env::Env),
    Generate(generate::Generate),
    Docs(docs::Docs),
    Dist(dist::Dist),
    Image(dist::Image),
}

fn main() -> ExitCode {
    let Arguments { task } = Arguments::parse();
    let done = workspace::enter().and_then(|()| match task {
        Task::Demo(_) => demo::run(),
        Task::Test(task) => test::run(&task),
        Task::Soak(task) => soak::run(&task),
        Task::Explore(task) => explore::run(&task),
        Task::Mutants(task) => mutants::run(&task),
        Task::Replay(task) => replay::run(&task),
        Task::Bench(task) => bench::run(&task),
        Task::Env(task) => env::run(&task),
        Task::Generate(_) => generate::run(),
        Task::Docs(_) => docs::run(),
        Task::Dist(task) => dist::run(&task),
        Task::Image(task) => dist::run_image(&task),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn words(line: &str) -> impl Iterator<Item = &str> {
        ["xtask"].into_iter().chain(line.split(' '))
    }

    #[test]
    fn every_task_is_listed_and_explained_in_lines_that_fit_a_terminal_of_eighty_columns() {
        let mut command = Arguments::command();
        command.build();
        let overview = command.render_long_help().to_string();
        let mut texts = vec![overview.clone()];
        for task in command
            .get_subcommands_mut()
            .filter(|task| task.get_name() != "help")
        {
            let (listed, own) = (
                format!("\n  {} ", task.get_name()),
                task.render_long_help().to_string(),
            );
            assert!(overview.contains(&listed), "{overview}");
            assert!(
                own.contains(&format!("Usage: cargo xtask {}", task.get_name())),
                "{own}"
            );
            assert!(own.lines().count() > 10, "{own}");
            texts.push(own);
        }
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn options_are_read_in_both_forms_and_the_rest_is_passed_on() {
        let task = |line: &str| Arguments::try_parse_from(words(line)).map(|arguments| arguments.task);
        let images = [
            "image --programs=p --check --output out",
            "image --programs p --output=out --check",
        ];
        let [first, second] = images.map(|line| match task(line) {
            Ok(Task::Image(image)) => image,
            _ => panic!("{line}"),
        });
        assert_eq!(first, second);
        for line in [
            "dist --output",
            "dist --output=out --colour red",
            "image --twice",
            "demo now",
            "env builds",
        ] {
            assert!(task(line).is_err(), "{line}");
        }
        for line in [
            "test -- --package x a -- --nocapture",
            "test --package x a -- --nocapture",
        ] {
            let Ok(Task::Test(test)) = task(line) else {
                panic!("{line}")
            };
            assert_eq!(test.arguments.join(" "), "--package x a -- --nocapture");
        }
        let Ok(Task::Explore(explore)) = task("explore --minutes 5 --keep-going") else {
            panic!()
        };
        assert_eq!(explore.arguments, ["--minutes", "5", "--keep-going"]);
        let Ok(Task::Mutants(mutants)) = task("mutants --sample 300 --jobs 2") else {
            panic!()
        };
        assert_eq!(
            (mutants.sample.map(usize::from), mutants.options.join(" ")),
            (Some(300), "--jobs 2".to_owned())
        );
        assert!(task("mutants --sample none").is_err());
    }
}
