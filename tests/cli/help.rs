//! The help of each command, under each name of the program.

use std::os::unix::fs::symlink;

use super::program::{EXAMPLE, Run, Words, calipam, command, expected};

/// Returns the names of all commands, and an empty name for the help of the program.
pub(super) fn commands() -> Vec<String> {
    let help = calipam("--help").stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed
        .map_while(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '));
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let commands: Vec<String> = names.map(name).filter(|name| name != "help").collect();
    assert!(commands.len() > 10, "{commands:?}");
    std::iter::once(String::new()).chain(commands).collect()
}

/// Returns the headings of a help text, each with the lines below it.
fn sections(help: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in help.lines().skip_while(|line| !line.starts_with("Usage:")) {
        match line.strip_suffix(':').filter(|title| !title.starts_with(' ')) {
            Some(title) => found.push((title, Vec::new())),
            None => found
                .iter_mut()
                .last()
                .into_iter()
                .for_each(|(_, lines)| lines.push(line)),
        }
    }
    found
}

/// Help that is written to a pipe has 100 columns. Options of a command come before those of every command.
#[test]
fn help_of_each_command() {
    expected!("help", calipam("--help").transcript());
    expected!("help-short", calipam("-h").transcript());
    for name in commands().iter().filter(|name| !name.is_empty()) {
        let run = calipam(&[name, "--help"]);
        expected!(format!("help-{name}"), run.transcript());
        assert!(
            run.stdout.lines().all(|line| line.chars().count() <= 100),
            "{run:?}"
        );
        let sections = sections(&run.stdout);
        let titles: Vec<&str> = sections.iter().map(|(title, _)| *title).collect();
        let global = titles
            .iter()
            .position(|title| *title == "Global options")
            .expect(name);
        let last = ["Connection", "Examples", "Paths", "The links are"];
        assert!(
            titles[global + 1..].iter().all(|title| last.contains(title)),
            "{name}: {titles:?}"
        );
        for (title, lines) in &sections[..global] {
            let has_global = lines
                .iter()
                .any(|line| line.contains("--verbose") || line.contains("--help"));
            assert!(!has_global, "{name}: {title}");
        }
    }
    for (name, most) in [("check", 80), ("simulate", 60), ("history", 2 * 24)] {
        let lines = calipam(&[name, "--help"]).stdout.lines().count();
        assert!(lines <= most, "{name} needs few screens: {lines}");
    }
}

#[test]
fn a_command_names_the_formats_that_it_has_and_takes_no_other() {
    let all = [
        "table",
        "wide",
        "yaml",
        "json",
        "name",
        "prometheus",
        "junit",
        "html",
        "ignore",
    ];
    for (name, formats) in [
        ("check", &all[..]),
        ("show", &all[..5]),
        ("simulate", &["table", "wide", "yaml", "json", "html"]),
        ("explain", &all[..4]),
        ("release", &all[..4]),
        ("undo", &all[..4]),
    ] {
        let help = calipam(&[name, "--help"]).stdout;
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let has = formats.join(", ");
        assert!(
            words.contains(&format!("[possible values: {has}]")),
            "{name}: {words}"
        );
        for format in all.iter().filter(|format| !formats.contains(format)) {
            for words in [[name, "-o", format], ["-o", format, name]] {
                let run = calipam(&words).exits(2);
                let refused = format!("error: `{name}` has no format `{format}`; it has {has}\n");
                // Some commands are refused for a missing required option instead.
                assert!(
                    run.stderr.contains("required") || run.stderr.starts_with(&refused),
                    "{run:?}"
                );
            }
        }
    }
    for name in ["serve", "record", "export", "completion", "install-links"] {
        calipam(&[name, "--help"]).omits("--output <");
    }
}

/// The error names the commands that have the option, instead of an option with a similar name.
#[test]
fn an_option_of_another_command_is_named_with_it() {
    for (line, tip) in [
        (
            "check --ip 10.244.1.7",
            "`calipam show --ip` has this option; so do diff, history, release and assign",
        ),
        ("show --leaked", "`calipam release --leaked` has this option"),
        (
            "diff --rule x",
            "`calipam check --rule` has this option; so does serve",
        ),
    ] {
        let run = calipam(line).failed(2, &format!("\n  tip: {tip}\n"));
        assert!(
            !run.stderr.contains("similar") && !run.stderr.contains("Usage"),
            "{run:?}"
        );
        let json = calipam(&format!("{line} -o json")).json();
        assert_eq!(json["hint"], tip, "{json}");
    }
}

/// Runs the program under another name.
pub(super) fn called(name: &str, arguments: &(impl Words + ?Sized)) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join(name);
    symlink(crate::cli::PROGRAM, &link).unwrap();
    Run::of(command(&link).args(arguments.words()))
}

#[test]
fn each_name_has_its_own_help() {
    for (name, arguments, usage) in [
        ("ipam", "-h", "ipam [OPTIONS] <COMMAND>"),
        ("ipam", "check -h", "ipam check [OPTIONS]"),
        ("kubectl-ipam", "show -h", "kubectl ipam show [OPTIONS] [OBJECT]"),
        (
            "kubectl-calico",
            "ipam show -h",
            "kubectl calico ipam show [OPTIONS] [OBJECT]",
        ),
        ("calicoctl", "ipam check -h", "calicoctl ipam check [OPTIONS]"),
        ("calipam-0.1", "ipam check -h", "calipam ipam check [OPTIONS]"),
    ] {
        called(name, arguments)
            .succeeded()
            .prints(&format!("Usage: {usage}\n"));
    }
    expected!("help-kubectl-calico", called("kubectl-calico", "-h").transcript());
    expected!("help-kubectl-ipam", called("kubectl-ipam", "-h").transcript());
}

#[test]
fn usage_errors_name_the_program_as_it_was_called() {
    expected!("usage-error", calipam("check --fial-on never").transcript());
    called("kubectl-ipam", "check --nonsense").failed(2, "Usage: kubectl ipam check");
    // Without a command, help is shown as an error.
    calipam("").failed(2, "Usage: calipam [OPTIONS] <COMMAND>");
}

#[test]
fn hints_repeat_the_name_and_the_connection() {
    for (name, check, typed) in [
        ("kubectl-ipam", "check", "kubectl ipam"),
        ("kubectl-calico", "ipam check", "kubectl calico ipam"),
        ("ipam", "check", "ipam"),
    ] {
        called(name, &format!("{check} --datastore {EXAMPLE}"))
            .prints(&format!("`{typed} release --leaked --datastore {EXAMPLE}`"))
            .says(&format!("`{typed} explain duplicate-address`;"));
    }
}
