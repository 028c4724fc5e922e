//! A server that stops answering: a person is told, every try shares one budget, and ctrl-c ends the wait.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;

use calipam_repair::journal::Recorded;
use rustix::process::{Pid, Signal, kill_process};

use super::kubernetes::KubeSite;
use super::site::*;
use crate::cli::program::{prepare, started};

/// Reads the rest of a program's stderr, line by line.
fn lines_of(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap)
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
        let lines: Vec<String> = lines_of(&mut child).filter(|line| !line.starts_with("hint: ")).collect();
        assert_eq!(child.wait().unwrap().code(), Some(3), "{lines:#?}");
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        assert!(lines.iter().zip(expected).all(|(line, start)| line.starts_with(start)), "{lines:#?}");
        assert!(lines.last().unwrap().ends_with("no answer within 7 s"), "{lines:#?}");
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
    assert!(String::from_utf8_lossy(&ended.stdout).contains(" not started"), "{ended:?}");
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    let server = site.etcd.endpoint();
    assert!(has(&format!("note: no answer from {server} for 5 s; waiting for 8 s in all")), "{lines:#?}");
    // It depends on the moment whether the server hangs in a read or in a write.
    let recorded = Recorded::read(Path::new(&only_journal(&site))).unwrap();
    let is_open = recorded.open_intents().count() > 0;
    assert_eq!(has(" not answered and may have been made; the journal shows which"), is_open, "{lines:#?}");
    assert!(has("hint: to go on, run the command again once the datastore answers"), "{lines:#?}");
    assert!(has("hint: to restore what was there: "), "{lines:#?}");
    assert!(has("error: ") && has(": no answer within "), "{lines:#?}");

    let gone = handles(&before) - handles(&site.dump());
    assert!(gone > 0 && gone < MANY, "{gone} of {MANY}");
    site.undo(&only_journal(&site)).failed(1, "warning: the run of this journal did not finish");
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
    assert!(String::from_utf8_lossy(&ended.stdout).contains(" not started"), "{ended:?}");
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(
        has(&format!("note: no answer from {} for 5 s; waiting for 8 s in all", site.server.url())),
        "{lines:#?}"
    );
    assert!(has("hint: to go on, run the command again once the datastore answers"), "{lines:#?}");
    assert!(has("hint: to restore what was there: "), "{lines:#?}");
    // The limit of the last request and that of the whole run end at the same time.
    assert!(has("error: ") && has(": no answer within "), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains("/calico/")), "no key of etcd: {lines:#?}");
    assert!(left < all && all - left < MANY / 2, "{left} of {all}");
    let recorded = Recorded::read(Path::new(&only_journal(&site))).unwrap();
    assert!(!recorded.ended);
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
    assert!(!lines.iter().any(|line| line.contains("no answer from")), "not with --quiet: {lines:#?}");
    assert_eq!(lines.last().unwrap(), "error: interrupted");
    site.etcd.resume().unwrap();

    let journal = only_journal(&site);
    let recorded = Recorded::read(Path::new(&journal)).unwrap();
    assert!(!recorded.ended);
    site.undo(&journal).failed(1, "warning: the run of this journal did not finish");
    assert_eq!(values(&site.dump()), values(&before));
}

/// The path of the only journal.
fn only_journal(site: &impl Runs) -> String {
    let found = std::fs::read_dir(site.home().join("calipam")).unwrap();
    let paths = found.map(|entry| entry.unwrap().path());
    let journals: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "journal")).collect();
    let [journal] = &journals[..] else { panic!("{journals:?}") };
    journal.to_str().unwrap().to_owned()
}
