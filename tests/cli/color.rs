//! Colors: when they are printed, and errors and hints in the style of clap.

use std::process::Command;

use super::program::{EXAMPLE, Run, command};
use super::pty::Terminal;

fn check() -> Command {
    let mut program = command(crate::cli::PROGRAM);
    program.args(["check", "--datastore", EXAMPLE]).env("TERM", "xterm-256color");
    program
}

fn colored(text: &str) -> bool {
    text.contains('\u{1b}')
}

/// Options override the environment, and NO_COLOR overrides CLICOLOR_FORCE.
#[test]
fn options_and_environment_decide_on_colors() {
    type Case = (&'static [&'static str], &'static [(&'static str, &'static str)], bool, bool);
    let cases: [Case; 9] = [
        // Options, environment, whether a terminal gets colors, whether a pipe gets colors.
        (&[], &[], true, false),
        (&["--color", "auto"], &[], true, false),
        (&["--color", "always"], &[("NO_COLOR", "1")], true, true),
        (&["--color=never"], &[("CLICOLOR_FORCE", "1")], false, false),
        (&[], &[("NO_COLOR", "1")], false, false),
        (&[], &[("NO_COLOR", "")], true, false),
        (&[], &[("CLICOLOR_FORCE", "1")], true, true),
        (&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false, false),
        (&[], &[("TERM", "dumb")], false, false),
    ];
    for (options, environment, on_terminal, piped) in cases {
        let run = || {
            let mut program = check();
            program.args(options).envs(environment.iter().copied());
            program
        };
        let output = Run::of(run());
        assert_eq!(colored(&output.stdout), piped, "{options:?} {environment:?}: {output:?}");
        assert_eq!(colored(&output.stderr), piped, "{options:?} {environment:?}: {output:?}");
        // `-q` leaves out the progress, which moves the cursor.
        let shown = Terminal::new(200).run(run().arg("-q"));
        assert_eq!(colored(&shown.text), on_terminal, "{options:?} {environment:?}: {shown:?}");
        assert!(shown.text.contains("duplicate-address"), "{shown:?}");
    }
}

/// stdout and stderr are decided separately, since stdout may be a file while stderr is a terminal.
#[test]
fn a_file_has_no_colors_where_stderr_is_a_terminal() {
    let terminal = Terminal::new(100);
    let mut program = check();
    let child = program
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(terminal.side())
        .spawn()
        .unwrap();
    drop(program);
    let mut child = child;
    let mut stdout = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut stdout).unwrap();
    let shown = terminal.watch(child);
    assert!(!colored(&stdout) && stdout.contains("duplicate-address"), "{stdout}");
    assert!(shown.text.contains("\u{1b}[32mhint:\u{1b}[0m "), "{shown:?}");
}

#[test]
fn errors_look_like_those_of_the_command_line() {
    let shown = |arguments: &[&str]| {
        let mut program = command(crate::cli::PROGRAM);
        Terminal::new(100).run(program.args(arguments).env("TERM", "xterm-256color")).text
    };
    let error = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m ";
    for arguments in [
        &["check", "--fial-on"][..],
        &["check", "--etcd-endpoints", "http://127.0.0.1:1"],
        &["explain", "leaked"],
    ] {
        let text = shown(arguments);
        assert!(text.starts_with(error), "{arguments:?}: {text:?}");
        let advice = text.contains("\u{1b}[32mtip:\u{1b}[0m ") || text.contains("\u{1b}[32mhint:\u{1b}[0m ");
        assert!(advice, "{arguments:?}: {text:?}");
    }
    let wrong = Run::of(command(crate::cli::PROGRAM).args(["check", "--fial-on", "--color=always"]));
    assert!(wrong.stderr.starts_with(error), "an error of the command line obeys its option: {wrong:?}");
    let other = Run::of(command(crate::cli::PROGRAM).args(["check", "--color", "often"]));
    assert_eq!((other.code, other.stderr.contains("always")), (2, true), "{other:?}");
}
