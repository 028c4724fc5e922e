//! `assign` while other clients write, and interrupted.

use calipam_testkit::servers::{Tear, Tearing};
use std::collections::BTreeSet;

use super::assign::{assign, assigned, unused};
use super::site::*;
use crate::cli::program::Run;

#[test]
fn an_address_that_another_run_has_assigned_is_kept() {
    let cluster = healthy();
    let node = cluster.nodes()[0].name.clone();
    let site = Site::of(&cluster);
    let slow = ["assign", "--count", "2", "--node", &node, "--handle", "slow"];
    let quick = ["--count", "1", "--node", &node, "--handle", "quick", "--attribute", "a=b"];
    let mut others = BTreeSet::new();
    let shown = site.asked_while("[y/N] ", &slow, "y\n", || others = assigned(&assign(&site, &quick).json()));
    shown.exits(1).shows("not done: ").shows("already allocated");
    let records = recorded(&site.dump());
    let of = |id: &str| -> BTreeSet<String> {
        let found = records.iter().filter(|(_, handle)| handle.as_deref() == Some(id));
        found.map(|(address, _)| address.to_string()).collect()
    };
    assert_eq!((of("slow"), of("quick")), (BTreeSet::new(), others.clone()));
    assert_eq!(site.findings(&[]), unused(&others));
}

#[test]
fn an_address_that_a_pod_uses_by_the_time_of_the_answer_is_not_assigned() {
    let mut cluster = healthy();
    let pod = cluster.add_pod_on(0);
    let endpoint = String::from_utf8(cluster.remove(&pod.endpoint).value()).unwrap();
    let free = cluster.spec().spare_block_v4(0).hosts().nth(4).unwrap().to_string();
    let site = Site::of(&cluster);
    let mut before = None;
    let shown = site.asked_while("[y/N] ", &["assign", "--ip", &free, "--node", &pod.node], "y\n", || {
        site.put(&pod.endpoint, endpoint.replace(&pod.address().to_string(), &free));
        before = Some(site.dump());
    });
    shown.exits(1).shows(&format!("{free} is used by")).shows("nothing was changed");
    assert_eq!((Some(site.dump()), site.journals().len()), (before, 0));
}

#[test]
fn many_at_once_never_get_the_same_address() {
    let cluster = healthy();
    let node = cluster.nodes()[0].name.clone();
    let site = Site::of(&cluster);
    let begun: Vec<_> = (0..5)
        .map(|number| {
            let handle = format!("h{number}");
            let arguments =
                ["assign", "--yes", "-o", "json", "--count", "3", "--node", &node, "--handle", &handle];
            let mut command = site.command(&arguments);
            command.args(["--attribute", "a=b"]);
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let ended: Vec<Run> =
        begun.into_iter().map(|child| Run::ended(child.wait_with_output().unwrap())).collect();
    let records = recorded(&site.dump());
    let (mut served, mut all) = (0, BTreeSet::new());
    for (number, run) in ended.iter().enumerate() {
        let handle = format!("h{number}");
        let got: BTreeSet<String> = records
            .iter()
            .filter(|(_, of)| of.as_deref() == Some(&*handle))
            .map(|(address, _)| address.to_string())
            .collect();
        match run.code {
            0 => assert_eq!(got, assigned(&run.json())),
            1 => assert!(got.is_empty() && run.stderr.contains("not done: "), "{run:?}"),
            _ => panic!("{run:?}"),
        }
        served += usize::from(run.code == 0);
        all.extend(got);
    }
    assert_eq!(all.len(), 3 * served);
    assert!(served > 0);
    assert_eq!(site.findings(&[]), unused(&all));
}

/// Loses the answers to some of the last requests of a run, which are its writes, or drops the requests themselves.
#[test]
fn a_lost_answer_is_found_out() {
    let cluster = healthy();
    let node = cluster.nodes()[0].name.clone();
    let site = Site::of(&cluster);
    let torn = Tearing::etcd(&site.etcd).unwrap();
    let run = |handle: &str| {
        let arguments =
            ["assign", "--yes", "-o", "json", "--count", "1", "--node", &node, "--attribute", "a=b"];
        let mut command = site.command(&arguments);
        command.args(["--handle", handle]).env("ETCD_ENDPOINTS", torn.url());
        Run::of(command)
    };
    torn.plan(|_| Tear::Pass);
    let first = run("first").succeeded();
    let mut all = assigned(&first.json());
    let requests = torn.count();
    for (number, tear) in [(1, Tear::Swallow), (2, Tear::Swallow), (3, Tear::Drop), (1, Tear::Drop)] {
        torn.tear_at(requests.saturating_sub(number), tear);
        let handle = format!("torn-{number}-{tear:?}");
        let run = run(&handle);
        assert_eq!(run.code, 0, "{number} {run:?}");
        let records = recorded(&site.dump());
        let got: Vec<_> = records.iter().filter(|(_, of)| of.as_deref() == Some(&*handle)).collect();
        assert_eq!(got.len(), 1, "{number} {got:?}");
        all.insert(got[0].0.to_string());
    }
    assert_eq!(site.findings(&[]), unused(&all));
}
