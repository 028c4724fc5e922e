//! `migrate` to another block size in the same CIDR, through a temporary pool and back.

use super::migrate::{NEW, OLD, cluster, leave, left_of_old, migrate, pool, resume};
use super::site::*;

/// Migrates to another block size in the same CIDR. Each further call repeats the complete command if `is_named`, and
/// otherwise has only `--apply`. Returns the runs.
fn there_and_back(site: &Site, size: &str, is_named: bool) -> Vec<Run> {
    let begin = [
        "--from",
        OLD,
        "--block-size",
        size,
        "--via",
        "10.99.0.0/16",
        "--apply",
    ];
    let mut runs = vec![migrate(site, &[&begin[..], &["--yes", "-o", "json"]].concat())];
    let is_at = |run: &Run, expected: &str| {
        let document = run.json();
        let [leg, phase] =
            [&document["detour"]["leg"], &document["phase"]].map(|text| text.as_str().unwrap());
        assert_eq!(
            (run.code, format!("{leg} {phase}")),
            (0, expected.to_owned()),
            "{run:?}"
        );
    };
    is_at(&runs[0], "there create");
    let ways = ["there disable", "there move", "there clean-up", "there delete"];
    for expected in ways
        .into_iter()
        .chain(["back create", "back disable", "back move", "back delete"])
    {
        let next = if is_named { &begin[..] } else { &["--apply"] };
        is_at(&migrate(site, &["-o", "json"]), expected);
        match expected {
            "there move" => leave(site),
            // Ends the pod that was started in the temporary pool after the old pool was deleted.
            "back move" => site.delete(&visitor()),
            _ => {
                let run = migrate(site, &[next, &["--yes", "-o", "json"]].concat());
                is_at(&run, expected);
                runs.push(run);
            }
        }
        if expected == "there delete" {
            site.put(&visitor(), VISITOR);
        }
        let sizes = left_of_old(site)
            .into_iter()
            .map(|key| key.rsplit('-').next().unwrap().to_owned());
        assert!(
            sizes.collect::<BTreeSet<_>>().len() <= 1,
            "{expected}: blocks of two sizes"
        );
    }
    runs
}

/// The endpoint of a pod with an address in the temporary pool.
const VISITOR: &str = r#"{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"node--1-k8s-visitor-eth0",
    "namespace":"default"},"spec":{"orchestrator":"k8s","node":"node-1","pod":"visitor","endpoint":"eth0","containerID":"0a",
    "ipNetworks":["10.99.0.5/32"]}}"#;

fn visitor() -> String {
    key::resource("workloadendpoints", "default/node--1-k8s-visitor-eth0")
}

#[test]
fn another_block_size_in_the_same_cidr_is_reached_through_a_temporary_pool() {
    for (size, is_named) in [("28", false), ("24", true)] {
        let site = Site::of(&cluster());
        let begin = site.dump();
        let through = ["--from", OLD, "--block-size", size, "--via", "10.99.0.0/16"];
        // The plan says which way, and why.
        migrate(&site, &through)
            .prints("created again with blocks of")
            .prints("Blocks of two sizes in one CIDR would overlap")
            .prints(&format!(
                "After the move back to 10.244.0.0/16, with blocks of /{size}"
            ));
        assert_eq!(site.dump(), begin, "a plan writes nothing");

        let runs = there_and_back(&site, size, is_named);
        let old = values(&begin)[&*key::pool(OLD)].clone();
        let mut expected = old.clone();
        expected["spec"]["blockSize"] = size.parse::<u8>().unwrap().into();
        expected["spec"]["disabled"] = false.into();
        let new = pool(&site, OLD);
        assert_eq!(
            (&new["spec"], new["metadata"].get("annotations")),
            (&expected["spec"], None)
        );
        assert_eq!(pool(&site, NEW), Value::Null);
        assert_eq!(site.findings(&[]), BTreeSet::new());
        let again = migrate(&site, &[&through[..], &["--apply"]].concat());
        again.says(&format!("already has blocks of /{size}"));

        // Blocks of the old size cannot be restored before the old pool.
        let before = site.dump();
        site.undo(&journal_of(&runs[2]))
            .exits(1)
            .prints("which is newer and has blocks of");
        assert_eq!(site.dump(), before);

        for run in runs.iter().rev() {
            site.undo(&journal_of(run)).succeeded();
        }
        assert_eq!(
            left_of_old(&site).len(),
            6,
            "blocks and affinities are there again"
        );
        assert_eq!(pool(&site, OLD), old);
        assert_eq!(pool(&site, NEW), Value::Null);
    }
}

#[test]
fn a_temporary_pool_can_be_given_up_and_another_way_back_is_not_begun() {
    let site = Site::of(&cluster());
    let through = |cidr, size| {
        [
            "--from",
            OLD,
            "--block-size",
            size,
            "--via",
            cidr,
            "--apply",
            "--yes",
        ]
    };
    migrate(&site, &through("10.99.0.0/16", "28")).succeeded();
    for other in [through("10.98.0.0/16", "28"), through("10.99.0.0/16", "24")] {
        migrate(&site, &other).says("through the temporary pool default-ipv4-ippool-10-99");
    }
    resume(&site, "disable");
    // The old pool is enabled again, and the temporary one is abandoned.
    for phase in ["create", "disable", "delete"] {
        let run = migrate(
            &site,
            &["--from", NEW, "--to", OLD, "--apply", "--yes", "-o", "json"],
        );
        assert_eq!((run.code, &run.json()["phase"]), (0, &json!(phase)), "{run:?}");
    }
    assert_eq!(pool(&site, OLD)["spec"]["disabled"], false);
    assert_eq!(pool(&site, NEW), Value::Null);
}

#[test]
fn users_that_would_find_no_address_on_the_way_back_do_not_leave() {
    let site = Site::of(&cluster());
    site.run(&[
        "configure",
        "--max-blocks-per-host",
        "1",
        "--strict-affinity=true",
        "--yes",
    ])
    .succeeded();
    let before = site.dump();
    let through = [
        "--from",
        OLD,
        "--block-size",
        "31",
        "--via",
        "10.99.0.0/16",
        "--apply",
        "--yes",
    ];
    let says = "with blocks of /31, 10.244.0.0/16 has no addresses for 6 of 12 users, first on node-1: ";
    migrate(&site, &through).failed(1, says);
    assert_eq!(site.dump(), before);
}
