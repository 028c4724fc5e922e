//! `migrate` moves pods from pool to pool. The phases depend only on the datastore, and can be undone.

use calipam_testkit::cluster::wire::affinity;

use super::site::*;
use crate::cli::program::EXAMPLE;

pub(super) const OLD: &str = "default-ipv4-ippool";
pub(super) const NEW: &str = "default-ipv4-ippool-10-99-0-0-16";
pub(super) const TO: [&str; 4] = ["--from", OLD, "--to-cidr", "10.99.0.0/16"];

/// Returns the specification of a cluster at the current time, without a cooldown.
pub(super) fn spec() -> ClusterSpec {
    ClusterSpec {
        cooldown_seconds: 0,
        ..ClusterSpec::new(31).at(Timestamp::now()).v4_only()
    }
}

/// Creates a cluster with three nodes, each with tunnels and one pod.
pub(super) fn cluster() -> Cluster {
    Cluster::plain(spec(), 3, 1)
}

pub(super) fn migrate(site: &Site, arguments: &[&str]) -> Run {
    site.run_at_once(&["migrate"], arguments)
}

/// Creates the new pool, which is the first phase.
pub(super) fn begin(site: &Site) -> Run {
    migrate(site, &[&TO[..], &["--apply", "--yes"]].concat()).succeeded()
}

/// Executes the next phase, and asserts its name.
pub(super) fn resume(site: &Site, phase: &str) -> Run {
    let run = migrate(site, &["--apply", "--from", OLD, "--yes", "-o", "json"]);
    assert_eq!((run.code, &run.json()["phase"]), (0, &json!(phase)), "{run:?}");
    run
}

pub(super) fn phase(site: &Site) -> Value {
    migrate(site, &["--from", OLD, "-o", "json"]).json()
}

/// Returns a pool, or null.
pub(super) fn pool(site: &Site, name: &str) -> Value {
    site.json(&key::pool(name))
}

/// Stores a pool like another one. Returns it.
pub(super) fn copy_pool(site: &Site, from: &str, name: &str, cidr: &str, disabled: bool) -> Value {
    let mut copy = pool(site, from);
    (copy["metadata"]["name"], copy["spec"]["cidr"]) = (name.into(), cidr.into());
    copy["spec"]["disabled"] = disabled.into();
    site.put(&key::pool(name), copy.to_string());
    copy
}

/// Removes all users of addresses, namely pods with their endpoints, and tunnels. Their addresses leak.
pub(super) fn leave(site: &Site) {
    for (key, (raw, _)) in site.dump() {
        if key.contains("/workloadendpoints/") {
            site.delete(&key);
        } else if key.contains("/nodes/") {
            let mut node: Value = serde_json::from_slice(&raw).unwrap();
            let spec = node["spec"].as_object_mut().unwrap();
            spec.remove("ipv4VXLANTunnelAddr");
            spec.remove("wireguard");
            spec["bgp"].as_object_mut().unwrap().remove("ipv4IPIPTunnelAddr");
            site.put(&key, node.to_string());
        }
    }
}

/// Lists blocks and affinities in `10.244.0.0/16`.
pub(super) fn left_of_old(site: &Site) -> BTreeSet<String> {
    let dump = site.dump();
    let is_in_old_pool = |key: &&String| key.starts_with("/calico/ipam/") && key.contains("/10.244.");
    dump.keys().filter(is_in_old_pool).cloned().collect()
}

