//! `--from-report`: reports of earlier checks narrow a release, but never widen it.

use super::site::*;
use crate::cli::program::GUID;

/// Creates a cluster with three leaked addresses and two orphan handles.
fn leaky() -> (Cluster, Vec<Pod>, Vec<String>) {
    let mut cluster = Cluster::plain(ClusterSpec::new(33).at(Timestamp::now()).v4_only(), 3, 4);
    let leaked = (0..3).map(|number| leak(&mut cluster, number)).collect();
    cluster.inject(Fault::OrphanHandleEmpty, 1);
    let orphans = cluster
        .truth()
        .iter()
        .filter(|f| f.code == "orphan-handle")
        .map(|f| f.subject)
        .collect();
    (cluster, leaked, orphans)
}

/// Writes a file, and returns its path.
fn file(site: &Site, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = site.home.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns a report of calipam.
fn own(site: &Site, format: &str) -> String {
    site.run_at_once(&["check", "-o", format], &[]).stdout
}

/// Creates a report of calicoctl that lists the addresses in `unused` as not in use, and these handles as leaked.
fn calicoctl(site: &Site, unused: &BTreeSet<String>, handles: &[String]) -> Value {
    let dump = site.dump();
    let blocks = dump.iter().filter(|(key, _)| key.contains("/assignment/"));
    let blocks: Vec<Block> = blocks.filter_map(|(_, (raw, _))| Block::read(raw)).collect();
    let mut allocations = serde_json::Map::new();
    for block in &blocks {
        for (address, record) in block.records() {
            let ordinal = block.ordinal(address).to_string();
            let in_use = !unused.contains(&address.to_string());
            let element = json!({
                "ip": address, "handle": record.handle, "sequenceNumber": block.sequences[&ordinal],
                "pod": record.get("pod"), "namespace": record.get("namespace"), "node": record.get("node"),
                "inUse": in_use, "owners": in_use.then(|| json!(["Workload(default/x)"])),
            });
            allocations.insert(address.to_string(), json!([element]));
        }
    }
    let leaked = handles
        .iter()
        .map(|id| json!({"ID": id, "UID": null, "Revision": dump[&key::handle(id)].1.to_string()}));
    json!({
        "version": "v3.32.1", "clusterGUID": GUID, "datastoreLocked": true,
        "clusterInformationRevision": dump[INFORMATION].1.to_string(), "clusterType": "k8s,bgp",
        "allocations": allocations, "leakedHandles": leaked.collect::<Vec<_>>(),
    })
}

fn from_reports(site: &Site, paths: &[&str], more: &[&str]) -> Run {
    site.release(&[&["--from-report"], paths, more].concat())
}

fn addresses<'p>(pods: impl IntoIterator<Item = &'p Pod>) -> BTreeSet<String> {
    set(pods.into_iter().map(Pod::address))
}

/// Lists the expected changes: released addresses of pods, and deleted handles.
fn expected(pods: &[Pod], handles: &[String]) -> BTreeSet<String> {
    let released = pods
        .iter()
        .map(|pod| format!("release-address {}", pod.address()));
    released
        .chain(handles.iter().map(|id| format!("delete-handle {id}")))
        .collect()
}

