//! A server that stops answering: a person is told, every try shares one budget, and ctrl-c ends the wait.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use calipam_repair::journal::Recorded;
use rustix::process::{Pid, Signal, kill_process};

use super::killed::run_and_kill;
use super::kubernetes::{self, KubeSite, in_each_group};
use super::site::*;
use crate::cli::program::{prepare, started};

/// Reads the rest of a program's stderr, line by line.
fn lines_of(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap)
}

#[test]
fn a_read_says_who_does_not_answer_before_it_fails() {
    // Connections are accepted by the system, but no request is answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let check = format!("check --datastore kubernetes --server {server} --request-timeout 7s");
    let told = format!("note: no answer from {server} for 5 s; waiting for 7 s in all");
    let failed = format!("error: {server}: ");
    for (quiet, expected) in [("", vec![&told, &failed]), (" --quiet", vec![&failed])] {
        let mut child = started(&mut prepare(&(check.clone() + quiet)));
        let lines: Vec<String> = lines_of(&mut child)
            .filter(|line| !line.starts_with("hint: "))
            .collect();
        assert_eq!(child.wait().unwrap().code(), Some(3), "{lines:#?}");
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        assert!(
            lines
                .iter()
                .zip(expected)
                .all(|(line, start)| line.starts_with(start)),
            "{lines:#?}"
        );
        assert!(
            lines.last().unwrap().ends_with("no answer within 7 s"),
            "{lines:#?}"
        );
    }
}

#[test]
fn a_run_that_writes_ends_with_what_is_written_and_what_is_not() {
    let site = many_orphans();
    let before = site.dump();
    let mut child = in_the_middle(&site, &["--request-timeout", "4s"]);
    let lines: Vec<String> = lines_of(&mut child).collect();
    let ended = child.wait_with_output().unwrap();
    site.etcd.resume().unwrap();

    assert_eq!(ended.status.code(), Some(3), "{lines:#?}");
    assert!(
        String::from_utf8_lossy(&ended.stdout).contains(" not started"),
        "{ended:?}"
    );
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    let server = site.etcd.endpoint();
    assert!(
        has(&format!(
            "note: no answer from {server} for 5 s; waiting for 8 s in all"
        )),
        "{lines:#?}"
    );
    // It depends on the moment whether the server hangs in a read or in a write.
    let recorded = Recorded::read(Path::new(&only_journal(&site))).unwrap();
    let is_open = recorded.open_intents().count() > 0;
    assert_eq!(
        has(" not answered and may have been made; the journal shows which"),
        is_open,
        "{lines:#?}"
    );
    assert!(
        has("hint: to go on, run the command again once the datastore answers"),
        "{lines:#?}"
    );
    assert!(has("hint: to restore what was there: "), "{lines:#?}");
    assert!(has("error: ") && has(": no answer within "), "{lines:#?}");

    let gone = handles(&before) - handles(&site.dump());
    assert!(gone > 0 && gone < MANY, "{gone} of {MANY}");
    site.undo(&only_journal(&site))
        .failed(1, "warning: the run of this journal did not finish");
    assert_eq!(values(&site.dump()), values(&before));
}

/// The same on an API server that hangs while handles are deleted one by one.
#[test]
fn a_run_on_kubernetes_ends_with_what_is_written_and_what_is_not() {
    let cluster = healthy().with(Fault::OrphanHandleEmpty, MANY / 2);
    let site = KubeSite::of_large(&cluster, Flavour::Native);
    let etcd = site.server.etcd();
    let prefix = "/registry/projectcalico.org/ipamhandles/";
    let all = etcd.entries_below(prefix).unwrap().len();

    let release = ["release", "--orphan-handles", "--yes", "--request-timeout", "4s"];
    let mut child = started(&mut site.command(&[&release, &AT_ONCE[..]].concat()));
    wait_for_fewer(etcd, prefix, all);
    site.server.pause().unwrap();
    let lines: Vec<String> = lines_of(&mut child).collect();
    let ended = child.wait_with_output().unwrap();
    let left = etcd.entries_below(prefix).unwrap().len();
    site.server.resume().unwrap();

    assert_eq!(ended.status.code(), Some(3), "{lines:#?}");
    assert!(
        String::from_utf8_lossy(&ended.stdout).contains(" not started"),
        "{ended:?}"
    );
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(
        has(&format!(
            "note: no answer from {} for 5 s; waiting for 8 s in all",
            site.server.url()
        )),
        "{lines:#?}"
    );
    assert!(
        has("hint: to go on, run the command again once the datastore answers"),
        "{lines:#?}"
    );
    assert!(has("hint: to restore what was there: "), "{lines:#?}");
    // The limit of the last request and that of the whole run end at the same time.
    assert!(has("error: ") && has(": no answer within "), "{lines:#?}");
    assert!(
        lines.iter().all(|line| !line.contains("/calico/")),
        "no key of etcd: {lines:#?}"
    );
    assert!(left < all && all - left < MANY / 2, "{left} of {all}");
    let journal = only_journal(&site);
    assert!(!Recorded::read(Path::new(&journal)).unwrap().ended);

    // Requests that the server still held can overtake the first undo, but not change what the last one has restored.
    let undone = loop {
        let undone = site.undo(&journal).exits(1);
        if !undone.stdout.contains("aborted (conflict)") && !undone.stdout.contains(" skipped") {
            break undone;
        }
    };
    assert_eq!(etcd.entries_below(prefix).unwrap().len(), all, "{undone:?}");
}

