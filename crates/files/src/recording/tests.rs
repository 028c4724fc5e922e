//! Recordings as files: reading them back, the effects of kills and disk errors, and their size.

mod known;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::snapshot::DatastoreKind;
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::archive::{Archive, Archived};
use crate::export::{self, Writer};
use crate::raw::RawEntry;

const GUID: &str = "0f0e1d2c3b4a59687786951423324150";
const BEGIN: &str = "2026-11-20T03:00:00Z";

type State = BTreeMap<Vec<u8>, (i64, Vec<u8>)>;

fn time(seconds: i64) -> Timestamp {
    BEGIN.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

/// Pseudorandom numbers, the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn hex(&mut self, digits: usize) -> String {
        let text: String = (0..digits.div_ceil(16))
            .map(|_| format!("{:016x}", self.next()))
            .collect();
        text[..digits].to_owned()
    }
}

/// A cluster in which pods come and go, with values in Calico's form.
struct World {
    random: Random,
    revision: i64,
    state: State,
    blocks: Vec<Block>,
    pods: Vec<Pod>,
}

struct Pod {
    block: usize,
    ordinal: u32,
    handle: String,
    endpoint: String,
}

impl World {
    fn new(nodes: usize, pods: usize) -> Self {
        let claimed = BEGIN.parse().unwrap();
        let block = |node: usize| {
            let cidr = format!("10.{}.{}.0/26", node / 250, node % 250).parse().unwrap();
            Block::new(cidr, Some(BlockOwner::Host(format!("node-{node}"))), claimed).unwrap()
        };
        let blocks = (0..nodes).map(block).collect();
        let mut world = Self {
            random: Random(88_172_645_463_325_252),
            revision: 100,
            state: State::new(),
            blocks,
            pods: Vec::new(),
        };
        for node in 0..nodes {
            world.put_block(node);
        }
        (0..pods).for_each(|_| drop(world.start(-600)));
        world
    }

    fn change(&mut self, key: String, value: Option<Vec<u8>>) -> Change {
        self.revision += 1;
        let key = key.into_bytes();
        match &value {
            Some(value) => drop(self.state.insert(key.clone(), (self.revision, value.clone()))),
            None => drop(self.state.remove(&key)),
        }
        Change {
            key,
            revision: self.revision,
            value,
        }
    }

    fn put_block(&mut self, block: usize) -> Change {
        let cidr = self.blocks[block].cidr();
        let key = format!("{BLOCKS}{}-{}", cidr.addr(), cidr.prefix_len());
        let value = serde_json::to_vec(&self.blocks[block]).unwrap();
        self.change(key, Some(value))
    }

    /// Starts a pod with an address: writes its handle, its block and its endpoint.
    fn start(&mut self, seconds: i64) -> Vec<Change> {
        let block = loop {
            let block = self.random.below(self.blocks.len());
            if !self.blocks[block].free().is_empty() {
                break block;
            }
        };
        let (container, uid, mac) = (self.random.hex(64), self.random.hex(32), self.random.hex(12));
        let app = ["web", "api", "batch", "cache"][self.random.below(4)];
        let pod = format!("{app}-{}-{}", &self.random.hex(10), &self.random.hex(5));
        let (node, handle) = (format!("node-{block}"), format!("k8s-pod-network.{container}"));
        let at = time(seconds)
            .strftime("%Y-%m-%d %H:%M:%S.%N +0000 UTC")
            .to_string();
        let owner = [
            ("namespace", "shop"),
            ("node", node.as_str()),
            ("pod", pod.as_str()),
            ("timestamp", at.as_str()),
        ];
        let record = Attribute::new(Some(&handle), owner);
        let ordinal = self.blocks[block].free()[0];
        self.blocks[block]
            .update(|update| update.assign(ordinal, &record))
            .unwrap();
        let cidr = self.blocks[block].cidr();
        let address = calipam_model::cidr::address_at(cidr, ordinal);

        let name = format!("{}-k8s-{}-eth0", node.replace('-', "--"), pod.replace('-', "--"));
        let endpoint = serde_json::json!({
            "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": name, "namespace": "shop", "uid": uid, "creationTimestamp": time(seconds).to_string(),
                "labels": {"app": app, "projectcalico.org/namespace": "shop", "projectcalico.org/orchestrator": "k8s",
                    "projectcalico.org/serviceaccount": "default"}},
            "spec": {"orchestrator": "k8s", "workload": "", "node": node, "containerID": container, "pod": pod,
                "endpoint": "eth0", "serviceAccountName": "default", "ipNetworks": [format!("{address}/32")],
                "profiles": ["kns.shop", "ksa.shop.default"], "interfaceName": format!("cali{}", &mac[..11]), "mac": mac},
        });
        let handle_value = format!(r#"{{"block":{{"{cidr}":1}},"deleted":false}}"#);
        let endpoint_key = format!("{ENDPOINTS}shop/{name}");
        self.pods.push(Pod {
            block,
            ordinal,
            handle: handle.clone(),
            endpoint: endpoint_key.clone(),
        });
        vec![
            self.change(format!("{HANDLES}{handle}"), Some(handle_value.into_bytes())),
            self.put_block(block),
            self.change(endpoint_key, Some(endpoint.to_string().into_bytes())),
        ]
    }

