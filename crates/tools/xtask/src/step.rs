//! Announces, runs and times a step of a task, on standard error.

use std::iter;
use std::path::Path;
use std::process::{Command, ExitStatus, Output};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Announces and runs a command. Fails unless it succeeds.
pub(crate) fn run(title: &str, command: &mut Command) -> Result<(), Failure> {
    let status = run_for_status(title, command)?;
    ended_well(title, command, status)
}

fn ended_well(title: &str, command: &Command, status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{title}: `{}` failed ({status})",
        command_line(command)
    )))
}

/// Announces and runs a command, and returns its exit status. Fails only if it cannot be run.
pub(crate) fn run_for_status(title: &str, command: &mut Command) -> Result<ExitStatus, Failure> {
    announce(title);
    let line = command_line(command);
    eprintln!("    $ {line}");
    if let Some(variables) = variables_line(command) {
        eprintln!("{variables}");
    }
    let start = Instant::now();
    let status = command
        .status()
        .map_err(|error| Failure::new(format!("cannot run `{line}`: {error}")))?;
    eprintln!("    {}", seconds(start.elapsed()));
    Ok(status)
}

/// Runs a command. Shows its output only if it fails.
pub(crate) fn run_silently(command: &mut Command) -> Result<(), Failure> {
    printed(command).map(drop)
}

/// Runs a command that must succeed, and returns what it prints on standard output.
pub(crate) fn printed(command: &mut Command) -> Result<String, Failure> {
    let output = output(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!(
        "`{}` failed ({}): {}",
        command_line(command),
        output.status,
        said.trim()
    )))
}

/// Announces and runs a command in parallel with others, and prints its output when it has ended.
pub(crate) fn run_printed_later(title: &str, command: &mut Command) -> Result<(), Failure> {
    let line = command_line(command);
    announce(&format!("{title}: {line}"));
    let output = output(command)?;
    let text = [&output.stderr[..], &output.stdout].concat();
    announce(&format!("{title}: {line}\n{}", String::from_utf8_lossy(&text)));
    ended_well(title, command, output.status)
}

fn output(command: &mut Command) -> Result<Output, Failure> {
    let output = command.output();
    output.map_err(|error| Failure::new(format!("cannot run `{}`: {error}", command_line(command))))
}

/// Prints the title of a step.
pub(crate) fn announce(title: &str) {
    eprintln!("==> {title}");
}

/// Formats a duration in seconds, or in minutes and seconds.
fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        whole => format!("{} min {} s", whole / 60, whole % 60),
    }
}

/// The command as a line to type in a shell.
pub(crate) fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    // Absolute paths, such as those of cargo and Go, are shortened to the file name.
    let program = match program.file_name() {
        Some(name) if program.is_absolute() => name.to_string_lossy(),
        _ => program.to_string_lossy(),
    };
    let words = iter::once(program).chain(command.get_args().map(|word| word.to_string_lossy()));
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

/// Names the variables that are set for a command. Their values are often long paths.
fn variables_line(command: &Command) -> Option<String> {
    let set = command.get_envs().filter(|(_, value)| value.is_some());
    let names: Vec<_> = set.map(|(name, _)| name.to_string_lossy()).collect();
    (!names.is_empty()).then(|| format!("    (sets {})", names.join(", ")))
}

/// Returns a word for a POSIX shell, quoted if necessary.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("--datastore"), "--datastore");
        assert_eq!(quoted("-s -w"), "'-s -w'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_command_line_can_be_typed_again() {
        let mut command = Command::new("/usr/local/go/bin/go");
        command
            .args(["build", "-ldflags=-s -w"])
            .env("CGO_ENABLED", "0")
            .env_remove("GOFLAGS");
        assert_eq!(command_line(&command), "go build '-ldflags=-s -w'");
        assert_eq!(
            variables_line(&command).as_deref(),
            Some("    (sets CGO_ENABLED)")
        );
        let command = Command::new("target/debug/calipam");
        assert_eq!(command_line(&command), "target/debug/calipam");
        assert_eq!(variables_line(&command), None);
    }

    #[test]
    fn times_are_short() {
        assert_eq!(seconds(Duration::from_millis(740)), "0.7 s");
        assert_eq!(seconds(Duration::from_secs(201)), "3 min 21 s");
    }

    #[test]
    fn a_command_that_fails_is_named() {
        let failure = run("trying", Command::new("sh").args(["-c", "exit 3"])).expect_err("it fails");
        assert_eq!(
            failure,
            Failure::new("trying: `sh -c 'exit 3'` failed (exit status: 3)")
        );
        let failure = run("trying", &mut Command::new("no-such-program")).expect_err("it is not there");
        assert!(
            failure
                .to_string()
                .starts_with("error: cannot run `no-such-program`: "),
            "{failure}"
        );
    }
}