/// A request to write, as a proxy saw it.
#[derive(Clone, Debug)]
struct Held {
    method: String,
    path: String,
    content: String,
}

/// Kills a run at its first write of a kind of object, which the server does not see. Returns that request.
fn killed_at_write(site: &KubeSite, plural: &'static str, method: &'static str, arguments: &[&str]) -> Held {
    let torn = Tearing::kubernetes(&site.server).unwrap();
    let held: Arc<Mutex<Option<Held>>> = Arc::default();
    let seen_by_proxy = Arc::clone(&held);
    let command = site.command_by(torn.kubeconfig(), arguments);
    let killed = run_and_kill(command, &torn, Tear::Drop, move |seen| {
        let is_wanted = seen.method == method && seen.path.contains(plural);
        if is_wanted {
            let content = String::from_utf8(seen.content.to_vec()).unwrap();
            let held = Held {
                method: method.to_owned(),
                path: seen.path.to_owned(),
                content,
            };
            seen_by_proxy.lock().unwrap().get_or_insert(held);
        }
        is_wanted
    });
    assert!(killed);
    held.lock().unwrap().take().expect("the proxy has seen it")
}

in_each_group!(a_late_write_fails: a_late_write_fails_after_the_undo_of_its_run, a_late_write_fails_in_the_other_group);

/// The server still holds a write of a killed run when the run is undone.
fn a_late_write_fails(flavour: Flavour) {
    let site = KubeSite::of(&healthy().with(Fault::OrphanHandleEmpty, 3), flavour);
    let before = site.objects();
    let release = [&["release", "--orphan-handles", "--yes"], &AT_ONCE[..]].concat();
    let held = killed_at_write(&site, "/ipamhandles/", "PUT", &release);
    let journal = only_journal(&site);
    site.run(&["undo", &journal, "--dry-run"])
        .exits(1)
        .prints("keep-handle");
    site.undo(&journal).exits(1);
    assert_eq!(kubernetes::values(&site.objects()), kubernetes::values(&before));

    let answer = site
        .server
        .request(&held.method, &held.path, &held.content)
        .unwrap();
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert_eq!(kubernetes::values(&site.objects()), kubernetes::values(&before));
    site.undo(&journal).exits(1).prints("Nothing to restore");
}

in_each_group!(a_late_creation_is_told: a_late_creation_is_told_and_undone, a_late_creation_is_told_in_the_other_group);

/// Nothing can be compared with an object that does not exist.
fn a_late_creation_is_told(flavour: Flavour) {
    let (site, nodes) = KubeSite::seeded(flavour, &ClusterSpec::new(31), 1);
    let before = site.objects();
    let assign = [
        "assign", "--node", &nodes[0], "--count", "1", "--handle", "h", "--yes",
    ];
    let held = killed_at_write(&site, "/ipamblocks", "POST", &assign);
    let journal = only_journal(&site);
    let told = "got no answer to its request to create block ";
    site.undo(&journal).exits(1).says(told);
    assert_eq!(kubernetes::values(&site.objects()), kubernetes::values(&before));

    let answer = site
        .server
        .request(&held.method, &held.path, &held.content)
        .unwrap();
    assert_eq!(answer.status, 201, "{}", answer.body);
    site.undo(&journal).exits(1);
    assert_eq!(kubernetes::values(&site.objects()), kubernetes::values(&before));
}

#[test]
fn ctrl_c_ends_a_wait_in_a_run_that_writes() {
    let site = many_orphans();
    let before = site.dump();
    // Without the interrupt, the run would wait for hours.
    let mut child = in_the_middle(&site, &["--quiet", "--request-timeout", "2h"]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let lines: Vec<String> = lines_of(&mut child).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{lines:#?}");
    assert!(
        !lines.iter().any(|line| line.contains("no answer from")),
        "not with --quiet: {lines:#?}"
    );
    assert_eq!(lines.last().unwrap(), "error: interrupted");
    site.etcd.resume().unwrap();

    let journal = only_journal(&site);
    let recorded = Recorded::read(Path::new(&journal)).unwrap();
    assert!(!recorded.ended);
    site.undo(&journal)
        .failed(1, "warning: the run of this journal did not finish");
    assert_eq!(values(&site.dump()), values(&before));
}

/// The path of the only journal.
fn only_journal(site: &impl Runs) -> String {
    let found = std::fs::read_dir(site.home().join("calipam")).unwrap();
    let paths = found.map(|entry| entry.unwrap().path());
    let journals: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "journal"))
        .collect();
    let [journal] = &journals[..] else {
        panic!("{journals:?}")
    };
    journal.to_str().unwrap().to_owned()
}
