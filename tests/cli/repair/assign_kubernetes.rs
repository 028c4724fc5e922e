//! `assign` on the Kubernetes datastore, where each object is written separately.

use std::sync::mpsc::{self, Receiver};

use super::assign::{assigned, unused};
use super::kubernetes::{KubeSite, recorded, values};
use super::site::*;

/// Creates a cluster, and returns it with an address without a block. Assigning the address writes a handle, a block
/// and an affinity.
fn site(flavour: Flavour) -> (KubeSite, String) {
    let cluster = healthy();
    let address = cluster
        .spec()
        .spare_block_v4(0)
        .hosts()
        .nth(4)
        .unwrap()
        .to_string();
    (KubeSite::of(&cluster, flavour), address)
}

fn assign(address: &str) -> Vec<&str> {
    let whose = [
        "--node",
        "node-1",
        "--handle",
        "printer",
        "--attribute",
        "note=printer",
    ];
    [&["assign", "--yes", "-o", "json", "--ip", address], &whose[..]].concat()
}

#[test]
fn an_assignment_is_undone_in_the_native_group() {
    let (site, address) = site(Flavour::Native);
    let before = site.objects();
    let run = site.run(&assign(&address)).succeeded();
    assert_eq!(assigned(&run.json()), set([&address]));
    assert!(recorded(&site.objects(), false).contains(&address));
    assert_eq!(site.findings(&[]), unused(&set([&address])));
    // On Kubernetes, objects have kinds and names, and no keys of etcd.
    let plan = site
        .run(&["undo", &journal_of(&run), "--dry-run", "-o", "wide"])
        .prints(" IPAMBlock 10-");
    plan.prints(" IPAMHandle printer").omits("/calico/");
    site.undo_to(&run, &before);
}

/// The delay of a write that arrives late.
const LATE: Duration = Duration::from_millis(700);

/// The number of writes of a run: handle, block and affinity.
const WRITES: usize = 3;

/// Applies `tear` to one of the writes of Calico's objects, by its number. The returned receiver gets a message when
/// the write is requested.
fn tear_write(torn: &Tearing, number: usize, tear: Tear) -> Receiver<()> {
    let (tell, told) = mpsc::channel();
    let mut writes = 0;
    torn.plan(move |seen| {
        // Access reviews are not writes.
        let is_write = seen.method != "GET" && seen.path.contains("projectcalico.org");
        writes += usize::from(is_write);
        if !is_write || writes != number + 1 {
            return Tear::Pass;
        }
        let _ = tell.send(());
        tear
    });
    told
}

#[test]
fn a_lost_answer_and_a_kill_at_each_write_leave_nothing_that_cannot_be_undone() {
    let (site, address) = site(Flavour::Classic);
    let torn = Tearing::kubernetes(&site.server).unwrap();
    let before = site.objects();
    let arguments = assign(&address);
    let undo = |journal: &str| {
        let undo = site.undo(journal);
        // After a killed run, undo may report that it does not know how far the run got.
        assert!([0, 1].contains(&undo.code), "{undo:?}");
        assert_eq!(values(&site.objects()), values(&before));
    };
    for number in 0..WRITES {
        let torn_at = tear_write(&torn, number, Tear::Swallow);
        let run = Run::of(site.command_by(torn.kubeconfig(), &arguments));
        assert!(
            run.code == 0 && torn_at.try_recv().is_ok(),
            "write {number}: {run:?}"
        );
        assert!(
            recorded(&site.objects(), false).contains(&address),
            "write {number}"
        );
        undo(&journal_of(&run));
    }

    for number in 0..WRITES {
        let known = site.journals();
        let torn_at = tear_write(&torn, number, Tear::Delay(LATE));
        let mut command = site.command_by(torn.kubeconfig(), &arguments);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        torn_at
            .recv_timeout(Duration::from_secs(60))
            .expect("the write comes");
        child.kill().unwrap();
        child.wait().unwrap();
        // The delayed write reaches the server after the process is gone.
        thread::sleep(2 * LATE);
        let mut new = site.journals();
        new.retain(|journal| !known.contains(journal));
        let [journal] = new.as_slice() else {
            panic!("{new:?}")
        };
        undo(journal.to_str().unwrap());
    }
    site.run(&arguments).succeeded();
    assert_eq!(site.findings(&[]), unused(&set([&address])));
}