    /// Stops a random pod, and releases its address.
    fn stop(&mut self) -> Vec<Change> {
        let place = self.random.below(self.pods.len());
        let Pod {
            block,
            ordinal,
            handle,
            endpoint,
        } = self.pods.swap_remove(place);
        self.blocks[block].update(|update| update.release(&[ordinal]));
        vec![
            self.put_block(block),
            self.change(format!("{HANDLES}{handle}"), None),
            self.change(endpoint, None),
        ]
    }
}

const BLOCKS: &str = "/calico/ipam/v2/assignment/ipv4/block/";
const HANDLES: &str = "/calico/ipam/v2/handle/";
const ENDPOINTS: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/";

fn begin(recorder: &Recorder, state: &State, revision: i64, at: Timestamp) -> Journal {
    begin_history(recorder, state, revision, at, None)
}

/// Begins the first recording in a folder, from a state without objects.
fn begin_empty(folder: &Path) -> (Recorder, Journal) {
    let recorder = Recorder::open(folder).unwrap();
    let journal = begin(&recorder, &State::new(), 1, time(0));
    (recorder, journal)
}

/// A group of one change of the handle `id`, which is deleted if there is no value.
fn change(id: &str, revision: i64, value: Option<&str>) -> Vec<Change> {
    vec![Change {
        key: format!("{HANDLES}{id}").into(),
        revision,
        value: value.map(Into::into),
    }]
}

/// Begins a recording of another history. `last` is the time of the last change in the previous recording.
fn begin_history(
    recorder: &Recorder,
    state: &State,
    revision: i64,
    at: Timestamp,
    last: Option<Timestamp>,
) -> Journal {
    let adding = recorder.begin().unwrap();
    let mut header = export::Header::new(DatastoreKind::Etcd, "test", &revision.to_string(), at);
    header.guid = GUID.to_owned();
    let mut writer = Writer::create(&adding.path(), &header).unwrap();
    // The order in an export is arbitrary.
    for (key, (mod_revision, value)) in state.iter().rev() {
        let entry = RawEntry {
            key,
            value,
            mod_revision: *mod_revision,
            ..RawEntry::default()
        };
        writer.entry(&entry).unwrap();
    }
    let entries = writer.finish().unwrap();
    let positions = Positions::from([("etcd".to_owned(), Position::at(revision))]);
    Journal::create(
        &adding.finish_last(entries, last).unwrap(),
        positions,
        last.is_some(),
    )
    .unwrap()
}

/// Reads the exports in a folder with their changes. Returns the time and revision of each state, in order, and the
/// result for each export.
fn recorded_states(folder: &Path) -> (Vec<(Timestamp, i64)>, Vec<Reached>) {
    let (mut states, mut told) = (States::default(), Vec::new());
    let (archive, _) = Archive::open_with_damage(folder).unwrap();
    let mut take = |one| {
        if let StateUpdate::State(snapshot) = one {
            told.push((snapshot.taken_at, snapshot.revision.parse().unwrap()));
        }
    };
    let exports = archive.exports().iter();
    let reached = exports
        .map(|export| states.pass_states(export, &|_| true, &mut take).unwrap().unwrap())
        .collect();
    (told, reached)
}

