//! `assign` on the Kubernetes datastore, where each object is written separately.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::{Tear, Tearing};

use super::assign::assigned;
use super::kubernetes::{KubeSite, recorded, values};
use super::site::{healthy, journal_of, set};
use crate::cli::program::{self, Run};

/// Creates a cluster, and returns it with a node and an address without a block. Assigning the address writes a handle,
/// a block and an affinity.
fn site(flavour: Flavour) -> (KubeSite, String, String) {
    let cluster = healthy();
    let node = cluster.nodes()[0].name.clone();
    let address = cluster.spec().spare_block_v4(0).hosts().nth(4).unwrap().to_string();
    (KubeSite::of(&cluster, flavour), node, address)
}

fn arguments<'a>(node: &'a str, address: &'a str) -> Vec<&'a str> {
    let whose = ["--handle", "printer", "--attribute", "note=printer"];
    let what = ["assign", "--yes", "-o", "json", "--ip", address, "--node", node];
    [&what[..], &whose[..]].concat()
}

#[test]
fn an_assignment_is_undone_in_the_native_group() {
    let (site, node, address) = site(Flavour::Native);
    let before = site.objects();
    let run = site.run(&arguments(&node, &address)).succeeded();
    assert_eq!(assigned(&run.json()), set([&address]));
    assert!(recorded(&site.objects(), false).contains(&address));
    assert_eq!(findings(&site), [format!("leaked-address {address}")]);
    site.run(&["undo", &journal_of(&run), "--yes"]).succeeded();
    assert_eq!(values(&site.objects()), values(&before));
}

/// The delay of a write that arrives late.
const LATE: Duration = Duration::from_millis(700);

/// The number of writes of a run: handle, block and affinity.
const WRITES: usize = 3;

fn is_write(method: &str) -> bool {
    ["POST", "PUT", "PATCH", "DELETE"].contains(&method)
}

/// Applies `tear` to one of the writes of Calico's objects, by its number. The returned receiver gets a message when
/// the write is requested.
fn tear_write(torn: &Tearing, number: usize, tear: Tear) -> Receiver<()> {
    let (tell, told) = mpsc::channel();
    let mut writes = 0;
    torn.plan(move |seen| {
        // Access reviews are not writes.
        if !is_write(seen.method) || !seen.path.contains("projectcalico.org") {
            return Tear::Pass;
        }
        writes += 1;
        if writes != number + 1 {
            return Tear::Pass;
        }
        let _ = tell.send(());
        tear
    });
    told
}

#[test]
fn a_lost_answer_and_a_kill_at_each_write_leave_nothing_that_cannot_be_undone() {
    let (site, node, address) = site(Flavour::Classic);
    let torn = Tearing::kubernetes(&site.server).unwrap();
    let before = site.objects();
    let arguments = arguments(&node, &address);
    let undo = |journal: &str| {
        let undo = site.run(&["undo", journal, "--yes"]);
        // After a killed run, undo may report that it does not know how far the run got.
        assert!([0, 1].contains(&undo.code), "{undo:?}");
        assert_eq!(values(&site.objects()), values(&before));
    };
    for number in 0..WRITES {
        let torn_at = tear_write(&torn, number, Tear::Swallow);
        let run = Run::of(site.command_by(torn.kubeconfig(), &arguments));
        assert!(run.code == 0 && torn_at.try_recv().is_ok(), "write {number}: {run:?}");
        assert!(recorded(&site.objects(), false).contains(&address), "write {number}");
        undo(&journal_of(&run));
    }

    for number in 0..WRITES {
        let known = journals(&site);
        let torn_at = tear_write(&torn, number, Tear::Delay(LATE));
        let mut command = site.command_by(torn.kubeconfig(), &arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        torn_at.recv_timeout(Duration::from_secs(60)).expect("the write comes");
        child.kill().unwrap();
        child.wait().unwrap();
        // The delayed write reaches the server after the process is gone.
        std::thread::sleep(2 * LATE);
        let new: Vec<String> = journals(&site).difference(&known).cloned().collect();
        let [journal] = new.as_slice() else { panic!("{new:?}") };
        undo(journal);
    }
    site.run(&arguments).succeeded();
    assert_eq!(findings(&site), [format!("leaked-address {address}")]);
}

/// Lists every finding as `code subject`.
fn findings(site: &KubeSite) -> Vec<String> {
    let check = site.run(&["check", "--grace", "0", "--settle", "0", "-o", "json"]);
    program::findings(&check.json(), &["code", "name"])
}

fn journals(site: &KubeSite) -> BTreeSet<String> {
    let files = std::fs::read_dir(site.journals()).into_iter().flatten();
    files.map(|file| file.unwrap().path().to_str().unwrap().to_owned()).collect()
}
