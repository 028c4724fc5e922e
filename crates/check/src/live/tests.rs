//! Checking what changed against checking everything.

use std::collections::BTreeMap;

use calipam_model::pod::{Pod, PodParts};
use calipam_model::snapshot::{DatastoreKind, Revision, Snapshot, Source, Versioned};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::rounds;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::rules::kubernetes_tests::{kubernetes, running, with_pods};
use crate::rules::pool_tests::{FULL, small, strict};
use crate::rules::random_tests::{Dice, entries, unread};
use crate::test_cluster::pod as record;
use crate::{Code, Severity, check};

/// What is stored, by key: value and revision.
type Stored = BTreeMap<Vec<u8>, (Vec<u8>, i64)>;

/// A cluster that changes, and what is known of it.
struct World {
    stored: Stored,
    snapshot: Snapshot,
    live: LiveCheck,
    options: Options,
    revision: i64,
    parts: usize,
    /// Parts that were checked while handles shared an object.
    capitals: usize,
}

impl World {
    /// `read` says what was read.
    fn new(stored: Stored, read: Snapshot, options: Options) -> Self {
        let mut snapshot = read;
        stored.iter().for_each(|(key, (value, revision))| snapshot.add_entry(key, value, *revision));
        snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
        let live = LiveCheck::new(&snapshot, &options);
        Self { stored, snapshot, live, options, revision: 1_000, parts: 0, capitals: 0 }
    }

    /// Writes or deletes keys, and compares what is found of that with a check of everything.
    fn change(&mut self, changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>, pods: Vec<Pod>, name: &str) {
        self.revision += 1;
        let mut now = Snapshot::default();
        for (key, value) in &changes {
            if let Some(value) = value {
                now.add_entry(key, value, self.revision);
                self.stored.insert(key.clone(), (value.clone(), self.revision));
            } else {
                self.stored.remove(key);
            }
        }
        let keys: Vec<&[u8]> = changes.keys().map(Vec::as_slice).collect();
        let mut before = self.snapshot.change_entries(&keys, now.clone());
        self.change_pods(pods, &mut before, &mut now);
        let checked = self.live.update(&mut self.snapshot, Touched::between(&before, &now));
        self.parts += usize::from(checked == Checked::Part);
        let expected = check(&self.snapshot, &self.options);
        let collides = expected.findings.iter().any(|finding| finding.code == Code::HandleCaseCollision);
        self.capitals += usize::from(checked == Checked::Part && collides);
        let found = self.live.report(&self.snapshot);
        let [lost, more] = [(&expected, &found), (&found, &expected)].map(|(all, others)| {
            let missing = all.findings.iter().filter(|finding| !others.findings.contains(finding));
            missing.map(|f| format!("{} {}: {:?}", f.code, f.subject, f.evidence)).collect::<Vec<_>>()
        });
        let changed: Vec<_> = changes.keys().map(|key| String::from_utf8_lossy(key)).collect();
        assert!(
            lost.is_empty() && more.is_empty(),
            "{name}: {checked:?} after {changed:?}: lost {lost:#?}, too much {more:#?}"
        );
        assert_eq!(found, expected, "{name}");
    }

    /// Pods of these names become these.
    fn change_pods(&mut self, pods: Vec<Pod>, before: &mut Snapshot, now: &mut Snapshot) {
        for pod in pods {
            let is_same = |other: &mut Versioned<Pod>| other.value.key() == pod.key();
            before.pods.extend(self.snapshot.pods.extract_if(.., is_same));
            // One without a phase is gone.
            if pod.running || pod.finished {
                let pod = Versioned { value: pod, revision: Revision::Etcd(self.revision) };
                now.pods.push(pod.clone());
                self.snapshot.pods.push(pod);
            }
        }
    }

    fn wait(&mut self, seconds: i64) {
        self.snapshot.taken_at += SignedDuration::from_secs(seconds);
    }
}

fn as_stored(entries: crate::rules::random_tests::Entries) -> Stored {
    entries.into_iter().map(|(key, value)| (key.into_bytes(), (value, 3))).collect()
}