#[test]
fn a_report_narrows_in_every_form() {
    for form in ["json", "yaml", "calicoctl"] {
        let (mut cluster, leaked, orphans) = leaky();
        let later = cluster.add_pod_on(1);
        let site = Site::of(&cluster);
        let report = match form {
            "calicoctl" => calicoctl(&site, &addresses(&leaked), &orphans).to_string(),
            format => own(&site, format),
        };
        let path = file(&site, "report", report);
        // Another leak and another orphan handle appear after the report.
        site.delete(&later.endpoint);
        let younger = key::handle("k8s-pod-network.younger");
        site.put(&younger, r#"{"block":{},"deleted":false}"#);
        let run = from_reports(&site, &[&path], &["--lock", "-o", "json"]).succeeded();
        assert_eq!(changes(&run.json()), expected(&leaked, &orphans), "{form}");
        let after = site.dump();
        assert!(
            recorded(&after).contains_key(&later.address()) && after.contains_key(&younger),
            "{form}"
        );
        site.undo(&journal_of(&run)).succeeded();
    }
}

#[test]
fn two_reports_intersect_and_one_that_is_old_enough_is_the_first_of_two_checks() {
    let (cluster, leaked, orphans) = leaky();
    let site = Site::of(&cluster);
    let first = file(&site, "first", own(&site, "json"));
    let second = file(
        &site,
        "second",
        calicoctl(&site, &addresses(&leaked[1..]), &orphans[..1]).to_string(),
    );
    for paths in [[&*first, &*second], [&*second, &*first]] {
        let run = from_reports(&site, &paths, &["--lock", "--dry-run", "-o", "json"]).succeeded();
        assert_eq!(changes(&run.json()), expected(&leaked[1..], &orphans[..1]));
    }

    let release = |path: &str, how| {
        site.run(&[
            "release",
            "--from-report",
            path,
            "--grace",
            "30m",
            "--settle",
            "0",
            "-o",
            "json",
            how,
        ])
    };
    release(&first, "--dry-run").says("5 addresses or handles were found unused once");
    let mut report: Value = serde_json::from_str(&own(&site, "json")).unwrap();
    let at: Timestamp = report["cluster"]["takenAt"].as_str().unwrap().parse().unwrap();
    report["cluster"]["takenAt"] = (at - jiff::SignedDuration::from_mins(31)).to_string().into();
    let old = release(&file(&site, "old", report.to_string()), "--yes").succeeded();
    assert_eq!(changes(&old.json()), expected(&leaked, &orphans));
}

#[test]
fn the_facts_in_a_report_must_still_hold() {
    let (mut cluster, leaked, orphans) = leaky();
    let live = cluster.add_pod_on(0);
    let site = Site::of(&cluster);
    let listed = addresses(leaked.iter().chain([&live]));
    let path = file(&site, "report", calicoctl(&site, &listed, &orphans).to_string());
    let before = site.dump();
    site.change_blocks(&leaked[0], reassign);
    site.change_blocks(&leaked[1], hand_over);
    site.put(&key::handle(&orphans[0]), r#"{"block":{},"deleted":false}"#);
    let run = from_reports(&site, &[&path], &["--lock", "-o", "json"]);
    let plan = run.json();
    let skipped = [
        format!("in-use {}", live.address()),
        format!("report-differs {}", leaked[0].address()),
        format!("report-differs {}", leaked[1].address()),
        format!("report-differs {}", orphans[0]),
    ];
    assert_eq!((run.code, skips(&plan)), (1, set(skipped)));
    assert_eq!(changes(&plan), expected(&leaked[2..], &orphans[1..]));
    assert_eq!(recorded(&site.dump()).len(), recorded(&before).len() - 1);
}

/// `calicoctl ipam` and some other programs record no owner, only a handle and a note.
#[test]
fn an_address_without_an_owner_is_released_by_a_report_and_force() {
    let site = Site::of(&healthy().with(Fault::LeakedForeign, 1));
    let check = site.run_at_once(&["check", "-o", "json"], &[]);
    let found = check.json()["findings"][0].clone();
    assert_eq!(found["code"], "leaked-address");
    let address = found["subject"]["name"].as_str().unwrap();
    let report = file(&site, "report", check.stdout.clone());
    let kept = from_reports(&site, &[&report], &["-o", "json"]);
    assert_eq!(
        (kept.code, skips(&kept.json())),
        (1, set([format!("unknown-owner {address}")]))
    );

    // An allocation that was made after the report is not released.
    let mut other = check.json();
    other["findings"][0]["evidence"]["records"][0]["sequenceNumber"] = "1".into();
    let other = file(&site, "other", other.to_string());
    let differs = from_reports(&site, &[&other], &["--force", "-o", "json"]);
    assert_eq!(
        (differs.code, skips(&differs.json())),
        (1, set([format!("report-differs {address}")]))
    );

    let run = from_reports(&site, &[&report], &["--force", "-o", "json"]).succeeded();
    assert!(
        changes(&run.json()).contains(&format!("release-address {address}")),
        "{run:?}"
    );
    assert!(!recorded(&site.dump()).contains_key(&address.parse().unwrap()));
}

/// Tests reports that violate calicoctl's own rules.
#[test]
fn objections_to_calicoctls_reports_can_be_forced() {
    let (cluster, leaked, orphans) = leaky();
    let site = Site::of(&cluster);
    let before = site.dump();
    let good = calicoctl(&site, &addresses(&leaked), &orphans);
    let with = |field: &str, value: &str| {
        let mut report = good.clone();
        report[field] = value.into();
        report.to_string()
    };
    let lock = &["--lock"][..];
    for (text, more, told) in [
        (
            with("version", "v3.30.0"),
            lock,
            "calicoctl v3.30.0 wrote it, but the cluster runs v3.32.1",
        ),
        (
            with("version", ""),
            lock,
            "a calicoctl without a version wrote it",
        ),
        (with("clusterInformationRevision", "1"), lock, "it is stale"),
        (
            good.to_string(),
            &[],
            "for a locked datastore, but this one is not locked",
        ),
    ] {
        let path = file(&site, "report", text);
        from_reports(&site, &[&path], more)
            .refused(1, told)
            .says("\nhint: ");
        assert_eq!(site.dump(), before);
        let forced = from_reports(&site, &[&path], &["--force", "--dry-run", "-o", "json"]).succeeded();
        assert!(
            forced.stderr.contains("--force: ") && forced.stderr.contains(told),
            "{forced:?}"
        );
        assert_eq!(changes(&forced.json()), expected(&leaked, &orphans));
    }
    // It is enough that one report matches the current cluster information, even if other reports are older.
    let fresh = file(&site, "fresh", good.to_string());
    let stale = file(&site, "stale", with("clusterInformationRevision", "1"));
    from_reports(&site, &[&stale, &fresh], &["--lock"]).succeeded();
    assert_eq!(site.json(INFORMATION)["spec"]["datastoreReady"], true);
}

#[test]
fn a_locked_datastore_needs_no_lock() {
    let (mut cluster, leaked, orphans) = leaky();
    cluster.inject(Fault::DatastoreLocked, 1);
    let site = Site::of(&cluster);
    let path = file(
        &site,
        "report",
        calicoctl(&site, &addresses(&leaked), &orphans).to_string(),
    );
    from_reports(&site, &[&path], &[]).succeeded();
    assert_eq!(site.history(INFORMATION).len(), 1, "the lock is its owner's");
}

#[test]
fn reports_of_another_cluster_and_other_files_are_refused_whatever_is_forced() {
    let (cluster, leaked, orphans) = leaky();
    let site = Site::of(&cluster);
    let before = site.dump();
    let of_calicoctl = calicoctl(&site, &addresses(&leaked), &orphans).to_string();
    for text in [own(&site, "json"), own(&site, "yaml"), of_calicoctl] {
        let path = file(&site, "other", text.replace("0f0e1d2c", "ffffffff"));
        for more in [vec![], vec!["--force"], vec!["--force", "--lock"]] {
            let told = "it is about cluster ffffffff3b4a59687786951423324150, but this is cluster 0f0e1d2c";
            from_reports(&site, &[&path], &more)
                .refused(1, told)
                .says("\nhint: connect to the cluster");
        }
    }

    let texts: [&[u8]; 9] = [
        b"",
        b"[]",
        b"{}",
        b"{\"clusterGUID\": [",
        b"just words",
        b"\xff\xfe\x00binary",
        b"apiVersion: calipam/v1\nkind: ReleasePlan\n",
        b"{\"apiVersion\":\"calipam/v1\",\"kind\":\"CheckReport\",\"cluster\":{\"takenAt\":\"yesterday\"},\"findings\":[]}",
        b"{\"apiVersion\":\"calipam/v1\",\"kind\":\"CheckReport\",\"cluster\":7,\"findings\":{}}",
    ];
    for text in texts {
        let path = file(&site, "garbage", text);
        let run = from_reports(&site, &[&path], &["--force"]).refused(3, "it is not a report");
        run.says("\nhint: write one with").says(&path);
    }
    // These files are reports, but have no usable entries.
    for allocations in [
        json!(null),
        json!([]),
        json!({"10.0.0.1": 7}),
        json!({"x": [{}]}),
        json!({"10.0.0.1": [null]}),
    ] {
        let report =
            json!({"clusterGUID": GUID, "allocations": allocations, "leakedHandles": [7, {"ID": 7}]});
        let run = from_reports(&site, &[&file(&site, "odd", report.to_string())], &["--force"]).succeeded();
        assert!(run.stdout.ends_with("Nothing to do\n"), "{run:?}");
    }
    from_reports(&site, &["/nonexistent/report"], &[]).refused(3, "cannot read /nonexistent/report");
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}
