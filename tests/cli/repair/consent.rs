//! Nothing is written without consent.

use std::io::Write;

use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, Pod};

use super::site::*;
use crate::cli::pty::{Shown, Terminal};

fn leaky() -> (Cluster, Pod) {
    let mut cluster = healthy();
    let pod = leak(&mut cluster, 0);
    (cluster, pod)
}

const RELEASE: [&str; 6] = ["release", "--leaked", "--grace", "0", "--settle", "0"];

/// Runs the program on a terminal on which `answer` is typed when it asks.
fn answered(site: &Site, arguments: &[&str], answer: &str) -> Shown {
    let mut command = site.command(arguments);
    Terminal::new(200).converse(command.env("TERM", "dumb"), "[y/N] ", |terminal, _| {
        terminal.write_all(answer.as_bytes()).unwrap();
    })
}

#[test]
fn without_a_terminal_yes_is_needed() {
    let (cluster, _) = leaky();
    let site = Site::of(&cluster);
    let before = site.dump();
    let run = site.run(&RELEASE);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stdout.ends_with("Plan: 2 addresses, 2 blocks, 1 handle\n"), "{run:?}");
    assert!(
        run.stderr.contains("error: confirmation needed, but stdin is not a terminal\nhint: use `--yes`"),
        "{run:?}"
    );
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

#[test]
fn only_a_yes_is_a_yes() {
    let (cluster, _) = leaky();
    let site = Site::of(&cluster);
    let before = site.dump();
    for answer in ["n\n", "\n", "\u{4}", "yess\n"] {
        let shown = answered(&site, &RELEASE, answer);
        assert_eq!(shown.code, Some(1), "{shown:?}");
        assert!(shown.text.contains("error: aborted; nothing was changed"), "{shown:?}");
        assert_eq!((site.dump(), site.journals()), (before.clone(), Vec::new()), "{answer:?}");
    }
}

#[test]
fn the_question_says_where_and_how_much() {
    let (cluster, pod) = leaky();
    let site = Site::of(&cluster);
    let shown = answered(&site, &RELEASE, "y\n");
    assert_eq!(shown.code, Some(0), "{shown:?}");
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
    let refused = answered(&site, &["undo", journal.to_str().unwrap()], "n\n");
    assert_eq!((refused.code, site.dump()), (Some(1), released), "{refused:?}");
    assert!(refused.text.contains("Change 2 blocks and 1 handle of cluster"), "{refused:?}");
}

/// Whoever is asked sees what about, also where the answer of the program is JSON.
#[test]
fn the_plan_is_shown_before_the_question_in_every_form() {
    let (cluster, pod) = leaky();
    let site = Site::of(&cluster);
    let released = answered(&site, &[&RELEASE[..], &["-o", "json"]].concat(), "y\n");
    let journal = site.journals().pop().unwrap();
    let undone = answered(&site, &["undo", journal.to_str().unwrap(), "-o", "yaml"], "y\n");
    let cases = [
        (released, format!("release-address  {}", pod.address()), "\"kind\": \"ReleasePlan\""),
        (undone, format!("create   /calico/ipam/v2/handle/{}", pod.handle), "kind: UndoPlan"),
    ];
    for (shown, row, document) in cases {
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let place = |text: &str| shown.text.find(text).unwrap_or_else(|| panic!("{text}: {}", shown.text));
        assert!(place(&row) < place("[y/N]") && place("[y/N]") < place(document), "{}", shown.text);
    }
}

/// What comes back while the operator thinks is kept: the evidence is looked at again.
#[test]
fn what_has_changed_before_the_answer_is_given_up() {
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
    let mut command = site.command(&[&RELEASE[..], &["--node", &node]].concat());
    let shown = Terminal::new(200).converse(command.env("TERM", "dumb"), "[y/N] ", |terminal, _| {
        site.put(&pod.endpoint, endpoint);
        site.put(&key::node(&node), node_object);
        terminal.write_all(b"y\n").unwrap();
    });
    assert_eq!(shown.code, Some(1), "{shown:?}");
    assert!(
        shown.text.contains("not done: ") && shown.text.contains("Done: 2 of 6 steps; 4 were given up"),
        "{shown:?}"
    );
    let mut expected = recorded(&before);
    other.addresses.iter().for_each(|(address, _)| drop(expected.remove(address)));
    let after = site.dump();
    assert_eq!(recorded(&after), expected);
    let affinity = key::affinity("host", &node, cluster.nodes()[2].blocks[0]);
    assert_eq!(after[&affinity], before[&affinity]);
}

/// Ctrl-c at the question ends it, and nothing has happened.
#[test]
fn ctrl_c_is_no_consent() {
    let (cluster, _) = leaky();
    let site = Site::of(&cluster);
    let before = site.dump();
    let mut command = site.command(&RELEASE);
    let shown = Terminal::new(200).converse(command.env("TERM", "dumb"), "[y/N] ", |_, program| {
        let program = rustix::process::Pid::from_child(program);
        rustix::process::kill_process(program, rustix::process::Signal::INT).unwrap();
    });
    assert_eq!(shown.code, Some(130), "{shown:?}");
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

#[test]
fn a_brake_for_cron() {
    let (cluster, _) = leaky();
    let site = Site::of(&cluster);
    let before = site.dump();
    let run = site.release(&["--leaked", "--max-changes", "1"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr
            .contains("the plan makes 2 changes, more than the limit of 1; nothing was changed\nhint: "),
        "{run:?}"
    );
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
    let run = site.release(&["--leaked", "--max-changes", "2"]);
    assert_eq!(run.code, 0, "{run:?}");
    let released = site.dump();
    let undo = site.run(&["undo", &journal_of(&run), "--yes", "--max-changes", "1"]);
    assert_eq!((undo.code, site.dump()), (1, released), "{undo:?}");
}

#[test]
fn a_dry_run_changes_nothing() {
    let (cluster, _) = leaky();
    let site = Site::of(&cluster);
    let before = site.dump();
    for extra in [vec!["--dry-run"], vec!["--dry-run", "--yes", "--lock"]] {
        let run = site.run(&[&RELEASE[..], &extra].concat());
        assert_eq!(run.code, 0, "{run:?}");
        assert!(
            run.stderr.contains("dry run: nothing was changed\nhint: without `--dry-run` it is carried out"),
            "{run:?}"
        );
        assert_eq!((site.dump(), site.journals()), (before.clone(), Vec::new()));
    }
}