fn pod(dice: &mut Dice) -> Pod {
    let addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.5", "fd00::1", "10.9.0.1", "192.168.0.1"];
    let status = dice.pick(&addresses);
    let parts = PodParts {
        namespace: "default",
        name: dice.pick(&["a", "b", "web-0"]),
        node: dice.pick(&["node-1", "node-2", "gone"]),
        phase: dice.pick(&["Running", "Running", "Succeeded", ""]),
        ready: dice.one_in(2),
        ended_at: dice.one_in(2).then(|| "2026-05-01T11:58:00Z".parse().unwrap()),
        host_network: dice.one_in(6),
        deleting: dice.one_in(6),
        status_ips: if dice.one_in(4) { vec![status, "fd00::2"] } else { vec![status] },
        cni_ip: dice.one_in(3).then(|| dice.pick(&addresses)),
        no_ipam: dice.one_in(9).then_some(r#"["10.0.0.2"]"#),
        container_id: dice.pick(&["", "a", "sandbox"]),
        ..PodParts::default()
    };
    Pod::new(&parts).0
}

/// A few of the differences between two states.
fn some_changes(
    dice: &mut Dice,
    stored: &Stored,
    other: &Stored,
    most: usize,
) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let keys: Vec<&Vec<u8>> = stored.keys().chain(other.keys()).collect();
    let mut changes = BTreeMap::new();
    for _ in 0..=dice.below(most) {
        let key = keys[dice.below(keys.len())].clone();
        let value = other.get(&key).map(|(value, _)| value.clone());
        changes.insert(key, value);
    }
    changes
}

#[test]
fn after_any_change_of_an_odd_cluster_it_is_what_a_full_check_finds() {
    let (mut parts, mut all, mut capitals) = (0, 0, 0);
    for seed in 0..rounds(40) {
        let dice = &mut Dice(seed);
        let mut read = unread(dice);
        if dice.one_in(2) {
            read.datastore = DatastoreKind::Kubernetes;
        }
        let with_pods = dice.one_in(2);
        if with_pods {
            read.mark_read([Source::Pods, Source::Services]);
        }
        let options = Options { pool_threshold: 30.0, ..Options::default() };
        let mut world = World::new(as_stored(entries(dice)), read, options);
        for step in 0..20 {
            let other = as_stored(entries(dice));
            let changes = some_changes(dice, &world.stored, &other, 3);
            let pods = if with_pods && dice.one_in(2) { vec![pod(dice)] } else { Vec::new() };
            // A clock is also set back.
            world.wait([0, 1, 30, 300, 900, -400][dice.below(6)]);
            world.change(changes, pods, &format!("seed {seed}, step {step}"));
        }
        (parts, all, capitals) = (parts + world.parts, all + 20, capitals + world.capitals);
    }
    assert!(parts > all / 5, "of {all} changes only {parts} were checked by parts");
    assert!(capitals > 20, "only {capitals} changes of parts with IDs that share an object");
}

#[test]
fn after_any_change_of_a_cluster_with_every_fault_it_is_what_a_full_check_finds() {
    let (mut parts, mut codes) = (0, HashSet::new());
    for seed in 0..rounds(2) {
        let dice = &mut Dice(seed);
        let states = [seed + 1, seed + 1].map(|seed| Cluster::all_faults(ClusterSpec::new(seed), 2));
        let healthy = Cluster::plain(ClusterSpec::new(seed + 1), 8, 6);
        let read = Snapshot { taken_at: states[0].spec().now, ..Snapshot::default() };
        let [stored, _] = states.map(|cluster| stored(&cluster));
        let healthy = stored_of_plain(&healthy, &stored);
        let mut read = read;
        read.mark_read(calipam_model::snapshot::ETCD_SOURCES);
        let mut world = World::new(stored.clone(), read, Options::default());
        for step in 0..60 {
            let changes = match dice.below(4) {
                // What was changed is as it was.
                0 => some_changes(dice, &world.stored, &stored, 12),
                1 => some_changes(dice, &world.stored, &healthy, 3),
                2 => swapped(dice, &world.stored),
                _ => some_changes(dice, &world.stored, &Stored::new(), 3),
            };
            world.wait([0, 2, 60, 600][dice.below(4)]);
            world.change(changes, Vec::new(), &format!("seed {seed}, step {step}"));
            codes.extend(world.live.findings().map(|finding| finding.code));
        }
        parts += world.parts;
    }
    assert!(parts > 40, "only {parts} were checked by parts");
    assert!(codes.contains(&Code::LeakedAddress) && codes.len() > 20, "{codes:?}");
}

fn stored(cluster: &Cluster) -> Stored {
    let mut stored = Stored::new();
    cluster.for_each_entry(|key, value| drop(stored.insert(key.to_vec(), (value.to_vec(), 3))));
    stored
}

/// What another cluster stores under keys that lie in the first one, too, or are of workloads.
fn stored_of_plain(other: &Cluster, first: &Stored) -> Stored {
    let is_wanted = |key: &[u8]| {
        first.contains_key(key)
            || key.starts_with(b"/calico/resources/v3/projectcalico.org/workloadendpoints")
    };
    stored(other).into_iter().filter(|(key, _)| is_wanted(key)).collect()
}

