//! Tests on a terminal: the output of each command, colors, and ctrl-c.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::program::{EXAMPLE, Run, calipam, expected, prepare, started};
use super::pty::{Terminal, interrupt, on_terminal, plain};

fn check() -> Command {
    let mut program = prepare("check --datastore");
    program.arg(EXAMPLE).env("TERM", "xterm-256color");
    program
}

fn colored(text: &str) -> bool {
    text.contains('\u{1b}')
}

#[test]
fn tables_have_colours_and_fit_the_width() {
    let shown = Terminal::new(100).run(&mut check()).exits(1).shows("\u{1b}[");
    let table = plain(&shown.text);
    let rows = table
        .lines()
        .filter(|line| line.starts_with("error") || line.starts_with(' '));
    assert!(rows.clone().count() > 10);
    assert!(
        rows.into_iter().all(|row| row.trim_end().chars().count() <= 100),
        "{table}"
    );
}

#[test]
fn every_command_on_a_terminal() {
    for (name, line) in [
        ("check-table", "check"),
        ("check-wide", "check -o wide --rule leaked-address"),
        ("check-json", "check -o json --rule pool-nearly-full"),
        ("rules", "explain"),
        ("show-pools", "show"),
        ("show-blocks", "show --blocks"),
        ("show-nodes", "show --nodes -o wide"),
        ("show-borrowed", "show --borrowed"),
        ("show-configuration", "show --configuration"),
        ("show-ip", "show --ip 10.244.10.3"),
        ("show-handle", "show --handle monitoring.prometheus-76"),
        ("explain", "explain duplicate-address"),
        ("help", "-h"),
    ] {
        let shown = on_terminal(120, &format!("{line} --datastore {EXAMPLE}"));
        expected!(format!("terminal-{name}"), shown);
    }
}

#[test]
fn machine_formats_are_the_same_on_a_terminal() {
    for format in ["json", "yaml"] {
        let piped = Run::of(check().args(["-o", format, "-q"]));
        let shown = Terminal::new(80).run(check().args(["-o", format, "-q"]));
        assert_eq!(shown.text.replace("\r\n", "\n"), piped.stdout);
    }
}

/// Options override the environment, and NO_COLOR overrides CLICOLOR_FORCE.
#[test]
fn options_and_environment_decide_on_colors() {
    type Case = (&'static str, &'static [(&'static str, &'static str)], bool, bool);
    let cases: [Case; 9] = [
        // Options, environment, whether a terminal gets colors, whether a pipe gets colors.
        ("", &[], true, false),
        ("--color=auto", &[], true, false),
        ("--color=always", &[("NO_COLOR", "1")], true, true),
        ("--color=never", &[("CLICOLOR_FORCE", "1")], false, false),
        ("", &[("NO_COLOR", "1")], false, false),
        ("", &[("NO_COLOR", "")], true, false),
        ("", &[("CLICOLOR_FORCE", "1")], true, true),
        ("", &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false, false),
        ("", &[("TERM", "dumb")], false, false),
    ];
    for (option, environment, on_terminal, piped) in cases {
        let run = || {
            let mut program = check();
            program
                .args(option.split_whitespace())
                .envs(environment.iter().copied());
            program
        };
        let output = Run::of(run());
        assert_eq!(
            colored(&output.stdout),
            piped,
            "{option} {environment:?}: {output:?}"
        );
        assert_eq!(
            colored(&output.stderr),
            piped,
            "{option} {environment:?}: {output:?}"
        );
        // `-q` leaves out the progress, which moves the cursor.
        let shown = Terminal::new(200).run(run().arg("-q")).shows("duplicate-address");
        assert_eq!(
            colored(&shown.text),
            on_terminal,
            "{option} {environment:?}: {shown:?}"
        );
    }
}

/// stdout and stderr are decided separately, since stdout may be a file while stderr is a terminal.
#[test]
fn a_file_has_no_colors_where_stderr_is_a_terminal() {
    let terminal = Terminal::new(100);
    let mut child = check()
        .stdout(Stdio::piped())
        .stderr(terminal.side())
        .spawn()
        .unwrap();
    let stdout = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    assert!(
        !colored(&stdout) && stdout.contains("duplicate-address"),
        "{stdout}"
    );
    terminal.watch(child).shows("\u{1b}[32mhint:\u{1b}[0m ");
}

#[test]
fn errors_look_like_those_of_the_command_line() {
    let error = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m ";
    for (line, advice) in [
        ("check --fial-on", "tip"),
        ("check --etcd-endpoints http://127.0.0.1:1", "hint"),
        ("explain leaked", "hint"),
    ] {
        let shown = Terminal::new(100).run(prepare(line).env("TERM", "xterm-256color"));
        assert!(shown.text.starts_with(error), "{line}: {shown:?}");
        shown.shows(&format!("\u{1b}[32m{advice}:\u{1b}[0m "));
    }
    // An error of the command line obeys its option.
    calipam("check --fial-on --color=always").says_first(error);
    calipam("check --color often").failed(2, "always");
}

/// The server accepts connections but never answers. Ctrl-c ends the program at once, with exit code 130.
#[test]
fn ctrl_c_ends_it() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let child = started(&mut prepare(&["check", "--etcd-endpoints", &endpoint]));
    let _connection = silent.accept().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    interrupt(&child);
    let told = Instant::now();
    let run = Run::ended(child.wait_with_output().unwrap()).exits(130);
    assert!(told.elapsed() < Duration::from_secs(3), "{:?}", told.elapsed());
    assert_eq!(run.stderr, "error: interrupted\n");
}