#[test]
fn each_phase_follows_from_the_datastore_and_is_undone() {
    let site = Site::of(&cluster());
    let begin = site.dump();
    let plan = migrate(&site, &[&TO[..], &["--block-size", "28", "-o", "json"]].concat());
    let document = plan.json();
    assert_eq!((plan.code, &document["phase"]), (0, &json!("create")), "{plan:?}");
    assert_eq!(changes(&document), set(["create-pool 10.99.0.0/16"]));
    let expected = json!({"name": NEW, "cidr": "10.99.0.0/16", "blockSize": 28, "disabled": false});
    assert_eq!(document["to"], expected);
    // Each node has three tunnels and a pod. It must claim one new block for them.
    let node = |name: &str| json!({"node": name, "needed": 4, "found": 4, "newBlocks": 1});
    assert_eq!(
        document["capacity"],
        json!([node("node-1"), node("node-2"), node("node-3")])
    );
    assert_eq!(document["left"]["inUse"], 12);
    assert_eq!(site.dump(), begin, "a plan writes nothing");

    let created = migrate(
        &site,
        &[&TO[..], &["--block-size", "28", "--apply", "--yes"]].concat(),
    )
    .succeeded();
    let new = pool(&site, NEW);
    let mut spec = pool(&site, OLD)["spec"].clone();
    (spec["cidr"], spec["blockSize"], spec["disabled"]) = ("10.99.0.0/16".into(), 28.into(), false.into());
    assert_eq!(new["spec"], spec);

    // The old pool now determines the next phase. Once it is disabled, it need not be named.
    let disabled = resume(&site, "disable");
    assert_eq!(pool(&site, OLD)["spec"]["disabled"], true);
    let status = migrate(&site, &["-o", "json"]);
    assert_eq!(
        (&status.json()["phase"], &status.json()["from"]["name"]),
        (&json!("move"), &json!(OLD))
    );
    let waiting = site.dump();
    let run = migrate(&site, &["--apply", "--yes"])
        .exits(1)
        .prints("12 addresses in use");
    assert_eq!(
        run.stdout.matches("PHASE").count(),
        1,
        "the table is printed once: {run:?}"
    );
    assert_eq!(site.dump(), waiting);

    leave(&site);
    let moved = site.dump();
    assert_eq!(phase(&site)["left"]["leaked"], 12);
    let cleaned = resume(&site, "clean-up");
    assert_eq!(left_of_old(&site), BTreeSet::new());
    assert_eq!(phase(&site)["phase"], "delete");
    let deleted = resume(&site, "delete").says("the migration is complete");
    assert_eq!(pool(&site, OLD), Value::Null);
    assert_eq!(site.findings(&[]), BTreeSet::new());

    for (run, before) in [
        (deleted, None),
        (cleaned, Some(moved)),
        (disabled, None),
        (created, None),
    ] {
        site.undo(&journal_of(&run)).succeeded();
        if let Some(before) = before {
            assert_eq!(
                values(&site.dump()),
                values(&before),
                "blocks and affinities are there again"
            );
        }
    }
    let expected = begin.get(&key::pool(OLD)).map(|(raw, _)| raw.clone());
    assert_eq!(site.value(&key::pool(OLD)), expected, "byte by byte");
    assert_eq!(pool(&site, NEW), Value::Null);
}

