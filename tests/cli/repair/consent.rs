//! Nothing is written without consent.

use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, Pod};

use super::site::*;
use crate::cli::pty::{Terminal, interrupt};

const RELEASE: [&str; 6] = ["release", "--leaked", "--grace", "0", "--settle", "0"];

#[test]
fn without_a_terminal_yes_is_needed() {
    let (site, _) = Site::leaky();
    let before = site.dump();
    let run = site.run(&RELEASE).exits(2);
    assert!(run.stdout.ends_with("Plan: 2 addresses, 2 blocks, 1 handle\n"), "{run:?}");
    let says = "error: confirmation needed, but stdin is not a terminal\nhint: use `calipam release --leaked";
    assert!(run.stderr.contains(says), "{run:?}");
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

#[test]
fn only_a_yes_is_a_yes() {
    let (site, _) = Site::leaky();
    let before = site.dump();
    for answer in ["n\n", "\n", "\u{4}", "yess\n"] {
        site.asked(&RELEASE, answer).exits(1).shows("error: aborted; nothing was changed");
        assert_eq!((site.dump(), site.journals()), (before.clone(), Vec::new()), "{answer:?}");
    }
}

#[test]
fn the_question_names_the_cluster_and_the_number_of_changes() {
    let (site, pod) = Site::leaky();
    let shown = site.asked(&RELEASE, "y\n").exits(0);
    let plan = shown.text.find("release-address").expect("the plan is shown");
    let question = format!(
        "Change 2 addresses, 2 blocks and 1 handle of cluster 0f0e1d2c3b4a59687786951423324150 at {}? [y/N] ",
        site.etcd.endpoint()
    );
    let asked = shown.text.find(&question).unwrap_or_else(|| panic!("{question}: {}", shown.text));
    let done = shown.text.find("Done: 2 of 2 steps").unwrap_or_else(|| panic!("{}", shown.text));
    assert!(plan < asked && asked < done, "{}", shown.text);
    assert!(!recorded(&site.dump()).contains_key(&pod.address()));

    let journal = site.journals().pop().unwrap();
    let released = site.dump();
    let refused = site.asked(&["undo", journal.to_str().unwrap()], "n\n");
    assert_eq!((refused.code, site.dump()), (Some(1), released), "{refused:?}");
    assert!(refused.text.contains("Change 2 blocks and 1 handle of cluster"), "{refused:?}");
}

/// The plan is shown before the question, even with `-o json`.
#[test]
fn the_plan_is_shown_before_the_question_in_every_form() {
    let (site, pod) = Site::leaky();
    let released = site.asked(&[&RELEASE[..], &["-o", "json"]].concat(), "y\n");
    let journal = site.journals().pop().unwrap();
    let undone = site.asked(&["undo", journal.to_str().unwrap(), "-o", "yaml"], "y\n");
    let cases = [
        (released, format!("release-address  {}", pod.address()), "\"kind\": \"ReleasePlan\""),
        (undone, format!("create-handle  /calico/ipam/v2/handle/{}", pod.handle), "kind: UndoPlan"),
    ];
    for (shown, row, document) in cases {
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let place = |text: &str| shown.text.find(text).unwrap_or_else(|| panic!("{text}: {}", shown.text));
        assert!(place(&row) < place("[y/N]") && place("[y/N]") < place(document), "{}", shown.text);
    }
}

/// Addresses that come into use while the question is open are kept, since the plan is checked again after the answer.
#[test]
fn changes_that_are_outdated_at_the_answer_are_skipped() {
    let mut cluster = healthy();
    let pod = cluster.add_pod_on(0);
    let endpoint = cluster.remove(&pod.endpoint).value();
    let other = leak(&mut cluster, 1);
    let node = cluster.nodes()[2].name.clone();
    let node_object = cluster.remove(&key::node(&node)).value();
    let all = cluster.keys().map(|key| String::from_utf8(key.to_vec()).unwrap());
    let of_node = format!("/{}-k8s-", node.replace('-', "--"));
    let endpoints: Vec<String> = all.filter(|key| key.contains(&of_node)).collect();
    assert_eq!(endpoints.len(), 4);
    endpoints.iter().for_each(|key| drop(cluster.remove(key)));
    let site = Site::of(&cluster);
    let before = site.dump();
    let shown = site.asked_while("[y/N] ", &RELEASE, "y\n", || {
        site.put(&pod.endpoint, endpoint);
        site.put(&key::node(&node), node_object);
    });
    shown.exits(1).shows("not done: ").shows("Done: 2 of 6 steps; 4 steps aborted (conflict)");
    let mut expected = recorded(&before);
    other.addresses.iter().for_each(|(address, _)| drop(expected.remove(address)));
    let after = site.dump();
    assert_eq!(recorded(&after), expected);
    let affinity = key::affinity("host", &node, cluster.nodes()[2].blocks[0]);
    assert_eq!(after[&affinity], before[&affinity]);
}

/// Ctrl-c at the question changes nothing.
#[test]
fn ctrl_c_is_no_consent() {
    let (site, _) = Site::leaky();
    let before = site.dump();
    let mut command = site.command(&RELEASE);
    let command = command.env("TERM", "dumb");
    Terminal::new(200).converse(command, "[y/N] ", |_, program| interrupt(program)).exits(130);
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

#[test]
fn a_brake_for_cron() {
    let (site, _) = Site::leaky();
    let before = site.dump();
    let run = site.release(&["--leaked", "--max-changes", "1"]).exits(1);
    let says = "the plan makes 2 changes, more than the limit of 1; nothing was changed\nhint: ";
    assert!(run.stderr.contains(says), "{run:?}");
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
    let run = site.release(&["--leaked", "--max-changes", "2"]).succeeded();
    let released = site.dump();
    let undo = site.run(&["undo", &journal_of(&run), "--yes", "--max-changes", "1"]);
    assert_eq!((undo.code, site.dump()), (1, released), "{undo:?}");
}

/// A dry run reports the refusal that a run would report, with the same exit code.
#[test]
fn the_limit_counts_in_a_dry_run() {
    let (site, _) = Site::leaky();
    let dry = |limit| site.run(&[&RELEASE[..], &["--dry-run", "--max-changes", limit]].concat());
    let refused = dry("1").exits(1).prints("Plan: 2 addresses");
    let told = "warning: the plan makes more changes than --max-changes 1: it would be refused";
    assert!(refused.stderr.contains(told), "{refused:?}");
    assert_eq!(dry("2").code, 0);

    let run = site.release(&["--leaked"]);
    let undo = |limit| site.run(&["undo", &journal_of(&run), "--dry-run", "--max-changes", limit]);
    assert_eq!((undo("1").code, undo("3").code), (1, 0));
    let other = site.run(&["rebuild", "--max-changes", "0", "--grace", "0", "--settle", "0"]);
    assert_eq!(other.code, 0, "an empty plan is within every limit: {other:?}");
}

/// Refusals come before the wait for the grace period. Otherwise, this test would take an hour.
#[test]
fn refusals_come_before_the_wait() {
    let (site, _) = Site::leaky();
    let before = site.dump();
    let waiting = ["release", "--leaked", "--grace", "1h", "--settle", "0"];
    // A file is not a folder for a journal.
    let file = site.home.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let journal = file.join("run.journal");
    let cases: [(&[&str], i32, &str); 3] = [
        (&[], 2, "use `calipam release --leaked --grace 1h --settle 0 --yes`"),
        (&["--yes", "--max-changes", "1"], 1, "the plan makes 2 changes, more than the limit of 1"),
        (&["--yes", "--journal", journal.to_str().unwrap()], 3, "cannot write the journal "),
    ];
    for (more, code, told) in cases {
        let run = site.run(&[&waiting[..], more].concat()).exits(code);
        assert!(run.stderr.contains(told) && !run.stderr.contains("rechecking"), "{run:?}");
    }
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

/// At the question, the user has seen the complete plan, or can list it.
#[test]
fn a_long_plan_can_be_listed_at_the_question() {
    let mut cluster = Cluster::plain(*healthy().spec(), 30, 1);
    let leaked: Vec<Pod> = (0..30).map(|node| leak(&mut cluster, node)).collect();
    let site = Site::of(&cluster);
    let before = site.dump();
    let shown = site.asked_while("[y/N/l] ", &RELEASE, "l\nn\n", || ()).exits(1);
    assert_eq!(site.dump(), before, "{shown:?}");
    let parts: Vec<&str> = shown.text.split("[y/N/l] ").collect();
    assert_eq!(parts.len(), 3, "asked, listed, asked again: {}", shown.text);
    let lists = |text: &str, pod: &Pod| text.contains(&format!("release-address  {} ", pod.address()));
    assert!(leaked.iter().all(|pod| lists(parts[1], pod)), "{}", parts[1]);
    assert!(leaked.iter().any(|pod| !lists(parts[0], pod)), "{}", parts[0]);
    // A short plan is shown completely.
    let (site, _) = Site::leaky();
    let short = site.asked(&RELEASE, "l\n");
    assert_eq!((short.code, short.text.matches("[y/N").count()), (Some(1), 1), "{short:?}");
}

#[test]
fn a_dry_run_changes_nothing() {
    let (site, _) = Site::leaky();
    let before = site.dump();
    for extra in [vec!["--dry-run"], vec!["--dry-run", "--yes", "--lock"]] {
        let run = site.run(&[&RELEASE[..], &extra].concat()).succeeded();
        let says = "dry run: nothing was changed\nhint: `calipam release --leaked --grace 0 --settle 0";
        assert!(run.stderr.contains(says), "{run:?}");
        assert_eq!((site.dump(), site.journals()), (before.clone(), Vec::new()));
    }
}
