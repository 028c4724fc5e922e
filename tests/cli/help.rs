//! The help of each command, under each name of the program.

use std::os::unix::fs::symlink;

use super::program::{EXAMPLE, Run, calipam, command, expected};

/// Every command.
const COMMANDS: [&str; 19] = [
    "check",
    "show",
    "diff",
    "history",
    "release",
    "rebuild",
    "split",
    "configure",
    "assign",
    "simulate",
    "undo",
    "serve",
    "export",
    "record",
    "completion",
    "install-links",
    "version",
    "explain",
    "migrate",
];

#[test]
fn help_of_each_command() {
    expected!("help", calipam(&["--help"]).transcript());
    expected!("help-short", calipam(&["-h"]).transcript());
    for name in COMMANDS {
        expected!(format!("help-{name}"), calipam(&[name, "--help"]).transcript());
    }
}

/// Returns the headings of a help text, each with the lines below it.
fn sections(help: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in help.lines().skip_while(|line| !line.starts_with("Usage:")) {
        match line.strip_suffix(':').filter(|title| !title.starts_with(' ')) {
            Some(title) => found.push((title, Vec::new())),
            None => found.iter_mut().last().into_iter().for_each(|(_, lines)| lines.push(line)),
        }
    }
    found
}

#[test]
fn own_options_come_before_those_of_every_command() {
    for name in COMMANDS {
        let help = calipam(&[name, "--help"]).stdout;
        let sections = sections(&help);
        let titles: Vec<&str> = sections.iter().map(|(title, _)| *title).collect();
        let place = |title: &str| titles.iter().position(|one| *one == title);
        let global = place("Global options").expect(name);
        let last = ["Connection", "Examples", "Paths", "The links are"];
        assert!(titles[global + 1..].iter().all(|title| last.contains(title)), "{name}: {titles:?}");
        for (title, lines) in &sections[..global] {
            let has_global = lines.iter().any(|line| line.contains("--verbose") || line.contains("--help"));
            assert!(!has_global, "{name}: {title}");
        }
    }
}

#[test]
fn a_command_names_the_formats_that_it_has_and_takes_no_other() {
    let all = ["table", "wide", "yaml", "json", "name", "prometheus", "junit", "html", "ignore"];
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
        let named = words.split("[possible values: ").find(|text| text.starts_with("table")).expect(name);
        let named: Vec<&str> = named.split(']').next().unwrap().split(", ").collect();
        assert_eq!(named, formats, "{name}");
        for format in all.iter().filter(|format| !formats.contains(format)) {
            for words in [[name, "-o", format], ["-o", format, name]] {
                let run = calipam(&words);
                let refused =
                    format!("error: `{name}` has no format `{format}`; it has {}\n", formats.join(", "));
                // Some commands are refused for a missing required option instead.
                let asks = run.stderr.contains("required");
                assert!(run.code == 2 && (asks || run.stderr.starts_with(&refused)), "{words:?}: {run:?}");
            }
        }
    }
    for name in ["serve", "record", "export", "completion", "install-links"] {
        assert!(!calipam(&[name, "--help"]).stdout.contains("--output <"), "{name}");
    }
}

/// Help that is written to a pipe has 100 columns.
#[test]
fn help_fits_a_few_screens() {
    for (name, most) in [("check", 80), ("simulate", 60), ("history", 2 * 24)] {
        let lines = calipam(&[name, "--help"]).stdout.lines().count();
        assert!(lines <= most, "{name}: {lines}");
    }
}

/// The error names the commands that have the option, instead of an option with a similar name.
#[test]
fn an_option_of_another_command_is_named_with_it() {
    for (words, tip) in [
        (
            &["check", "--ip", "10.244.1.7"][..],
            "`calipam show --ip` has this option; so do diff, history, release and assign",
        ),
        (&["show", "--leaked"], "`calipam release --leaked` has this option"),
        (&["diff", "--rule", "x"], "`calipam check --rule` has this option; so does serve"),
    ] {
        let run = calipam(words).failed(2, &format!("\n  tip: {tip}\n"));
        assert!(!run.stderr.contains("similar") && !run.stderr.contains("Usage"), "{run:?}");
        let json = calipam(&[words, &["-o", "json"]].concat()).json();
        assert_eq!(json["hint"], tip, "{json}");
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let run = calipam(&["--version"]);
    assert_eq!(run.stdout, format!("calipam {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn lines_of_help_fit_a_terminal() {
    for name in COMMANDS {
        let text = calipam(&[name, "--help"]).stdout;
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

/// Runs the program under another name.
pub(super) fn called(name: &str, arguments: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join(name);
    symlink(crate::cli::PROGRAM, &link).unwrap();
    Run::of(command(&link).args(arguments))
}

#[test]
fn each_name_has_its_own_help() {
    let usage = |name: &str, arguments: &[&str]| {
        let run = called(name, arguments).succeeded();
        let line = run.stdout.lines().find(|line| line.starts_with("Usage:")).unwrap();
        line.to_owned()
    };
    assert_eq!(usage("ipam", &["-h"]), "Usage: ipam [OPTIONS] <COMMAND>");
    assert_eq!(usage("ipam", &["check", "-h"]), "Usage: ipam check [OPTIONS]");
    assert_eq!(usage("kubectl-ipam", &["show", "-h"]), "Usage: kubectl ipam show [OPTIONS] [OBJECT]");
    let expected = "Usage: kubectl calico ipam show [OPTIONS] [OBJECT]";
    assert_eq!(usage("kubectl-calico", &["ipam", "show", "-h"]), expected);
    assert_eq!(usage("calicoctl", &["ipam", "check", "-h"]), "Usage: calicoctl ipam check [OPTIONS]");
    assert_eq!(usage("calipam-0.1", &["ipam", "check", "-h"]), "Usage: calipam ipam check [OPTIONS]");
}

#[test]
fn the_plugin_calico_shows_ipam_only() {
    expected!("help-kubectl-calico", called("kubectl-calico", &["-h"]).transcript());
    expected!("help-kubectl-ipam", called("kubectl-ipam", &["-h"]).transcript());
}

#[test]
fn usage_errors_name_the_program_as_it_was_called() {
    expected!("usage-error", calipam(&["check", "--fial-on", "never"]).transcript());
    called("kubectl-ipam", &["check", "--nonsense"]).failed(2, "Usage: kubectl ipam check");
}

#[test]
fn hints_repeat_the_name_and_the_connection() {
    for (name, arguments, typed) in [
        ("kubectl-ipam", &["check"][..], "kubectl ipam"),
        ("kubectl-calico", &["ipam", "check"], "kubectl calico ipam"),
        ("ipam", &["check"], "ipam"),
    ] {
        let run = called(name, &[arguments, &["--datastore", EXAMPLE]].concat());
        let release = format!("`{typed} release --leaked --datastore {EXAMPLE}`\n");
        assert!(run.stderr.contains(&release), "{run:?}");
        assert!(run.stderr.contains(&format!("`{typed} explain duplicate-address`;")), "{run:?}");
    }
}

#[test]
fn without_a_command_help_is_shown_as_an_error() {
    calipam(&[]).failed(2, "Usage: calipam [OPTIONS] <COMMAND>");
}
