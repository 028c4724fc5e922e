//! Nothing is written without consent.

use super::migrate::{leave, spec};
use super::site::*;
use crate::cli::pty::Shown;

const RELEASE: [&str; 6] = ["release", "--leaked", "--grace", "0", "--settle", "0"];

#[test]
fn nothing_is_written_without_a_yes() {
    let (site, pod) = Site::leaky();
    let before = site.dump();
    let is_unchanged = |why: &str| {
        assert_eq!(
            (site.dump(), site.journals()),
            (before.clone(), Vec::new()),
            "{why}"
        );
    };

    let run = site
        .run(&RELEASE)
        .exits(2)
        .prints_last("Plan: 2 addresses, 2 blocks, 1 handle\n");
    run.says("error: confirmation needed, but stdin is not a terminal\nhint: use `calipam release --leaked");
    is_unchanged("without a terminal");
    for answer in ["n\n", "\n", "\u{4}", "yess\n"] {
        site.asked(&RELEASE, answer)
            .exits(1)
            .shows("error: aborted; nothing was changed");
        is_unchanged(answer);
    }
    let mut command = site.command(&RELEASE);
    let command = command.env("TERM", "dumb");
    Terminal::new(200)
        .converse(command, "[y/N] ", |_, program| interrupt(program))
        .exits(130);
    is_unchanged("ctrl-c");
    // A short plan is shown completely, so it cannot be listed.
    let short = site.asked(&RELEASE, "l\n");
    assert_eq!(
        (short.code, short.text.matches("[y/N").count()),
        (Some(1), 1),
        "{short:?}"
    );
    for extra in [&["--dry-run"][..], &["--dry-run", "--yes", "--lock"]] {
        let says = "dry run: nothing was changed\nhint: `calipam release --leaked --grace 0 --settle 0";
        site.run(&[&RELEASE[..], extra].concat()).succeeded().says(says);
        is_unchanged("dry run");
    }

    // Refusals and dry runs do not wait for the grace period. Otherwise, this test would take an hour.
    let waiting = ["release", "--leaked", "--grace", "1h", "--settle", "0"];
    // A file is not a folder for a journal.
    let file = site.home.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let journal = file.join("run.journal");
    let cases: [(&[&str], i32, &str); 4] = [
        (
            &[],
            2,
            "use `calipam release --leaked --grace 1h --settle 0 --yes`",
        ),
        (
            &["--yes", "--max-changes", "1"],
            1,
            "the plan makes 2 changes, more than the limit of 1",
        ),
        (
            &["--yes", "--journal", journal.to_str().unwrap()],
            3,
            "cannot write the journal ",
        ),
        (
            &["--dry-run"],
            0,
            "the plan assumes that a second check, 1h later, finds the same",
        ),
    ];
    for (more, code, told) in cases {
        let run = site
            .run(&[&waiting[..], more].concat())
            .exits(code)
            .says(told)
            .does_not_say("rechecking");
        if code == 0 {
            run.says("2 addresses or handles were found unused once; ")
                .prints(&format!("release-address  {}", pod.address()));
        }
    }
    is_unchanged("before the wait");
}

