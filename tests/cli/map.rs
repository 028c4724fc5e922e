//! `show --map`.

use super::program::{EXAMPLE, HOSTILE, calipam, column, expected, items, on_example, prepare};
use super::pty::{Terminal, plain};

/// Returns the output on a terminal with a Unicode locale.
fn on_terminal(columns: u16, options: &str) -> String {
    let mut program = prepare(&format!("show --map --datastore {EXAMPLE} {options}"));
    program.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
    Terminal::new(columns)
        .run_without_stderr(&mut program)
        .exits(0)
        .text
        .replace("\r\n", "\n")
}

fn fits(text: &str, columns: u16) -> bool {
    text.lines()
        .all(|line| line.chars().count() <= usize::from(columns))
}

#[test]
fn a_map_fits_the_terminal_with_and_without_colours() {
    for columns in [80, 120] {
        let colored = on_terminal(columns, "");
        let characters = on_terminal(columns, "--color never");
        assert!(
            fits(&plain(&colored), columns) && fits(&characters, columns),
            "{columns}:\n{characters}"
        );
        expected!(format!("map-{columns}-colors"), colored.replace('\u{1b}', "ESC"));
        expected!(format!("map-{columns}-characters"), characters);
    }
    // Narrow terminals have shorter rows, not fewer cells.
    let narrow = on_terminal(44, "--color never --pool default-ipv4-ippool");
    assert!(
        narrow.contains("\n10.244.252.0 ") && fits(&narrow, 44),
        "{narrow}"
    );
    // Without a Unicode locale, the map consists of characters, with or without colors.
    on_example("show --map --color always").omits("▀");
}

#[test]
fn the_map_agrees_with_blocks_and_findings() {
    let json = |line: &str| on_example(&format!("{line} -o json")).json();
    let (maps, pools) = (json("show --map"), json("show"));
    assert_eq!(column(&maps["pools"], "name"), column(&pools["pools"], "name"));
    for (map, pool) in items(&maps["pools"]).iter().zip(items(&pools["pools"])) {
        let sum = |field: &str| {
            items(&map["cells"])
                .iter()
                .map(|c| c[field].as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!(sum("inUse"), pool["inUse"].as_u64().unwrap(), "{}", map["name"]);
        assert_eq!(
            sum("cooling"),
            pool["cooling"].as_u64().unwrap(),
            "{}",
            map["name"]
        );
    }

    let one = json("show --map --pool default-ipv4-ippool");
    assert_eq!(column(&one["pools"], "name"), ["default-ipv4-ippool"]);
    let drawn = on_example("show --map --pool default-ipv4-ippool").stdout;
    let rows: Vec<&str> = drawn
        .lines()
        .filter(|line| line.starts_with("10.244.") && !line.contains('/'))
        .collect();
    assert_eq!(rows.len(), 1024 / 64);
    let cells: String = rows
        .iter()
        .map(|row| row.split_once(' ').unwrap().1.trim_start())
        .collect();
    for cell in items(&one["pools"][0]["cells"]) {
        let character = cells.as_bytes()[cell["index"].as_u64().unwrap() as usize];
        let worst = cell["worst"]
            .as_str()
            .map(|worst| worst.to_uppercase().as_bytes()[0]);
        assert_eq!(worst.unwrap_or(character), character, "{cell}");
        assert_eq!(
            cell["blocks"] != 0 || worst.is_some(),
            character != b'.',
            "{cell}"
        );
    }
    on_example("show --map --pool none").exits(1);
    on_example("show --map --node node-1").exits(2);
    let hostile = calipam(&format!("show --map -o wide -d {HOSTILE}")).stdout;
    assert!(
        !hostile.contains(|c: char| c.is_control() && c != '\n'),
        "{hostile}"
    );
}
