//! The tables of plans, with changes and skipped objects.

use super::site::*;

/// Every skipped object appears once and with the code of its rule. This holds for short lists, and for long ones,
/// which show counts.
#[test]
fn skipped_objects_have_their_code_and_appear_once() {
    let site = Site::of(&Cluster::all_faults(
        ClusterSpec::new(23).at(Timestamp::now()).wide(),
        1,
    ));
    let rebuild = |format| site.run(&["rebuild", "--endpoints-only", "--settle", "0", "-o", format]);
    let plan = rebuild("json").json();
    let skipped = plan["skipped"].as_array().unwrap();
    let mut seen = BTreeSet::new();
    for row in skipped {
        assert!(row["code"].is_string(), "{row}");
        assert!(
            seen.insert(format!("{} {}", row["code"], row["subject"])),
            "twice: {row}"
        );
    }
    let of = |code: &str| skipped.iter().filter(|row| row["code"] == code).count();
    assert!(of("owner-mismatch") > 0 && seen.len() > 25, "{}", seen.len());

    let summed = rebuild("table").stdout;
    let rows = summed
        .split("\nCODE ")
        .nth(1)
        .expect("a table of codes")
        .split("\n\n")
        .next()
        .unwrap();
    let kinds: Vec<Vec<&str>> = rows
        .lines()
        .skip(1)
        .map(|row| row.split_whitespace().take(3).collect())
        .collect();
    let distinct: BTreeSet<&[&str]> = kinds.iter().map(|kind| &kind[..2]).collect();
    assert_eq!(distinct.len(), kinds.len(), "{summed}");
    let counted: usize = kinds.iter().map(|kind| kind[2].parse::<usize>().unwrap()).sum();
    assert_eq!(counted, skipped.len(), "{summed}");
}

/// If an address is recorded for another user, the row of its refusal has the code of the finding about that.
#[test]
fn an_address_that_is_named_has_the_code_of_its_finding() {
    let site = Site::of(&healthy().with(Fault::OwnerMismatchPod, 1));
    let found = site.findings(&["--rule", "owner-mismatch"]);
    let address = found.first().unwrap().rsplit(' ').next().unwrap();
    let run = site.run(&["release", "--ip", address, "--dry-run", "-o", "json"]);
    let row = &run.json()["skipped"][0];
    let expected = (Some("owner-mismatch"), Some("in-use"));
    assert_eq!(
        (row["code"].as_str(), row["reason"].as_str()),
        expected,
        "{run:?}"
    );
}

/// A handle is released completely, but an IPv4 pool contains only one of the two addresses of a pod.
#[test]
fn a_pool_of_one_family_says_what_keeps_its_addresses() {
    let mut cluster = healthy();
    let pod = leak(&mut cluster, 0);
    let site = Site::of(&cluster);
    let [v4, v6] = [0, 1].map(|place: usize| pod.addresses[place].0);
    let pool = cluster.spec().pool_v4().to_string();
    let release = |more: &[&str]| site.run_at_once(&["release", "--leaked", "--dry-run"], more);
    let why = "which is outside the selection; a handle is released completely or not at all";
    release(&["--pool", &pool])
        .prints(&format!("also holds {v6}, {why}"))
        .prints(&v4.to_string());
    assert_eq!(changes(&release(&["-o", "json"]).json()).len(), 2);
}

/// Like a release, a large undo is summarized by kind. `-o wide` lists every change.
#[test]
fn a_large_undo_is_summed_up() {
    let mut cluster = healthy().with(Fault::OrphanHandleEmpty, 30);
    let pod = leak(&mut cluster, 0);
    let site = Site::of(&cluster);
    let before = site.dump();
    let run = site.release(&["--leaked", "--orphan-handles"]);
    let journal = journal_of(&run);
    let deleted = differing(&before, &site.dump())
        .iter()
        .filter(|path| path.contains("/handle/"))
        .count();
    assert!(deleted > 25, "{run:?}");
    let planned = |format| site.run(&["undo", &journal, "--dry-run", "-o", format]);

    let summed = planned("table").stdout;
    let rows: Vec<Vec<&str>> = summed
        .lines()
        .map(|row| row.split_whitespace().take(2).collect())
        .collect();
    assert!(
        rows.contains(&vec!["create-handle", &deleted.to_string()]),
        "{summed}"
    );
    assert!(
        rows.contains(&vec!["restore-block", &pod.addresses.len().to_string()]),
        "{summed}"
    );
    assert!(
        summed.contains(&format!("\n{} objects to restore", deleted + pod.addresses.len())),
        "{summed}"
    );
    let listed = planned("wide").stdout;
    assert_eq!(
        listed.matches("/calico/ipam/v2/handle/").count(),
        deleted,
        "{listed}"
    );

    assert_eq!(site.undo(&journal).code, 0);
    assert_eq!(values(&site.dump()), values(&before));
}