#[test]
fn a_refused_migration_changes_nothing_and_what_refused_it_can_be_removed() {
    let site = Site::of(&cluster());
    let closed = copy_pool(&site, OLD, "closed", "10.98.0.0/16", true);
    // This pool has room for 4 of 12 addresses.
    let narrow = ["--from", OLD, "--to-cidr", "10.99.0.0/30", "--block-size", "30"];
    let before = site.dump();
    for (arguments, code, says) in [
        (
            &["--from", "nope", "--to-cidr", "10.99.0.0/16"][..],
            1,
            "pool \"nope\" not found",
        ),
        (&["--from", OLD, "--to", "nope"], 1, "pool nope not found"),
        (
            &["--from", OLD, "--to", OLD],
            1,
            "is both the old and the new pool",
        ),
        (
            &["--from", OLD, "--to-cidr", "10.244.128.0/17"],
            1,
            "10.244.128.0/17 overlaps 10.244.0.0/16",
        ),
        (
            &["--from", OLD, "--to-cidr", "fd00:99::/64"],
            1,
            "does not allow blocks of /26, only /116 to /128",
        ),
        (
            &["--from", OLD, "--to-cidr", "fd00::/64", "--block-size", "122"],
            1,
            "from different IP families",
        ),
        (
            &["--from", OLD, "--to-cidr", "10.99.0.0/16", "--block-size", "19"],
            1,
            "/20 to /32",
        ),
        (
            &["--from", OLD, "--to-cidr", "10.99.0.0/28"],
            1,
            "10.99.0.0/28 is smaller than one block of /26",
        ),
        (
            &["--from", OLD, "--block-size", "28"],
            1,
            "hint: move its users to a temporary pool and back",
        ),
        (
            &["--from", OLD, "--block-size", "26"],
            1,
            "already has blocks of /26",
        ),
        (
            &["--from", OLD, "--block-size", "19", "--via", "10.99.0.0/16"],
            1,
            "/20 to /32",
        ),
        (
            &["--from", OLD, "--block-size", "28", "--via", "10.98.0.0/16"],
            1,
            "closed, which is not temporary",
        ),
        (
            &["--from", OLD, "--block-size", "28", "--via", "10.244.0.0/17"],
            1,
            "overlaps 10.244.0.0/16",
        ),
        (&["--from", OLD, "--via", "10.99.0.0/16"], 2, "--block-size"),
        (&[], 1, "no pool shows that a migration has begun"),
        (&[], 1, "hint: the pool closed is disabled and empty"),
        (
            &["--from", OLD, "--to", "closed", "--to-cidr", "10.99.0.0/16"],
            2,
            "cannot be used with",
        ),
        (
            &["--datastore", EXAMPLE, "--from", OLD, "--to-cidr", "10.99.0.0/16"],
            2,
            "needs a live datastore",
        ),
        (
            &["--context", "a", "--context", "b", "--from", OLD],
            2,
            "`migrate` works on one",
        ),
        (
            &[&TO[..], &["--to-name", "Pool"]].concat(),
            1,
            "cannot be a pool name",
        ),
        (
            &[&TO[..], &["--to-name", ""]].concat(),
            1,
            "cannot be a pool name",
        ),
        (
            &[&TO[..], &["--to-name", "a/b"]].concat(),
            1,
            "cannot be a pool name",
        ),
        (&[&TO[..], &["--dry-run"]].concat(), 2, "cannot be used with"),
        (&narrow, 1, "of 12 users, first on node-"),
    ] {
        migrate(&site, &[arguments, &["--apply", "--yes"]].concat())
            .exits(code)
            .says(says);
        assert_eq!(site.dump(), before, "{arguments:?}");
    }
    migrate(&site, &[&TO[..], &["--dry-run"]].concat())
        .succeeded()
        .says("dry run: nothing was changed")
        .says("--apply")
        .does_not_say("--dry-run");
    assert_eq!(site.dump(), before);
    // Nobody is asked without a terminal.
    migrate(&site, &[&TO[..], &["--apply"]].concat()).exits(2);
    let plan = migrate(&site, &[&narrow[..], &["-o", "json"]].concat()).json();
    let found = plan["capacity"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["found"].as_u64().unwrap());
    assert!(found.sum::<u64>() < 12, "{plan}");
    assert_eq!(skips(&plan), set(["needs-decision 10.244.0.0/16"]));
    // The plan alone says what `--apply` says.
    migrate(&site, &narrow)
        .failed(
            1,
            "warning: `--apply` would be refused: without default-ipv4-ippool, there are no addresses for ",
        )
        .says("continues anyway")
        .does_not_say("carries it out");
    migrate(&site, &[&narrow[..], &["--force"]].concat())
        .succeeded()
        .says("carries it out");
    assert_eq!(site.dump(), before);

    // An affinity alone makes its node create a block of its size (projectcalico/calico issue 10778).
    let affinity_key = key::affinity("host", "node-1", "10.99.7.64/26".parse().unwrap());
    site.put(&affinity_key, affinity("confirmed"));
    let sized = [&TO[..], &["--block-size", "28", "--apply", "--yes"]].concat();
    let before = site.dump();
    migrate(&site, &sized).failed(1, "the block 10.99.7.64/26 still exists in 10.99.0.0/16");
    assert_eq!(site.dump(), before);
    site.delete(&affinity_key);
    site.undo(&journal_of(&migrate(&site, &sized).succeeded()))
        .succeeded();

    // A pool that exists and is disabled is enabled first.
    let enable = ["--from", OLD, "--to", "closed", "--apply", "--yes", "-o", "json"];
    let run = migrate(&site, &enable).succeeded();
    assert_eq!(changes(&run.json()), set(["enable-pool 10.98.0.0/16"]), "{run:?}");
    assert_eq!(pool(&site, "closed")["spec"]["disabled"], false);
    site.undo(&journal_of(&run)).succeeded();
    assert_eq!(pool(&site, "closed"), closed);
    migrate(&site, &[&narrow[..], &["--apply", "--yes", "--force"]].concat()).succeeded();
}

#[test]
fn a_pool_of_the_operator_or_with_a_finalizer_is_left_to_its_keeper() {
    let site = Site::of(&cluster());
    copy_pool(&site, OLD, "other", "10.97.0.0/16", false);
    copy_pool(&site, OLD, OLD, "10.244.0.0/16", true);
    leave(&site);
    for key in site
        .dump()
        .keys()
        .filter(|key| key.starts_with("/calico/ipam/v2/") && *key != CONFIG)
    {
        site.delete(key);
    }
    let old = pool(&site, OLD);
    for (field, value, says) in [
        (
            "labels",
            json!({"app.kubernetes.io/managed-by": "tigera-operator"}),
            "is managed by tigera-operator",
        ),
        (
            "finalizers",
            json!(["projectcalico.org/ippool-finalizer"]),
            "finalizer projectcalico.org/ippool-finalizer",
        ),
    ] {
        let mut kept = old.clone();
        kept["metadata"][field] = value;
        site.put(&key::pool(OLD), kept.to_string());
        let before = site.dump();
        let status = phase(&site);
        let expected = (&json!("delete"), set(["needs-decision 10.244.0.0/16"]));
        assert_eq!((&status["phase"], skips(&status)), expected);
        migrate(&site, &["--apply", "--from", OLD, "--yes"]).failed(1, says);
        assert_eq!(site.dump(), before);
    }
}

