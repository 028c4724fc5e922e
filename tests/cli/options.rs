//! Options and words that all commands share: calicoctl's spellings, `help`, `version` and durations.

use super::program::{EXAMPLE, calipam, example, expected, file, items, on_example};
use serde_json::{Value, json};

#[test]
fn calicoctl_s_spellings_are_understood() {
    for (theirs, ours) in [
        ("show --show-blocks", "show --blocks"),
        ("ipam show --show-borrowed", "show --borrowed"),
        ("show --show-configuration", "show --configuration"),
    ] {
        let (theirs, ours) = (on_example(theirs), on_example(ours));
        assert_eq!((theirs.code, theirs.stdout), (ours.code, ours.stdout));
    }
    for line in [
        format!("ipam check --datastore {EXAMPLE}"),
        format!("--datastore {EXAMPLE} ipam check"),
    ] {
        assert_eq!(
            calipam(&line).transcript(),
            on_example("check").transcript(),
            "{line}"
        );
    }
}

#[test]
fn help_is_a_command() {
    assert_eq!(calipam("help show").stdout, calipam("show --help").stdout);
    assert_eq!(calipam("help").stdout, calipam("--help").stdout);
    calipam("help chek").exits(2);
}

#[test]
fn the_version_says_what_is_read() {
    expected!("version", calipam("version").transcript());
    assert_eq!(
        calipam("--version").stdout,
        format!("calipam {}\n", env!("CARGO_PKG_VERSION"))
    );
    let json = calipam("version -o json").json();
    assert_eq!(
        (&json["kind"], &json["program"]),
        (&"Version".into(), &"calipam".into())
    );
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["commit"].is_string(), "{json}");
    assert_eq!(items(&json["reads"]["datastores"]).len(), 4, "{json}");
    let header: Value = serde_json::from_str(example().lines().next().unwrap()).unwrap();
    assert_eq!(json["reads"]["exportVersion"], header["version"], "{json}");
    assert_eq!(json["cluster"], Value::Null, "no cluster is asked");
}

#[test]
fn a_version_of_calico_is_known_or_not() {
    let newer = "note: Calico v3.99.0 is newer than calipam supports (up to v3.";
    for (version, is_known, said) in [
        (
            "v3.32.1",
            true,
            "Cluster     Calico v3.32.1, which calipam knows\n",
        ),
        (
            "v3.99.0",
            false,
            "Cluster     Calico v3.99.0, which calipam does not know\n",
        ),
        ("", false, "Cluster     does not name its Calico version\n"),
    ] {
        let field = |version| format!("\"calicoVersion\":\"{version}\"");
        let (_folder, file) = file(
            "cluster.jsonl",
            example().replace(&field("v3.32.1"), &field(version)),
        );
        calipam(&format!("version --check-compat -d {file}"))
            .exits(i32::from(!is_known))
            .prints_last(said);
        let json = calipam(&format!("version --check-compat -d {file} -o json")).json();
        assert_eq!(
            json["cluster"],
            json!({"calicoVersion": version, "isKnown": is_known})
        );
        let check = calipam(&format!("check -d {file}"));
        assert_eq!(check.stderr.contains(newer), version == "v3.99.0", "{check:?}");
    }
    calipam("version --check-compat --datastore nowhere.jsonl").exits(3);
}

#[test]
fn grace_is_a_duration_and_counts() {
    let leaks = |grace: &str| {
        let run = on_example(&format!("check --rule leaked-address -o json --grace {grace}"));
        run.column("findings", "code").len()
    };
    assert_eq!((leaks("1d"), leaks("365d")), (leaks("24h"), leaks("8760h")));
    assert!(leaks("1d") > leaks("365d"));
    assert!(leaks("0") >= leaks("15m") && leaks("15m") > leaks("999999h"));
}