/// The state at `until`, from an export and its changes. Without a time, the last state.
fn state_at(export: &Archived, until: Option<Timestamp>) -> (State, Reached) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.jsonl");
    let (reached, entries) = write_state(export, until, &path).unwrap();
    let mut state = State::new();
    export::read(&path, |entry| {
        state.insert(entry.key.to_vec(), (entry.mod_revision, entry.value.to_vec()));
    })
    .unwrap();
    assert_eq!(entries, state.len() as u64, "no object is in it twice");
    (state, reached)
}

/// The only export in a folder.
fn only(folder: &Path) -> Archived {
    let (archive, _) = Archive::open_with_damage(folder).unwrap();
    assert_eq!(archive.exports().len(), 1);
    archive.exports()[0].clone()
}

/// Writes a recording with a few groups of changes. Returns the state after each group, and the length of the file at
/// that point.
fn recorded(folder: &Path, groups: i64) -> Vec<(State, u64)> {
    let mut world = World::new(3, 40);
    let recorder = Recorder::open(folder).unwrap();
    let mut journal = begin(&recorder, &world.state, world.revision, time(0));
    let mut states = vec![(world.state.clone(), journal.length())];
    for group in 1..=groups {
        let mut changes = world.start(group);
        changes.extend(world.stop());
        changes.push(world.change(format!("{HANDLES}odd-{group}"), Some(vec![0xFF, 0, b'\n'])));
        let reached = [("etcd".to_owned(), world.revision + 5)].into();
        journal.append(time(group), reached, changes).unwrap();
        world.revision += 5;
        states.push((world.state.clone(), journal.length()));
    }
    states
}

#[test]
fn every_state_comes_back_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let states = recorded(folder.path(), 30);
    let export = only(folder.path());
    for (group, (state, _)) in (0..).zip(&states) {
        let (found, reached) = state_at(&export, Some(time(group) + SignedDuration::from_millis(500)));
        assert!(found == *state && reached.until == time(group), "{group}");
    }

    // A new full state equals the old one with its changes, and continues from there.
    let recorder = Recorder::open(folder.path()).unwrap();
    let journal = recorder.resume(GUID).unwrap().unwrap();
    let positions = journal.positions().clone();
    let (last, odd) = (
        positions["etcd"].last.unwrap(),
        format!("{HANDLES}odd-30").into_bytes(),
    );
    assert!(positions["etcd"].revision > last.0);
    let change = |value: &[u8]| Change {
        key: odd.clone(),
        revision: last.0,
        value: Some(value.into()),
    };
    assert_eq!(last.1, checksum(&change(&[0xFF, 0, b'\n'])));
    assert_ne!(last.1, checksum(&change(b"another value")));
    let renewed = journal.renew(recorder.begin().unwrap()).unwrap();
    assert_eq!((renewed.positions(), renewed.last()), (&positions, time(30)));
    let (found, _) = state_at(renewed.export(), None);
    assert!(found == states[30].0);
    let (told, reached) = recorded_states(folder.path());
    assert!(reached[1].continues && told.len() > 150, "{}", told.len());
    assert!(
        told.is_sorted() && told.last().unwrap().0 == time(30),
        "what has come to be is not told again"
    );
}

#[test]
fn a_kill_at_any_byte_loses_nothing_that_was_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let states = recorded(folder.path(), 4);
    let export = only(folder.path());
    let whole = fs::read(export.changes()).unwrap();
    assert_eq!(whole.len() as u64, states[4].1);
    for length in (states[0].1..states[1].1).chain((states[1].1..states[4].1).step_by(17)) {
        fs::write(export.changes(), &whole[..length as usize]).unwrap();
        let known = states.iter().rposition(|(_, end)| *end <= length).unwrap();
        let (found, reached) = state_at(&export, None);
        assert!(found == states[known].0 && reached.damage.is_none(), "{length}");
    }
    // At the kill, the file had already grown, but its new part was not yet filled.
    for length in states[3].1..states[4].1 - 4 {
        let zeros = vec![0; 64 + (states[4].1 - length) as usize];
        fs::write(export.changes(), [&whole[..length as usize], &zeros].concat()).unwrap();
        let (found, reached) = state_at(&export, None);
        assert!(
            found == states[3].0 && reached.damage.is_none(),
            "{length}: {:?}",
            reached.damage
        );
    }

    // The next run cuts off an incomplete end, even one of zeros, and continues.
    for tail in [&whole[states[3].1 as usize..whole.len() - 1], &[0; 300]] {
        fs::write(export.changes(), [&whole[..states[3].1 as usize], tail].concat()).unwrap();
        let recorder = Recorder::open(folder.path()).unwrap();
        let mut journal = recorder.resume(GUID).unwrap().unwrap();
        assert_eq!((journal.last(), journal.length()), (time(3), states[3].1));
        let change = Change {
            key: b"/calico/ipam/v2/config".to_vec(),
            revision: 999,
            value: Some(b"{}".to_vec()),
        };
        journal.append(time(9), BTreeMap::new(), vec![change]).unwrap();
        let (mut found, reached) = state_at(&export, None);
        assert_eq!(
            found.remove(&b"/calico/ipam/v2/config"[..]),
            Some((999, b"{}".to_vec()))
        );
        assert!(found == states[3].0 && reached.until == time(9));
    }
}

