//! The suggestions at each position of a command line.

use super::super::program::{Run, calipam, command};
use super::{kubectl_gets, link_all, suggested};

/// The directive that the shell must use only the suggestions, in this order.
const ONLY: u8 = 4 + 32;

#[test]
fn commands_options_and_fixed_values() {
    assert_eq!(suggested(&["sho"]), ["show"]);
    assert_eq!(suggested(&["check", "--fail-on", "w"]), ["warning"]);
    assert_eq!(suggested(&["check", "--fail-on=w"]), ["warning"]);
    assert_eq!(suggested(&["check", "--rule", "leak"]), ["leaked-address"]);
    assert_eq!(suggested(&["check", "--rule=leak"]), ["leaked-address"]);
    assert_eq!(suggested(&["check", "--rule", "orphan-handle,leak"]), ["orphan-handle,leaked-address"]);
    assert_eq!(suggested(&["check", "--skip-rule=orphan-handle,leak"]), ["orphan-handle,leaked-address"]);
    assert_eq!(suggested(&["explain", "leak"]), ["leaked-address"]);
    assert_eq!(suggested(&["-o", "y"]), ["yaml"]);
    assert_eq!(suggested(&["-oy"]), ["-oyaml"]);
    let expected = (vec!["warning\tInconsistent data".to_owned()], ONLY);
    assert_eq!(kubectl_gets(&["check", "--fail-on", "warn"]), expected);
}

#[test]
fn commands_are_offered_before_options() {
    let first = suggested(&[""]);
    for command in ["check", "show", "release", "rebuild", "undo", "export", "explain"] {
        assert!(first.contains(&command.to_owned()), "{command}: {first:?}");
    }
    assert!(first.iter().all(|word| !word.starts_with(['-', '_']) && word != "ipam"), "{first:?}");
    let options = suggested(&["--"]);
    assert!(options.contains(&"--output".to_owned()), "{options:?}");
    assert!(options.iter().all(|w| w.starts_with("--")), "{options:?}");
    assert!(suggested(&["check", ""]).contains(&"--rule".to_owned()), "check has nothing but options");
    assert!(suggested(&["explain", ""]).iter().all(|word| !word.starts_with('-')));
}

#[test]
fn hidden_options_are_not_suggested_but_work() {
    for word in ["ipam", "ip", "__", "__complete"] {
        assert_eq!(kubectl_gets(&[word]), (vec![], ONLY), "{word}");
    }
    assert_eq!(suggested(&["completion", "--kubeco"]), [""; 0], "completion reads no data");
    assert_eq!(suggested(&["ipam", "sho"]), ["show"]);
    assert_eq!(suggested(&["ipam", "check", "--fail-on", "nev"]), ["never"]);
}

#[test]
fn the_plugin_calico_has_its_commands_below_ipam() {
    let folder = tempfile::tempdir().unwrap();
    link_all(folder.path());
    let asked =
        |words: &[&str]| Run::of(command(folder.path().join("kubectl_complete-calico")).args(words)).stdout;
    assert!(asked(&[""]).starts_with("ipam\t"), "{}", asked(&[""]));
    // `help` is the only other command. The last line is the directive.
    assert_eq!(asked(&[""]).lines().count(), 3, "{}", asked(&[""]));
    assert!(asked(&[""]).contains("\nhelp\t"), "{}", asked(&[""]));
    assert!(asked(&["ipam", "rel"]).starts_with("release\t"));
    assert_eq!(asked(&["che"]), ":36\n");
}

#[test]
fn files_are_left_to_the_shell() {
    assert_eq!(kubectl_gets(&["check", "--ignore", ""]), (vec![], 0));
    assert_eq!(kubectl_gets(&["check", "--config="]), (vec![], 0));
    assert_eq!(kubectl_gets(&["export", ""]), (vec![], 0));
    assert_eq!(kubectl_gets(&["rebuild", "--output-dir", ""]), (vec![], 16));
    let (places, directive) = kubectl_gets(&["check", "--datastore", "kub"]);
    assert_eq!((places.len(), directive), (1, ONLY), "{places:?}");
    assert_eq!(suggested(&["check", "-d", "docs/examples/cl"]), ["docs/examples/cluster.jsonl"]);
}

#[test]
fn a_variable_by_chance_changes_nothing() {
    for value in ["1", "true", "bash", "zsh"] {
        let mut check = command(crate::cli::PROGRAM);
        let run = Run::of(check.args(["explain", "orphan-handle"]).env("COMPLETE", value));
        assert_eq!(run.stdout, calipam(&["explain", "orphan-handle"]).stdout, "{value}");
    }
}

#[test]
fn nonsense_on_the_line_gives_no_error() {
    for words in [
        &["check", "--nonsense", ""][..],
        &["check", "--", ""],
        &["--output", "nonsense", "chec"],
        &["check", "--etcd-endpoints", "::::", "--node", ""],
        &["check", "--datastore", "/does/not/exist", "--node", ""],
        &["check", "--config", "/does/not/exist", "--handle=", ""],
        &["\u{7}", "ä", "--ä=", ""],
    ] {
        let (found, _) = kubectl_gets(words);
        assert!(found.iter().all(|line| !line.contains("error")), "{words:?}: {found:?}");
    }
}