/// Two objects of a kind with each other's value, as far as a key lets it be one.
fn swapped(dice: &mut Dice, stored: &Stored) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let prefix: &[u8] =
        [&b"/calico/ipam/v2/handle/"[..], b"/calico/resources/v3/projectcalico.org/workloadendpoints/"]
            [dice.below(2)];
    let keys: Vec<&Vec<u8>> = stored.keys().filter(|key| key.starts_with(prefix)).collect();
    let [one, other] = [0, 1].map(|_| keys[dice.below(keys.len())]);
    let value = |key: &Vec<u8>| Some(stored[key].0.clone());
    BTreeMap::from([(one.clone(), value(other)), (other.clone(), value(one))])
}

/// What changes to make the first state the second.
fn touched(before: &Snapshot, after: &Snapshot) -> Touched {
    fn others<T: PartialEq + Clone>(all: &[T], others: &[T]) -> Vec<T> {
        all.iter().filter(|object| !others.contains(object)).cloned().collect()
    }
    let changed = |one: &Snapshot, other: &Snapshot| Snapshot {
        blocks: others(&one.blocks, &other.blocks),
        handles: others(&one.handles, &other.handles),
        endpoints: others(&one.endpoints, &other.endpoints),
        pods: others(&one.pods, &other.pods),
        ..Snapshot::default()
    };
    Touched::between(&changed(before, after), &changed(after, before))
}

/// Checked by what changes, the second state is what a full check finds. Gives how much was checked.
fn follow(before: &Snapshot, mut after: Snapshot) -> Checked {
    let mut live = LiveCheck::new(before, &Options::default());
    let touched = touched(before, &after);
    let checked = live.update(&mut after, touched);
    assert_eq!(live.report(&after), check(&after, &Options::default()));
    checked
}

/// The layout is checked again if a change reaches it, and only then.
#[test]
fn blocks_that_fill_and_empty_are_what_a_full_check_finds() {
    let (mut codes, mut kept) = (HashSet::new(), 0);
    for seed in 0..rounds(16) {
        let dice = &mut Dice(seed);
        let [is_shared, is_unowned, is_tainted, is_ample] = [1, 2, 4, 8].map(|bit| seed & bit == 0);
        let mut taken = [4, 4, 4, 3];
        let mut is_awaited = false;
        let mut next = |dice: &mut Dice| {
            if dice.one_in(2) {
                taken[dice.below(4)] = [4, 3, 2, 0][dice.below(4)];
            }
            is_awaited ^= dice.one_in(3);
            let owned = [("node-1", taken[0]), ("node-2", taken[1]), ("node-2", taken[2])];
            let mut cluster = small(strict(), &owned);
            let records = [0, 1, 2, 3].map(|place| match place < taken[3] {
                true => json!({"handle_id": format!("last-{place}")}),
                false => Value::Null,
            });
            cluster.block("10.244.1.12/30", Some("host:node-2").filter(|_| !is_unowned), records);
            if is_shared {
                cluster.put(
                    "/calico/ipam/v2/host/node-1/ipv4/block/10.244.1.4-30",
                    json!({"state": "confirmed"}),
                );
            }
            if is_ample {
                cluster.resource("ippools/large", json!({"cidr": "10.244.2.0/24", "blockSize": 30}));
            }
            cluster.0.nodes[0].value.tainted = is_tainted;
            let pod = PodParts { phase: "Pending", ..running("new", "") };
            with_pods(cluster, if is_awaited { std::slice::from_ref(&pod) } else { &[] }).0
        };
        let mut before = next(dice);
        let mut live = LiveCheck::new(&before, &Options::default());
        for step in 0..12 {
            let mut after = next(dice);
            let seen = live.layout.findings.as_ptr();
            let touched = touched(&before, &after);
            let checked = live.update(&mut after, touched);
            let expected = check(&after, &Options::default());
            assert_eq!((checked, live.report(&after)), (Checked::Part, expected), "seed {seed}, step {step}");
            codes.extend(live.findings().map(|finding| finding.code));
            kept += usize::from(
                step > 0 && !live.layout.findings.is_empty() && live.layout.findings.as_ptr() == seen,
            );
            before = after;
        }
    }
    let wanted = [Code::StrandedAddresses, Code::EmptyUnownedBlock, Code::AffinityConflict];
    assert!(wanted.iter().all(|code| codes.contains(code)) && kept > 10, "{codes:?}, {kept} times as it was");
}

