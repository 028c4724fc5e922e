//! The suggestions at each position of a command line, and the completion scripts of shells.

use std::os::unix::fs::symlink;

use super::super::program::{Run, calipam, command, prepare};
use super::{NAMES, kubectl_gets, link_all, suggested};

/// The directive that the shell must use only the suggestions, in this order.
const ONLY: u8 = 4 + 32;

#[test]
fn commands_options_and_fixed_values() {
    for (line, suggestion) in [
        ("sho", "show"),
        ("check --fail-on w", "warning"),
        ("check --fail-on=w", "warning"),
        ("check --rule leak", "leaked-address"),
        ("check --rule=leak", "leaked-address"),
        ("check --rule orphan-handle,leak", "orphan-handle,leaked-address"),
        (
            "check --skip-rule=orphan-handle,leak",
            "orphan-handle,leaked-address",
        ),
        ("explain leak", "leaked-address"),
        ("-o y", "yaml"),
        ("-oy", "-oyaml"),
        ("check -d docs/examples/cl", "docs/examples/cluster.jsonl"),
        ("ipam sho", "show"),
        ("ipam check --fail-on nev", "never"),
    ] {
        assert_eq!(suggested(line), [suggestion], "{line}");
    }
    let expected = (vec!["warning\tInconsistent data".to_owned()], ONLY);
    assert_eq!(kubectl_gets("check --fail-on warn"), expected);
}

#[test]
fn commands_are_offered_before_options() {
    let first = suggested("");
    for command in ["check", "show", "release", "rebuild", "undo", "export", "explain"] {
        assert!(first.contains(&command.to_owned()), "{command}: {first:?}");
    }
    assert!(
        first
            .iter()
            .all(|word| !word.starts_with(['-', '_']) && word != "ipam"),
        "{first:?}"
    );
    let options = suggested("--");
    assert!(options.contains(&"--output".to_owned()), "{options:?}");
    assert!(options.iter().all(|w| w.starts_with("--")), "{options:?}");
    assert!(
        suggested("check ").contains(&"--rule".to_owned()),
        "check has nothing but options"
    );
    assert!(suggested("explain ").iter().all(|word| !word.starts_with('-')));
}

#[test]
fn hidden_options_are_not_suggested() {
    for word in ["ipam", "ip", "__", "__complete"] {
        assert_eq!(kubectl_gets(word), (vec![], ONLY), "{word}");
    }
    assert_eq!(
        suggested("completion --kubeco"),
        [""; 0],
        "completion reads no data"
    );
}

#[test]
fn the_plugin_calico_has_its_commands_below_ipam() {
    let folder = tempfile::tempdir().unwrap();
    link_all(folder.path());
    let asked = |line: &str| {
        Run::of(command(folder.path().join("kubectl_complete-calico")).args(line.split(' '))).stdout
    };
    let first = asked("");
    // `help` is the only other command. The last line is the directive.
    assert!(
        first.starts_with("ipam\t") && first.contains("\nhelp\t"),
        "{first}"
    );
    assert_eq!(first.lines().count(), 3, "{first}");
    assert!(asked("ipam rel").starts_with("release\t"));
    assert_eq!(asked("che"), ":36\n");
}

#[test]
fn files_are_left_to_the_shell() {
    for (line, directive) in [
        ("check --ignore ", 0),
        ("check --config=", 0),
        ("export ", 0),
        ("rebuild --output-dir ", 16),
    ] {
        assert_eq!(kubectl_gets(line), (vec![], directive), "{line}");
    }
    let (places, directive) = kubectl_gets("check --datastore kub");
    assert_eq!((places.len(), directive), (1, ONLY), "{places:?}");
}

#[test]
fn a_variable_by_chance_changes_nothing() {
    for value in ["1", "true", "bash", "zsh"] {
        let run = Run::of(prepare("explain orphan-handle").env("COMPLETE", value));
        assert_eq!(run.stdout, calipam("explain orphan-handle").stdout, "{value}");
    }
}

#[test]
fn nonsense_on_the_line_gives_no_error() {
    for line in [
        "check --nonsense ",
        "check -- ",
        "--output nonsense chec",
        "check --etcd-endpoints :::: --node ",
        "check --datastore /does/not/exist --node ",
        "check --config /does/not/exist --handle= ",
        "\u{7} ä --ä= ",
    ] {
        let (found, _) = kubectl_gets(line);
        assert!(
            found.iter().all(|line| !line.contains("error")),
            "{line}: {found:?}"
        );
    }
}

#[test]
fn after_two_dashes_two_more_are_an_argument() {
    let (shells, _) = kubectl_gets("completion -- bas");
    assert_eq!(shells, ["bash"]);
    let (after_argument, _) = kubectl_gets("completion -- -- bas");
    assert!(after_argument.is_empty(), "{after_argument:?}");
}

#[test]
fn every_shell_gets_a_script_for_each_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in NAMES {
        let link = folder.path().join(name);
        symlink(crate::cli::PROGRAM, &link).unwrap();
        for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
            let run = Run::of(command(&link).args(["completion", shell]))
                .succeeded()
                .says_nothing();
            let packaged = calipam::completion_scripts().find(|(file, _)| *file == format!("{name}.{shell}"));
            assert!(
                packaged.unwrap().1 == run.stdout.as_bytes(),
                "{name}.{shell}: {}",
                run.stdout
            );
            assert!(
                run.stdout.len() < 2000,
                "{name}.{shell}: the script asks the program, and is small"
            );
        }
    }
}

#[test]
fn a_shell_can_ask_for_the_script_as_clap_has_it() {
    Run::of(prepare("").env("COMPLETE", "/usr/bin/fish"))
        .succeeded()
        .prints("complete ")
        .prints("calipam");
}
