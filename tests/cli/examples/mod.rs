//! Runs the examples of README, documents and help. Each must end with an exit code that its help lists, and print the
//! output that the document shows.
//!
//! An example is a line below "Examples:" in the help of a command, or a line of a code block that names no language (a
//! block without commands is ```` ```text ````). A block below `<!-- cron -->` is a part of a crontab. Examples with a
//! beginning in [`RUN`] are run, in the surroundings that their document describes: the shell of a person, cron, or a
//! container. Those that cannot be run are in [`NOT_RUN`], with the reason. `stories` runs the stories of
//! `docs/repair.md`, and `scheduled` the files of `docs/kubernetes` and `docs/systemd`.

mod document;
mod listed;
mod options;
mod place;
mod spoken;

use calipam_testkit::servers::{Tool, left_out};

use self::document::{Example, Surroundings, of_documents, of_help};
use self::listed::{NOT_RUN, RUN, exit_codes, writes};
use self::place::Place;
use crate::cli::pty::Shown;
use crate::cli::shell::at_once;

/// The advice in the failure message about an example that is neither run nor listed.
const UNKNOWN: &str = "is neither run nor listed. Where it begins as one of RUN in tests/cli/examples/listed.rs, it is run; \
    list there what cannot be run, with the reason; a code block without commands is ```text";

/// Returns each example once. In other surroundings, it is another one.
fn examples() -> Vec<Example> {
    let mut all: Vec<Example> = of_documents().into_iter().chain(of_help()).collect();
    all.sort_by(|a, b| a.line.cmp(&b.line));
    all.dedup_by(|b, a| a.line == b.line && a.surroundings == b.surroundings);
    all
}

fn is_listed(example: &Example) -> bool {
    NOT_RUN.iter().any(|(begin, _)| example.line.starts_with(begin))
}

fn is_run(example: &Example) -> bool {
    RUN.iter().any(|begin| example.line.starts_with(begin)) && !is_listed(example)
}

#[test]
fn every_example_is_run_or_listed() {
    let examples = examples();
    let unknown = examples
        .iter()
        .filter(|example| !is_run(example) && !is_listed(example));
    let unknown: Vec<String> = unknown
        .map(|Example { place, line, .. }| format!("{place}: `{line}` {UNKNOWN}"))
        .collect();
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    for (begin, reason) in NOT_RUN {
        assert!(
            examples.iter().any(|e| e.line.starts_with(begin)),
            "no document has {begin:?} any more"
        );
        assert!(!reason.is_empty(), "{begin:?}");
    }
}

#[test]
fn every_example_ends_and_prints_as_documented() {
    let all = examples();
    assert!(all.iter().any(|example| is_run(example) && needs_jq(example)));
    // Without jq, only the examples that need it are skipped.
    let has_jq = !left_out(&[Tool::Jq]);
    let can_run = |example: &&Example| is_run(example) && (has_jq || !needs_jq(example));
    let (writing, reading): (Vec<&Example>, Vec<&Example>) = all
        .iter()
        .filter(can_run)
        .partition(|example| writes(&example.line));
    assert!(
        reading.len() > 40 && writing.len() > 12,
        "{} and {}",
        reading.len(),
        writing.len()
    );
    let is_of_cron = |example: &&Example| matches!(example.surroundings, Surroundings::Cron(_));
    let in_container = |example: &&Example| matches!(example.surroundings, Surroundings::Container(_));
    assert!(all.iter().filter(is_of_cron).count() >= 4 && all.iter().any(|example| in_container(&example)));

    let place = Place::start();
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            writing
                .iter()
                .filter_map(|e| judge(e, &place.write(e)))
                .collect::<Vec<_>>()
        });
        let read = at_once(&reading, |example| judge(example, &place.read(example)));
        read.into_iter()
            .flatten()
            .chain(written.join().unwrap())
            .collect()
    });
    assert!(wrong.is_empty(), "{} examples\n{}", wrong.len(), wrong.join("\n"));
}

fn needs_jq(example: &Example) -> bool {
    example.line.contains("| jq ")
}

/// Compares the result of an example with its document, and returns an error.
fn judge(example: &Example, shown: &Shown) -> Option<String> {
    let Example {
        place, line, output, ..
    } = example;
    let (code, text) = (shown.code.unwrap_or(-1), &shown.text);
    // A document may show an error deliberately.
    let is_error = output
        .as_ref()
        .is_some_and(|output| output.starts_with("error: "));
    let codes = if is_error { &[2, 3][..] } else { exit_codes(line) };
    if !codes.contains(&code) || text.contains("Usage:") {
        return Some(format!(
            "{place}: `{line}` has exit code {code}, not {codes:?}:\n{text}"
        ));
    }
    let differs = differs(output.as_deref()?, text)?;
    Some(format!(
        "{place}: `{line}` prints something else than is shown, {differs}:\n{text}"
    ))
}

/// Returns the first line of the document that was not printed. A line `…` matches any lines.
fn differs(shown: &str, printed: &str) -> Option<String> {
    let mut printed = printed.lines().filter(|line| !line.is_empty());
    let mut gap = false;
    for line in shown.lines().filter(|line| !line.is_empty()) {
        let found = match (line, gap) {
            ("…", _) => true,
            (_, true) => printed.any(|other| other == line),
            (_, false) => printed.next() == Some(line),
        };
        if !found {
            return Some(format!("from {line:?} on"));
        }
        gap = line == "…";
    }
    printed
        .next()
        .filter(|_| !gap)
        .map(|line| format!("for it goes on with {line:?}"))
}

#[test]
fn output_is_compared_line_by_line() {
    assert_eq!(differs("a\n\nb\n", "a\nb\n"), None);
    assert_eq!(differs("a\n…\nd\n", "a\nb\nc\nd\n"), None);
    assert_eq!(differs("a\n…\n", "a\nb\n"), None);
    assert!(differs("a\n", "a\nb\n").is_some() && differs("a\nc\n", "a\nb\n").is_some());
    assert!(differs("a\n…\nc\n", "a\nb\n").is_some() && differs("b\n", "a\nb\n").is_some());
}