#[test]
fn addresses_not_known_to_be_leaked_keep_their_blocks_and_the_pools_of_these() {
    let site = Site::of(&cluster());
    let assign = |pool, handle| {
        let words = [
            "assign", "--node", "node-1", "--count", "1", "--pool", pool, "--handle", handle, "--yes",
        ];
        site.run(&words).succeeded();
    };
    assign(OLD, "by-hand");
    let created = begin(&site);
    let again = ["--from", NEW, "--to-cidr", "10.97.0.0/16", "-o", "json"];
    let name = migrate(&site, &again).json()["to"]["name"].clone();
    assert_eq!(name, format!("{OLD}-10-97-0-0-16"), "names do not grow");

    assign(NEW, "h");
    let before = site.dump();
    site.undo(&journal_of(&created))
        .exits(1)
        .prints("would be deleted, but");
    assert_eq!(site.dump(), before);

    resume(&site, "disable");
    leave(&site);
    migrate(&site, &["--apply", "--yes", "-o", "json"]).exits(1);
    assert_eq!(left_of_old(&site).len(), 2, "the block and its affinity");
    assert_eq!(phase(&site)["phase"], "clean-up");
    site.release(&["--handle", "by-hand"]).succeeded();
    resume(&site, "clean-up");
    assert_eq!(left_of_old(&site), BTreeSet::new());
}

#[test]
fn addresses_that_cool_down_keep_their_block_until_they_have() {
    let site = Site::of(&Cluster::plain(
        ClusterSpec {
            cooldown_seconds: 1200,
            ..spec()
        },
        3,
        1,
    ));
    begin(&site);
    resume(&site, "disable");
    leave(&site);
    for released in [12, 0] {
        let run = migrate(&site, &["--apply", "--yes", "-o", "json"]);
        let plan = run.json();
        assert_eq!(
            (run.code, &plan["totals"]["addresses"]),
            (1, &json!(released)),
            "{run:?}"
        );
        assert_eq!(
            skips(&plan),
            set(["1", "2", "3"].map(|node| format!("cooling 10.244.{node}.0/26")))
        );
        assert_eq!(left_of_old(&site).len(), 6);
    }
    site.run(&["configure", "--ip-cooldown-seconds", "0", "--yes"])
        .succeeded();
    resume(&site, "clean-up");
    assert_eq!(left_of_old(&site), BTreeSet::new());
}

#[test]
fn the_new_pool_is_named() {
    let site = Site::of(&cluster());
    let to = |name| {
        migrate(
            &site,
            &[&TO[..], &["--to-name", name, "--apply", "--yes"]].concat(),
        )
    };
    to("pods").succeeded();
    assert_ne!(pool(&site, "pods"), Value::Null);
    // Repeating the call continues the migration. A different name means another pool.
    to("others").failed(1, "is the CIDR of the pool pods");
    to("pods").succeeded();
    // Once the old pool is empty, nothing refers to it.
    leave(&site);
    resume(&site, "clean-up");
    migrate(&site, &[])
        .refused(1, "no pool shows that a migration has begun")
        .says("migrate --from default-ipv4-ippool");
    assert_eq!(phase(&site)["phase"], "delete");
    site.run(&["undo", "--list"])
        .prints(&format!("create {OLD}"))
        .prints(&format!("disable {OLD}"));
}

/// Annotations are not trusted, since anyone who may write pools can set them.
#[test]
fn a_temporary_pool_names_no_pool_that_cannot_be() {
    let site = Site::of(&cluster());
    for name in ["", "a/b", "\u{1b}[2J", "../p"] {
        let mut temporary = pool(&site, OLD);
        let successor = json!({"name": name, "cidr": "10.200.0.0/24", "blockSize": 28}).to_string();
        temporary["metadata"]["annotations"] = json!({"calipam.io/temporary-for": successor});
        site.put(&key::pool(OLD), temporary.to_string());
        let before = site.dump();
        let run = migrate(&site, &["--apply", "--from", OLD, "--yes"]).failed(1, "cannot be a pool name");
        assert!(!run.stderr.contains('\u{1b}'), "{run:?}");
        assert_eq!(site.dump(), before);
    }
}
