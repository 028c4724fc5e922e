//! Tables and texts fit into the terminal. If the output is a pipe, they are printed completely.

use super::program::{EXAMPLE, calipam, expected, on_example};
use super::pty::{on_terminal, plain};

/// Commands that print tables for people.
const TABLES: [(&str, &str); 12] = [
    ("check", "check"),
    ("rules", "explain"),
    ("show-pools", "show"),
    ("show-blocks", "show --blocks"),
    ("show-nodes", "show --nodes"),
    ("show-namespaces", "show --namespaces"),
    ("show-borrowed", "show --borrowed"),
    ("show-configuration", "show --configuration"),
    ("show-ip", "show --ip 10.244.10.3"),
    ("release", "release --orphan-handles"),
    ("rebuild", "rebuild"),
    ("explain", "explain leaked-address orphan-handle"),
];

const HANDLE: &str = "k8s-pod-network.10960984a485c63bdceced743eef6a548cb70d7ba0ed694c3b0c12fc6e3e8a04";

fn shown(columns: u16, line: &str) -> String {
    plain(&on_terminal(columns, &format!("{line} --datastore {EXAMPLE}")).replace("ESC", "\u{1b}"))
}

fn sorted_words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    words.sort();
    words
}

/// `-o wide` shows everything at any width. The program breaks lines between words, or leaves that to the terminal.
#[test]
fn tables_fit_the_terminal() {
    for (name, line) in TABLES {
        let text = shown(80, line);
        // The complete ID of a handle is not broken, since people copy it from here.
        let fits = |line: &str| {
            let value = line.strip_prefix("Handle").unwrap_or(line).trim();
            line.chars().count() <= 80 || (name == "show-ip" && !value.contains(' '))
        };
        assert!(text.lines().all(fits), "{name}:\n{text}");
        expected!(format!("terminal-80-{name}"), text);

        let text = shown(200, line);
        assert!(!text.contains("left out"), "{name}:\n{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 200),
            "{name}:\n{text}"
        );
        if name != "explain" {
            let wide = format!("{line} -o wide");
            let piped = on_example(&wide);
            let piped = format!("exit code: {}\n{}", piped.code, piped.stdout);
            assert_eq!(sorted_words(&shown(80, &wide)), sorted_words(&piped), "{name}");
        }
    }
    assert!(shown(200, "check").contains(HANDLE));
    let narrow = shown(80, "check");
    assert!(
        !narrow.contains(HANDLE) && narrow.contains("k8s-pod-network.10960984…"),
        "{narrow}"
    );
}

#[test]
fn a_pipe_gets_whole_lines() {
    let run = on_example("check")
        .omits("left out")
        .prints(&format!("{HANDLE} is"));
    assert!(
        run.stdout.lines().any(|line| line.chars().count() > 120),
        "{run:?}"
    );
}

#[test]
fn explanations_are_rendered() {
    let text = on_terminal(80, "explain LEAKED-address");
    assert!(text.contains("ESC[1mRisk.ESC[0m"), "{text}");
    assert!(text.contains("ESC[36mcalipam release --leakedESC[0m"), "{text}");
    for text in [text, calipam("explain leaked-address").stdout] {
        assert!(!text.contains('`') && !text.contains("**"), "{text}");
    }
}