#[test]
fn a_flipped_bit_is_named_with_its_place_and_ends_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let states = recorded(folder.path(), 4);
    let export = only(folder.path());
    let whole = fs::read(export.changes()).unwrap();
    // Tries each byte in the first frames, and some of the other bytes.
    let places = (0..100).chain((100..whole.len()).step_by(41));
    for place in places {
        let mut flipped = whole.clone();
        flipped[place] ^= 1 << (place % 8);
        fs::write(export.changes(), &flipped).unwrap();
        let known = states.iter().rposition(|(_, end)| *end <= place as u64);
        let (found, reached) = state_at(&export, None);
        let damage = reached.damage.unwrap().to_string();
        let at = known.map_or(0, |known| states[known].1);
        assert!(
            damage.contains(&format!(": damaged at byte {at}:")),
            "{place}: {damage}"
        );
        assert!(found == states[known.unwrap_or_default()].0, "{place}");
        // Nothing is appended after damage.
        if place % 50 == 0 {
            assert!(
                Recorder::open(folder.path())
                    .unwrap()
                    .resume(GUID)
                    .unwrap()
                    .is_none()
            );
        }
    }
}

#[test]
fn one_run_records_one_cluster_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path(), 1);
    let recorder = Recorder::open(folder.path()).unwrap();
    let busy = Recorder::open(folder.path()).unwrap_err().to_string();
    assert!(busy.contains("another run is writing to this archive"), "{busy}");
    let Err(other) = recorder.resume("another") else {
        panic!("it is of another cluster")
    };
    assert!(
        other.to_string().contains(GUID) && other.to_string().contains("another"),
        "{other}"
    );
    drop(recorder);
    assert!(
        Recorder::open(folder.path())
            .unwrap()
            .resume(GUID)
            .unwrap()
            .is_some()
    );
}

#[test]
fn an_object_may_be_larger_than_a_frame_usually_is() {
    let folder = tempfile::tempdir().unwrap();
    let (_recorder, mut journal) = begin_empty(folder.path());
    let key = format!("{BLOCKS}10.0.0.0-26").into_bytes();
    let mut state = State::new();
    for (revision, length) in [(2, 5 << 20), (3, 9 << 20)] {
        let value = vec![b'a'; length];
        state.insert(key.clone(), (revision, value.clone()));
        let change = Change {
            key: key.clone(),
            revision,
            value: Some(value),
        };
        journal
            .append(time(revision), BTreeMap::new(), vec![change])
            .unwrap();
    }
    assert!(state_at(&only(folder.path()), None).0 == state);
}

/// A change takes at most 40 bytes (issue 32) while pods are started and stopped, if the fifty changes of each second
/// form one group. A container's random ID alone is 32 bytes long, and is both written and deleted.
#[test]
fn a_change_takes_forty_bytes_or_less() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(200, 6_000);
    let recorder = Recorder::open(folder.path()).unwrap();
    let mut journal = begin(&recorder, &world.state, world.revision, time(0));
    let (begin, mut number) = (journal.length(), 0);
    for second in 1..=120 {
        let mut changes = Vec::new();
        for _ in 0..8 {
            changes.extend(world.start(second));
            changes.extend(world.stop());
        }
        number += changes.len() as u64;
        let reached = [("etcd".to_owned(), world.revision)].into();
        journal.append(time(second), reached, changes).unwrap();
    }
    let mean = (journal.length() - begin) as f64 / number as f64;
    println!("{number} changes, {mean:.1} bytes each");
    assert!(mean <= 40.0, "{mean:.1} bytes each");
    assert!(state_at(&only(folder.path()), None).0 == world.state);
}
