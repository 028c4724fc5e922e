//! `--ignore`: findings that are known and accepted.

use super::program::{EXAMPLE, HOSTILE, Run, calipam, file, items, on_example};

/// Checks the example cluster with a file of accepted findings. The example cluster dates from 2026-06-01.
fn check(text: &str, options: &str) -> (Run, String) {
    let (_folder, path) = file("accepted", text);
    (on_example(&format!("check --ignore {path} {options}")), path)
}

const FULL: &str = "--rule pool-nearly-full";

#[test]
fn accepted_findings_are_left_out() {
    let (run, _) = check("# ours\npool-nearly-full 172.16.5.0/28  # is to be full\n", FULL);
    run.succeeded().says_nothing().prints("No findings");

    let (run, path) = check("pool-nearly-ful 172.16.5.0/28\n", "");
    let says = format!("error: {path}:1: unknown rule \"pool-nearly-ful\"");
    run.failed(2, &says).says("`until 2027-01-31`");
}

#[test]
fn entries_without_a_match_are_named() {
    let text = "leaked-address 10.244.99.99\npool-nearly-full 172.16.5.0/28\nduplicate-address 10.244.10.3\n";
    // An entry also matches a finding that a filter option removes.
    let (run, path) = check(text, FULL);
    let told = format!("note: {path}:1: leaked-address 10.244.99.99 matches no finding\n");
    assert_eq!((run.code, &run.stderr), (0, &told), "{run:?}");
    check(text, &format!("{FULL} -q")).0.says_nothing();
}

#[test]
fn an_acceptance_can_end() {
    for (until, left_out) in [("2026-06-01", true), ("2026-05-31", false), ("2027-01-31", true)] {
        let (run, path) = check(
            &format!("pool-nearly-full 172.16.5.0/28 until {until} # see #12\n"),
            FULL,
        );
        assert_eq!(run.code, i32::from(!left_out), "{until}: {run:?}");
        let told = format!("note: {path}:1: pool-nearly-full 172.16.5.0/28 was accepted until {until}\n");
        assert_eq!(run.stderr.contains(&told), !left_out, "{until}: {run:?}");
    }
    let (run, path) = check("pool-nearly-full 172.16.5.0/28 until tomorrow\n", "");
    run.failed(2, &format!("{path}:1: until \"tomorrow\": expected a date"));
}

#[test]
fn an_expired_line_does_not_end_what_another_line_accepts() {
    const FOREVER: &str = "pool-nearly-full 172.16.5.0/28\n";
    const EXPIRED: &str = "pool-nearly-full 172.16.5.0/28 until 2026-05-31\n";
    for (line, text) in [(2, [FOREVER, EXPIRED].concat()), (1, [EXPIRED, FOREVER].concat())] {
        let (run, path) = check(&text, FULL);
        let told =
            format!("note: {path}:{line}: pool-nearly-full 172.16.5.0/28 was accepted until 2026-05-31\n");
        assert_eq!((run.code, &run.stderr), (0, &told), "{run:?}");
    }
}

/// The lines that `-o ignore` prints accept every finding, whatever its subject is.
#[test]
fn ignore_lines_accept_every_finding() {
    for data in [EXAMPLE, HOSTILE] {
        let check = |options: &str| calipam(&format!("check --datastore {data} {options}"));
        let lines = check("-o ignore").exits(1).says_nothing();
        let found = check("-o json").json();
        assert_eq!(
            lines.stdout.lines().count(),
            items(&found["findings"]).len(),
            "{lines:?}"
        );

        let (_folder, path) = file("accepted", &lines.stdout);
        check(&format!("--ignore {path}"))
            .succeeded()
            .says_nothing()
            .prints("No findings");
    }
    on_example(&format!("check -o ignore {FULL}")).prints_exactly("pool-nearly-full 172.16.5.0/28\n");
}
