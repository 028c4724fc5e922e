//! `undo --list` and `--last`: the journals of a user.

use serde_json::Value;

use super::site::*;
use crate::cli::program::Run;

fn journals(site: &Site, more: &[&str]) -> (Run, Vec<Value>) {
    let run = site.run(&[&["undo", "--list", "-o", "json"], more].concat());
    let list = run.json();
    assert_eq!(list["kind"], "JournalList", "{run:?}");
    (run, list["journals"].as_array().unwrap().clone())
}

#[test]
fn the_last_run_is_undone_in_its_cluster() {
    let mut cluster = healthy();
    let [first, second] = [leak(&mut cluster, 0), leak(&mut cluster, 1)];
    let site = Site::of(&cluster);
    site.run(&["undo", "--last", "--yes"]).failed(1, "error: there is no run to undo in ");

    let before = site.dump();
    for pod in [&first, &second] {
        assert_eq!(site.release(&["--handle", &pod.handle]).code, 0);
    }
    let released = site.dump();
    let (_, listed) = journals(&site, &[]);
    let of = |journal: &Value, name: &str| journal[name].as_str().unwrap().to_owned();
    assert_eq!(listed.len(), 2);
    assert!(
        listed.iter().all(|j| of(j, "command") == "release --handle" && of(j, "state") == "ended"),
        "{listed:?}"
    );
    assert!(of(&listed[0], "startedAt") > of(&listed[1], "startedAt"));
    assert!(listed.iter().all(|j| j["objects"].as_u64().unwrap() > 1 && j["undone"] == false), "{listed:?}");

    // The environment names another cluster, but the journal contains the location of the cluster that was changed.
    let last = |more: &[&str]| {
        let mut command = site.command(&[&["undo", "--last", "--yes"], more].concat());
        Run::of(command.env("ETCD_ENDPOINTS", "http://127.0.0.1:1"))
    };
    let undone = last(&[]).succeeded();
    let told = format!("connecting to the journal's datastore: etcd {}\n", site.etcd.endpoint());
    assert!(undone.stderr.starts_with(&told), "{undone:?}");
    assert!(recorded(&site.dump()).contains_key(&second.address()));
    assert!(!recorded(&site.dump()).contains_key(&first.address()), "only the last one");

    // The next run to undo is the earlier one. The undo itself and the run that was undone do not count.
    let again = last(&["--etcd-endpoints", &site.etcd.endpoint()]);
    assert_eq!((again.code, values(&site.dump())), (0, values(&before)), "{again:?}");
    let (_, listed) = journals(&site, &[]);
    let states: Vec<bool> = listed.iter().map(|journal| journal["undone"] == true).collect();
    assert_eq!(states, [false, false, true, true], "{listed:?}");
    assert_eq!(last(&[]).code, 1, "nothing is left to undo");

    // An undo can be undone by the name of its journal. This repeats the undone run.
    assert_eq!(site.undo(&of(&listed[1], "journal")).code, 0);
    let redone = recorded(&released);
    assert!(recorded(&site.dump()).len() == redone.len() + first.addresses.len());
}

#[test]
fn the_last_run_is_that_of_the_named_cluster() {
    let mut cluster = healthy();
    leak(&mut cluster, 0);
    let site = Site::of(&cluster);
    site.release(&["--leaked"]).succeeded();
    let other = Site::of(&cluster);
    let path = "/calico/resources/v3/projectcalico.org/clusterinformations/default";
    let information = String::from_utf8(other.value(path).unwrap()).unwrap();
    other.put(path, information.replace("0f0e1d2c", "ffffffff"));
    site.run(&["undo", "--last", "--yes", "--etcd-endpoints", &other.etcd.endpoint()])
        .failed(1, "there is no run of cluster ffffffff");
}

/// With `--quiet`, as in cron, a run prints nothing if it changes nothing. Otherwise, it prints its journal.
#[test]
fn quiet_is_quiet_where_nothing_was_done() {
    let mut cluster = healthy();
    let site = Site::of(&cluster);
    let quiet = |site: &Site, arguments: &[&str]| site.run(&[arguments, &["--settle", "0", "-q"]].concat());
    for arguments in [&["check"][..], &["release", "--leaked", "--yes"], &["rebuild"]] {
        let run = quiet(&site, arguments);
        let expected = (0, "", "");
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), expected, "{arguments:?}: {run:?}");
        let json = quiet(&site, &[arguments, &["-o", "json"]].concat());
        assert!(json.stdout.starts_with('{'), "a document is printed at any rate: {json:?}");
    }
    leak(&mut cluster, 0);
    let site = Site::of(&cluster);
    assert!(quiet(&site, &["check", "--grace", "0"]).stdout.contains("leaked-address"));
    let run = quiet(&site, &["release", "--leaked", "--yes", "--grace", "0"]);
    let journal = site.journals().pop().unwrap();
    assert!(run.code == 0 && run.stderr.ends_with(&format!("\njournal: {}\n", journal.display())), "{run:?}");
}

#[test]
fn the_undo_hint_is_printed_once() {
    let site = Site::of(&healthy());
    for arguments in [&["undo"][..], &["undo", "x", "--last"], &["undo", "--last", "--list"]] {
        site.run(arguments).exits(2).prints_nothing();
    }
    let alone = site.run(&["undo"]).stderr;
    assert!(alone.contains("undo --last` undoes the newest run"), "{alone}");
    assert!(alone.contains("undo --list` lists"), "{alone}");
}
