//! Text from outside that would change what a terminal shows: escape sequences, line breaks, marks that turn the
//! direction of writing, and characters without width. It is shown escaped, wherever it is.

use std::collections::BTreeMap;
use std::fs;

use calipam_model::words::is_unsafe;
use calipam_testkit::json::pointers;
use serde_json::Value;

use super::program::{Run, calipam, example};

/// Erases the line, begins a new one, turns the direction, and adds an invisible letter.
const HOSTILE: &str = "\r\u{1b}[2K\n\u{9b}31m\u{202e}\u{200b}\u{e0041}";

const COMMANDS: [&str; 9] = [
    "show --blocks -o wide",
    "show --nodes -o wide",
    "show --configuration",
    "show --node * -o wide",
    "release --leaked --orphan-handles --dry-run -o wide",
    "release --node node-11 --dry-run",
    "rebuild -o wide",
    "explain --node node-10 -o wide",
    "show --map",
];

#[track_caller]
fn assert_harmless(run: &Run, what: &str) {
    for (name, text) in [("stdout", &run.stdout), ("stderr", &run.stderr)] {
        let found = text.lines().find(|line| line.contains(is_unsafe));
        assert_eq!(found, None, "{name} with {what}");
    }
}

/// The objects of the example, each with the kind in its key.
fn objects() -> Vec<(String, Value)> {
    let kind = |object: &Value| {
        let key = object["key"].as_str().unwrap_or("header");
        key.rsplit_once('/').map_or(key, |(kind, _)| kind).to_owned()
    };
    let lines = example();
    let parsed = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    parsed.map(|object| (kind(&object), object)).collect()
}

/// The texts in objects of each kind. The elements of a list count once.
fn texts(objects: &[(String, Value)]) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for (kind, object) in objects {
        let of_text = |pointer: &String| object.pointer(pointer).is_some_and(Value::is_string);
        for pointer in pointers(object).into_iter().filter(of_text) {
            let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
            let parts: Vec<&str> = pointer.split('/').filter(|part| !is_number(part)).collect();
            found.entry((kind.clone(), parts.join("/"))).or_insert(pointer);
        }
    }
    found
}

#[test]
fn every_text_of_every_object_is_harmless_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let export = folder.path().join("hostile.jsonl");
    let objects = objects();
    let texts = texts(&objects);
    assert!(texts.len() > 60, "{texts:?}");
    for (number, ((kind, _), pointer)) in texts.into_iter().enumerate() {
        let mut lines = String::new();
        for (of, object) in &objects {
            let mut object = object.clone();
            if *of == kind
                && let Some(Value::String(text)) = object.pointer_mut(&pointer)
            {
                *text += HOSTILE;
            }
            lines += &format!("{object}\n");
        }
        fs::write(&export, lines).unwrap();
        let second = COMMANDS[number % COMMANDS.len()];
        for command in ["check -o wide", second] {
            let run = calipam(&format!("{command} --datastore {}", export.display()));
            assert_harmless(&run, &format!("{pointer} of {kind}: {command}"));
        }
    }
}
