//! `show --map`.

use std::process::Stdio;

use serde_json::Value;

use super::program::{EXAMPLE, HOSTILE, calipam, command, expected, on_example};
use super::pty::{Terminal, plain};

/// Returns the output on a terminal with a Unicode locale.
fn on_terminal(columns: u16, arguments: &[&str]) -> String {
    let terminal = Terminal::new(columns);
    let mut program = command(crate::cli::PROGRAM);
    program.args(arguments).args(["--datastore", EXAMPLE]);
    program.env("TERM", "xterm-256color").env("LANG", "C.UTF-8").stdin(Stdio::null());
    let child = program.stdout(terminal.side()).stderr(Stdio::null()).spawn().unwrap();
    // The command also holds this end of the terminal, which must be closed. Otherwise, the reader would never end.
    drop(program);
    let shown = terminal.watch(child);
    assert_eq!(shown.code, Some(0));
    shown.text.replace("\r\n", "\n")
}

#[test]
fn a_map_fits_the_terminal_with_and_without_colours() {
    for columns in [80, 120] {
        let colored = on_terminal(columns, &["show", "--map"]);
        let characters = on_terminal(columns, &["show", "--map", "--color", "never"]);
        for text in [plain(&colored), characters.clone()] {
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(columns), "{widest}:\n{text}");
        }
        expected!(format!("map-{columns}-colors"), colored.replace('\u{1b}', "ESC"));
        expected!(format!("map-{columns}-characters"), characters);
    }
    // Narrow terminals have shorter rows, not fewer cells.
    let narrow = on_terminal(44, &["show", "--map", "--color", "never", "--pool", "default-ipv4-ippool"]);
    assert!(narrow.contains("\n10.244.252.0 "), "{narrow}");
    assert!(narrow.lines().all(|line| line.chars().count() <= 44), "{narrow}");
    // Without a Unicode locale, the map consists of characters, with or without colors.
    let run = on_example(&["show", "--map", "--color", "always"]);
    assert!(run.stdout.is_ascii() || !run.stdout.contains('▀'), "{run:?}");
}

#[test]
fn the_map_agrees_with_blocks_and_findings() {
    let json = |arguments: &[&str]| -> Value { on_example(&[arguments, &["-o", "json"]].concat()).json() };
    let maps = json(&["show", "--map"]);
    let pools = json(&["show"]);
    let names = |list: &Value| -> Vec<Value> {
        list["pools"].as_array().unwrap().iter().map(|pool| pool["name"].clone()).collect()
    };
    assert_eq!(names(&maps), names(&pools));
    for (map, pool) in maps["pools"].as_array().unwrap().iter().zip(pools["pools"].as_array().unwrap()) {
        let sum = |field: &str| {
            map["cells"].as_array().unwrap().iter().map(|c| c[field].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(sum("inUse"), pool["inUse"].as_u64().unwrap(), "{}", map["name"]);
        assert_eq!(sum("cooling"), pool["cooling"].as_u64().unwrap(), "{}", map["name"]);
    }

    let one = json(&["show", "--map", "--pool", "default-ipv4-ippool"]);
    assert_eq!(names(&one), ["default-ipv4-ippool"]);
    let drawn = on_example(&["show", "--map", "--pool", "default-ipv4-ippool"]).stdout;
    let rows: Vec<&str> =
        drawn.lines().filter(|line| line.starts_with("10.244.") && !line.contains('/')).collect();
    assert_eq!(rows.len(), 1024 / 64);
    let cells: String = rows.iter().map(|row| row.split_once(' ').unwrap().1.trim_start()).collect();
    for cell in one["pools"][0]["cells"].as_array().unwrap() {
        let character = cells.as_bytes()[cell["index"].as_u64().unwrap() as usize];
        let worst = cell["worst"].as_str().map(|worst| worst.to_uppercase().as_bytes()[0]);
        assert_eq!(worst.unwrap_or(character), character, "{cell}");
        assert_eq!(cell["blocks"] != 0 || worst.is_some(), character != b'.', "{cell}");
    }
    assert_eq!(on_example(&["show", "--map", "--pool", "none"]).code, 1);
    assert_eq!(on_example(&["show", "--map", "--node", "node-1"]).code, 2);
    let hostile = calipam(&["show", "--map", "-o", "wide", "-d", HOSTILE]).stdout;
    assert!(!hostile.contains(|c: char| c.is_control() && c != '\n'), "{hostile}");
}