/// Whether a stranded node is an error is decided by pods anywhere.
#[test]
fn which_families_pods_need_is_known_while_something_else_changes() {
    let mut cluster = small(strict(), &FULL);
    cluster.endpoint("node-2", "six", &["fd00::1/128"]);
    let severity = |snapshot: &Snapshot| {
        let found = check(snapshot, &Options::default()).findings;
        found.iter().find(|f| f.code == Code::StrandedAddresses).map(|f| f.severity)
    };
    assert_eq!(severity(&cluster.0), Some(Severity::Warning));
    let mut with_handle = cluster.0.clone();
    with_handle.add_entry(b"/calico/ipam/v2/handle/x", br#"{"block":{}}"#, 9);
    assert_eq!(follow(&cluster.0, with_handle), Checked::Part);

    // The one that is known goes, and another is left; or none.
    let mut two = small(strict(), &FULL);
    two.endpoint("node-2", "six", &["fd00::1/128"]).endpoint("node-2", "seven", &["fd00::2/128"]);
    let mut one = two.0.clone();
    one.endpoints.remove(0);
    assert_eq!(follow(&two.0, one.clone()), Checked::Everything);
    let mut none = one.clone();
    none.endpoints.clear();
    assert_eq!(severity(&none), Some(Severity::Error));
    follow(&one, none);
}

#[test]
fn without_blocks_of_calico_everything_is_checked() {
    let none = crate::test_cluster::Cluster::new();
    let mut one = crate::test_cluster::Cluster::new();
    one.endpoint("node-1", "web", &["10.9.0.1/32"]);
    assert_eq!(follow(&none.0, one.0), Checked::Everything);

    let mut of_services = crate::test_cluster::Cluster::new();
    of_services.0.mark_read([Source::Affinities]);
    let free = [Value::Null, Value::Null, Value::Null, Value::Null];
    of_services.block("10.244.1.0/30", Some("virtual:load-balancer"), free);
    assert!(is_for_services_only(&of_services.0));
    let affinity = json!({"state": "confirmed"});
    of_services.put("/calico/ipam/v2/host/node-1/ipv4/block/10.244.2.0-30", affinity);
    assert!(!is_for_services_only(&of_services.0), "a node had a block");
}

#[test]
fn a_pod_that_ended_is_judged_again_after_the_grace_period() {
    let ended = PodParts {
        phase: "Succeeded",
        ended_at: Some("2026-05-01T11:59:00Z".parse().unwrap()),
        ..running("web", "10.244.1.0")
    };
    let mut cluster = kubernetes(record("node-1", "web"));
    cluster.0.datastore = DatastoreKind::Etcd;
    cluster.0.mark_read([Source::Endpoints]);
    cluster.endpoint("node-1", "web", &["10.244.1.0/32"]);
    let options = Options { grace: Some(SignedDuration::from_mins(2)), ..Options::default() };
    let mut world = World::new(Stored::new(), with_pods(cluster, &[ended]).0, options);
    // Two minutes are not more than two minutes.
    for (seconds, found) in [(60, 0), (1, 1), (1, 1)] {
        world.wait(seconds);
        world.change(BTreeMap::new(), Vec::new(), "later");
        let of_pod = |finding: &&Finding| finding.code == Code::EndpointWithoutPod;
        assert_eq!(world.live.findings().filter(of_pod).count(), found);
    }
    assert_eq!(world.parts, 3);
}

/// Addresses of one handle keep each other: one that is released, or another's, leaves the others leaked.
#[test]
fn what_a_handle_holds_elsewhere_is_checked_with_it() {
    let v6 = |first: &str| {
        let mut cluster = kubernetes(record("node-1", first));
        cluster.resource("ippools/v6", json!({"cidr": "fd00::/120", "blockSize": 126}));
        let none = || Value::Null;
        cluster.block("fd00::/126", Some("host:node-1"), [record("node-1", "web"), none(), none(), none()]);
        with_pods(cluster, &[running("web", "10.244.1.0")])
    };
    let leaks = |cluster: &crate::test_cluster::Cluster| {
        let found = check(&cluster.0, &Options::default()).findings;
        found.iter().filter(|f| f.code == Code::LeakedAddress).count()
    };
    let (together, apart) = (v6("web"), v6("another"));
    assert_eq!((leaks(&together), leaks(&apart)), (0, 1));
    assert_eq!(follow(&together.0, apart.0.clone()), Checked::Part);
    assert_eq!(follow(&apart.0, together.0.clone()), Checked::Part);

    let (mut one, mut other) = (v6("web"), v6("web"));
    one.put("/calico/ipam/v2/handle/net.ABC", json!({"block": {}}));
    other.put("/calico/ipam/v2/handle/net.ABC", json!({"block": {}}));
    other.put("/calico/ipam/v2/handle/net.abc", json!({"block": {}}));
    assert_eq!(follow(&one.0, other.0.clone()), Checked::Part);
    assert_eq!(follow(&other.0, one.0), Checked::Part, "what shared an object is alone again");
}
