//! Tests on a terminal: the output of each command, and ctrl-c.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::program::{EXAMPLE, command, expected};
use super::pty::{Terminal, on_terminal, plain};

fn check() -> std::process::Command {
    let mut program = command(crate::cli::PROGRAM);
    program.args(["check", "--datastore", EXAMPLE]).env("TERM", "xterm-256color");
    program
}

#[test]
fn tables_have_colours_and_fit_the_width() {
    let shown = Terminal::new(100).run(&mut check());
    assert_eq!(shown.code, Some(1));
    assert!(shown.text.contains("\u{1b}["), "{}", shown.text);
    let table = plain(&shown.text);
    let rows = table.lines().filter(|line| line.starts_with("error") || line.starts_with(' '));
    assert!(rows.clone().count() > 10);
    assert!(rows.into_iter().all(|row| row.trim_end().chars().count() <= 100), "{table}");
}

#[test]
fn every_command_on_a_terminal() {
    let commands: [(&str, &[&str]); 13] = [
        ("check-table", &["check", "--datastore", EXAMPLE]),
        ("check-wide", &["check", "--datastore", EXAMPLE, "-o", "wide", "--rule", "leaked-address"]),
        ("check-json", &["check", "--datastore", EXAMPLE, "-o", "json", "--rule", "pool-nearly-full"]),
        ("rules", &["explain"]),
        ("show-pools", &["show", "--datastore", EXAMPLE]),
        ("show-blocks", &["show", "--datastore", EXAMPLE, "--blocks"]),
        ("show-nodes", &["show", "--datastore", EXAMPLE, "--nodes", "-o", "wide"]),
        ("show-borrowed", &["show", "--datastore", EXAMPLE, "--borrowed"]),
        ("show-configuration", &["show", "--datastore", EXAMPLE, "--configuration"]),
        ("show-ip", &["show", "--datastore", EXAMPLE, "--ip", "10.244.10.3"]),
        ("show-handle", &["show", "--datastore", EXAMPLE, "--handle", "monitoring.prometheus-76"]),
        ("explain", &["explain", "duplicate-address"]),
        ("help", &["-h"]),
    ];
    for (name, arguments) in commands {
        expected!(format!("terminal-{name}"), on_terminal(120, arguments));
    }
}

#[test]
fn machine_formats_are_the_same_on_a_terminal() {
    for format in ["json", "yaml"] {
        let piped = check().args(["-o", format, "-q"]).output().unwrap();
        let shown = Terminal::new(80).run(check().args(["-o", format, "-q"]));
        assert_eq!(shown.text.replace("\r\n", "\n"), String::from_utf8(piped.stdout).unwrap());
    }
}

/// The server accepts connections but never answers. Ctrl-c ends the program at once, with exit code 130.
#[test]
fn ctrl_c_ends_it() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let mut child = command(crate::cli::PROGRAM)
        .args(["check", "--etcd-endpoints", &endpoint])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _connection = silent.accept().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let told = Instant::now();
    let status = child.wait().unwrap();
    assert!(told.elapsed() < Duration::from_secs(3), "{:?}", told.elapsed());
    assert_eq!(status.code(), Some(130), "{status}");
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "error: interrupted\n");
}
