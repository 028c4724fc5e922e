//! Tables and texts fit into the terminal. If the output is a pipe, they are printed completely.

use super::program::{EXAMPLE, calipam, expected, on_example};
use super::pty::{on_terminal, plain};

/// Commands that print tables for people.
const TABLES: [(&str, &[&str]); 11] = [
    ("check", &["check"]),
    ("rules", &["explain"]),
    ("show-pools", &["show"]),
    ("show-blocks", &["show", "--blocks"]),
    ("show-nodes", &["show", "--nodes"]),
    ("show-borrowed", &["show", "--borrowed"]),
    ("show-configuration", &["show", "--configuration"]),
    ("show-ip", &["show", "--ip", "10.244.10.3"]),
    ("release", &["release", "--orphan-handles"]),
    ("rebuild", &["rebuild"]),
    ("explain", &["explain", "leaked-address", "orphan-handle"]),
];

fn shown(columns: u16, arguments: &[&str]) -> String {
    plain(&on_terminal(columns, &[arguments, &["--datastore", EXAMPLE]].concat()).replace("ESC", "\u{1b}"))
}

#[test]
fn tables_fit_80_columns() {
    for (name, arguments) in TABLES {
        let text = shown(80, arguments);
        // The complete ID of a handle has a line of its own, since people copy it from here.
        let fits =
            |line: &str| line.chars().count() <= 80 || (name == "show-ip" && !line.trim().contains(' '));
        assert!(text.lines().all(fits), "{name}:\n{text}");
        expected!(format!("terminal-80-{name}"), text);
    }
}

#[test]
fn on_a_wide_terminal_nothing_is_shortened() {
    for (name, arguments) in TABLES {
        let text = shown(200, arguments);
        assert!(!text.contains("left out"), "{name}:\n{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 200), "{name}:\n{text}");
    }
    let checked = shown(200, &["check"]);
    let handle = "k8s-pod-network.10960984a485c63bdceced743eef6a548cb70d7ba0ed694c3b0c12fc6e3e8a04";
    assert!(checked.contains(handle), "{checked}");
    assert!(!shown(80, &["check"]).contains(handle));
    assert!(shown(80, &["check"]).contains("k8s-pod-network.10960984…"));
}

/// `-o wide` shows everything at any width. The program breaks lines between words, or leaves that to the terminal.
#[test]
fn wide_tables_leave_nothing_out() {
    let words = |text: &str| {
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        words.sort();
        words
    };
    for (name, arguments) in TABLES.into_iter().filter(|(name, _)| *name != "explain") {
        let arguments = [arguments, &["-o", "wide"]].concat();
        let piped = on_example(&arguments);
        let piped = format!("exit code: {}\n{}", piped.code, piped.stdout);
        assert_eq!(words(&shown(80, &arguments)), words(&piped), "{name}");
    }
}

#[test]
fn a_pipe_gets_whole_lines() {
    let run = on_example(&["check"]);
    assert!(run.stdout.lines().any(|line| line.chars().count() > 120) && !run.stdout.contains("left out"));
    let says = "k8s-pod-network.10960984a485c63bdceced743eef6a548cb70d7ba0ed694c3b0c12fc6e3e8a04 is";
    assert!(run.stdout.contains(says));
}

#[test]
fn explanations_are_rendered() {
    let text = on_terminal(80, &["explain", "LEAKED-address"]);
    assert!(text.contains("ESC[1mRisk.ESC[0m"), "{text}");
    assert!(text.contains("ESC[36mcalipam release --leakedESC[0m"), "{text}");
    for text in [text, calipam(&["explain", "leaked-address"]).stdout] {
        assert!(!text.contains('`') && !text.contains("**"), "{text}");
    }
}