/// The plan is shown before the question, even with `-o json`.
#[test]
fn the_question_names_the_cluster_and_the_number_of_changes_after_the_plan() {
    let (site, pod) = Site::leaky();
    let in_order = |shown: Shown, texts: [&str; 3]| {
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let place = |text| {
            shown
                .text
                .find(text)
                .unwrap_or_else(|| panic!("{text}: {}", shown.text))
        };
        let [plan, question, result] = texts.map(place);
        assert!(plan < question && question < result, "{}", shown.text);
    };
    let question = format!(
        "Change 2 addresses, 2 blocks and 1 handle of cluster 0f0e1d2c3b4a59687786951423324150 at {}? [y/N] ",
        site.etcd.endpoint()
    );
    in_order(
        site.asked(&RELEASE, "y\n"),
        ["release-address", &question, "Done: 2 of 2 steps"],
    );
    let released = site.dump();
    assert!(!recorded(&released).contains_key(&pod.address()));

    let journal = site.journals().pop().unwrap();
    let undo = ["undo", journal.to_str().unwrap(), "-o", "yaml"];
    site.asked(&undo[..2], "n\n")
        .exits(1)
        .shows("Change 2 blocks and 1 handle of cluster");
    assert_eq!(site.dump(), released);

    let restored = format!("create-handle  /calico/ipam/v2/handle/{}", pod.handle);
    in_order(site.asked(&undo, "y\n"), [&restored, "[y/N]", "kind: UndoPlan"]);
    let planned = format!("release-address  {}", pod.address());
    let shown = site.asked(&[&RELEASE[..], &["-o", "json"]].concat(), "y\n");
    in_order(shown, [&planned, "[y/N]", "\"kind\": \"ReleasePlan\""]);
}

/// A cluster's GUID could erase the question and show another one.
#[test]
fn the_question_shows_hostile_text_escaped() {
    let (site, _) = Site::leaky();
    let mut information = site.json(INFORMATION);
    information["spec"]["clusterGUID"] = "0f0e\r\u{1b}[2K\u{202e}\u{e0041}".into();
    site.put(INFORMATION, information.to_string());
    let shown = site.asked(&RELEASE, "n\n").exits(1);
    let shown = shown.shows_wrapped("of cluster 0f0e\\r\\u{1b}[2K\\u{202e}\\u{e0041} at http://");
    assert!(
        !shown.text.contains(['\u{1b}', '\u{202e}', '\u{e0041}']),
        "{shown:?}"
    );
}

/// Another run releases the same addresses while the question is open.
#[test]
fn many_steps_that_another_run_has_done_are_a_few_lines_and_a_number() {
    let site = Site::of(&Cluster::plain(spec(), 3, 10));
    leave(&site);
    let shown = site.asked_while("[y/N/l] ", &RELEASE, "y\n", || {
        site.release(&["--leaked"]).succeeded();
    });
    let shown = shown
        .exits(1)
        .shows("is already free")
        .shows("more, which the output of `-o json` lists");
    assert_eq!(shown.text.matches("not done: ").count(), 4, "{shown:?}");
    assert_eq!(recorded(&site.dump()).len(), 0);
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
    shown
        .exits(1)
        .shows("not done: ")
        .shows("Done: 2 of 6 steps; 4 steps aborted (conflict)");
    let after = site.dump();
    assert_eq!(recorded(&after), recorded_without(&before, &[other]));
    let affinity = key::affinity("host", &node, cluster.nodes()[2].blocks[0]);
    assert_eq!(after[&affinity], before[&affinity]);
}

/// A dry run reports the refusal that a run would report, with the same exit code.
#[test]
fn a_limit_of_changes_is_a_brake_for_runs_dry_runs_and_undo() {
    let (site, _) = Site::leaky();
    let before = site.dump();
    let says = "the plan makes 2 changes, more than the limit of 1; nothing was changed\nhint: ";
    site.release(&["--leaked", "--max-changes", "1"]).failed(1, says);
    let dry = |limit| site.run(&[&RELEASE[..], &["--dry-run", "--max-changes", limit]].concat());
    let told = "warning: the plan makes more changes than --max-changes 1: it would be refused";
    dry("1")
        .failed(1, told)
        .prints("Plan: 2 addresses")
        .does_not_say("carries it out");
    dry("2").succeeded();
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));

    let run = site.release(&["--leaked", "--max-changes", "2"]).succeeded();
    let released = site.dump();
    let undo = |how, limit| site.run(&["undo", &journal_of(&run), how, "--max-changes", limit]);
    undo("--yes", "1").exits(1);
    undo("--dry-run", "1").exits(1);
    undo("--dry-run", "3").succeeded();
    assert_eq!(site.dump(), released);
    // An empty plan is within every limit.
    site.run_at_once(&["rebuild", "--max-changes", "0"], &[])
        .succeeded();
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
}
