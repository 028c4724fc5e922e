//! Histories of one block and the objects around it.

use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockContent, BlockOwner};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::Value;

use super::{
    Event, EventKind, HistorySubject, JournaledWrite, Kept, Key, Origin, Run, State, Uncertainty, Version,
    decode, events_between, timeline,
};

pub(super) const PATH: &str = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29";

pub(super) fn cidr() -> IpNet {
    "10.0.0.0/29".parse().unwrap()
}

pub(super) fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A block that node-1 claimed at 10:00.
pub(super) fn fresh() -> Block {
    // `Block::new` returns `None` only for a CIDR that is too large.
    Block::new(
        cidr(),
        Some(BlockOwner::Host("node-1".into())),
        time("2026-05-01T10:00:00Z"),
    )
    .unwrap()
}

/// A block in which the pod `a` has an address.
pub(super) fn of_pod_a() -> Block {
    let mut block = fresh();
    block
        .update(|update| update.assign(3, &pod("a", "2026-05-01 10:05:00 +0000 UTC")))
        .unwrap();
    block
}

pub(super) fn pod(name: &str, at: &str) -> Attribute {
    let handle = format!("net.{name}");
    let owner = [
        ("namespace", "ns"),
        ("node", "node-1"),
        ("pod", name),
        ("timestamp", at),
    ];
    Attribute::new(Some(handle.as_str()), owner)
}

pub(super) fn version(revision: i64, block: Option<&Block>) -> Version {
    Version {
        path: PATH.into(),
        revision,
        value: block.map(|block| serde_json::to_vec(block).unwrap()),
    }
}

pub(super) fn kept(base: Vec<Version>, changes: Vec<Version>) -> Kept {
    Kept {
        oldest: 10,
        newest: 100,
        read_at: time("2026-05-01T12:00:00Z"),
        base,
        changes,
    }
}

pub(super) fn address() -> HistorySubject {
    HistorySubject::Address("10.0.0.3".parse().unwrap())
}

pub(super) fn words(events: &[Event]) -> Vec<(i64, EventKind)> {
    events
        .iter()
        .map(|event| (event.revision.unwrap(), event.what))
        .collect()
}

/// The history of a block: it is claimed, an address is assigned, released and assigned to another pod, and the block
/// is released.
fn block_history() -> Kept {
    let mut block = fresh();
    let mut versions = vec![version(20, Some(&block))];
    block
        .update(|update| update.assign(3, &pod("a", "2026-05-01 10:05:00 +0000 UTC")))
        .unwrap();
    versions.push(version(21, Some(&block)));
    block.update(|update| update.release(&[3]));
    versions.push(version(22, Some(&block)));
    block
        .update(|update| update.assign(3, &pod("b", "2026-05-01 10:30:00 +0000 UTC")))
        .unwrap();
    versions.push(version(23, Some(&block)));
    block.update(|update| update.cool(&[3], time("2026-05-01T10:40:00Z")));
    versions.push(version(24, Some(&block)));
    block.update(|update| update.release(&[3]));
    versions.push(version(25, Some(&block)));
    versions.push(version(26, None));
    kept(Vec::new(), versions)
}

#[test]
fn the_story_of_an_address_and_of_its_handle_node_and_block() {
    let found = timeline(&block_history(), &[], &address());
    let expected = [
        (20, EventKind::BlockClaimed),
        (21, EventKind::Assigned),
        (22, EventKind::Released),
        (23, EventKind::Reused),
        (24, EventKind::Cooling),
        (25, EventKind::Released),
        (26, EventKind::BlockReleased),
    ];
    assert_eq!(words(&found), expected);
    assert_eq!(found[1].time.at, Some(time("2026-05-01T10:05:00Z")));
    // The release has no recorded time, but is between two known times.
    assert_eq!(found[2].time.after, Some(time("2026-05-01T10:05:00Z")));
    assert_eq!(found[2].time.before, Some(time("2026-05-01T10:30:00Z")));
    assert_eq!(found[4].time.at, Some(time("2026-05-01T10:40:00Z")));
    assert_eq!(found[6].time.before, Some(time("2026-05-01T12:00:00Z")));
    assert_eq!(found[3].detail, "previously pod ns/a");
    let elsewhere = HistorySubject::Address("10.0.0.4".parse().unwrap());
    let wanted = [(20, EventKind::BlockClaimed), (26, EventKind::BlockReleased)];
    assert_eq!(words(&timeline(&block_history(), &[], &elsewhere)), wanted);
    let outside = HistorySubject::Address("10.0.1.3".parse().unwrap());
    assert!(timeline(&block_history(), &[], &outside).is_empty());

    let of = |about: HistorySubject| words(&timeline(&block_history(), &[], &about));
    let of_b = [(23, EventKind::Assigned), (24, EventKind::Cooling)];
    assert_eq!(of(HistorySubject::Handle("net.b".into())), of_b);
    assert_eq!(of(HistorySubject::Node("node-1".into())).len(), 6);
    assert_eq!(of(HistorySubject::Node("node-2".into())).len(), 0);
    assert_eq!(of(HistorySubject::Block(cidr())).len(), 7);
}

#[test]
fn the_first_event_is_the_oldest_known_state() {
    let mut block = of_pod_a();
    let base = version(8, Some(&block));
    block.update(|update| update.release(&[3]));
    let kept = kept(vec![base], vec![version(30, Some(&block))]);
    let found = timeline(&kept, &[], &address());
    assert_eq!(words(&found), [(8, EventKind::Known), (30, EventKind::Released)]);
    assert_eq!(found[0].after.as_ref().unwrap().allocated_to, "ns/a");
    assert_eq!(
        (found[0].time.at, found[0].time.after),
        (None, None),
        "when it came about is not known"
    );
}

#[test]
fn calipam_runs_are_named_even_after_compaction() {
    let block_history = block_history();
    let run = Run {
        command: "release --ip 10.0.0.3".into(),
        started_at: "2026-05-01T10:20:00Z".into(),
        journal: "a.journal".into(),
    };
    let value = |revision: i64| {
        block_history
            .changes
            .iter()
            .find(|v| v.revision == revision)
            .unwrap()
            .value
            .clone()
    };
    let write = |replaced: i64, revision: i64| JournaledWrite {
        run: run.clone(),
        path: PATH.into(),
        revision: Some(revision),
        replaced: Some(replaced),
        before: value(replaced),
        after: value(revision),
        is_certain: true,
    };
    let found = timeline(&block_history, &[write(21, 22)], &address());
    let released = found
        .iter()
        .find(|event| event.what == EventKind::Released)
        .unwrap();
    assert_eq!(
        (released.by.as_ref(), released.origin),
        (Some(&run), Origin::Etcd)
    );
    assert_eq!(
        released.time.after,
        Some(time("2026-05-01T10:20:00Z")),
        "the run had begun"
    );
    assert_eq!(found.iter().filter(|event| event.by.is_some()).count(), 1);

    let later = Kept {
        oldest: 24,
        base: vec![version(24, None)],
        changes: Vec::new(),
        ..block_history.clone()
    };
    let found = timeline(&later, &[write(21, 22)], &address());
    assert_eq!(words(&found), [(22, EventKind::Released)]);
    assert_eq!(
        (found[0].origin, found[0].by.as_ref()),
        (Origin::Journal, Some(&run))
    );

    // The run was killed before it recorded the result of its write. The stored value shows that the write succeeded.
    let open = |replaced: i64, revision: i64| JournaledWrite {
        revision: None,
        is_certain: false,
        ..write(replaced, revision)
    };
    let found = timeline(&block_history, &[open(21, 22)], &address());
    let by: Vec<EventKind> = found
        .iter()
        .filter(|event| event.by.is_some())
        .map(|event| event.what)
        .collect();
    assert_eq!(by, [EventKind::Released]);
    let other = JournaledWrite {
        after: value(21),
        ..open(21, 22)
    };
    assert!(
        timeline(&block_history, &[other], &address())
            .iter()
            .all(|event| event.by.is_none())
    );
    assert!(
        timeline(&later, &[open(21, 22)], &address()).is_empty(),
        "it may never have been written"
    );

    // A deletion has no revision. The version that it replaced identifies it, even if etcd no longer has that version.
    let deletion = JournaledWrite {
        revision: None,
        after: None,
        ..write(25, 22)
    };
    let found = timeline(&block_history, std::slice::from_ref(&deletion), &address());
    assert_eq!(
        (found[6].what, found[6].by.as_ref()),
        (EventKind::BlockReleased, Some(&run))
    );
    let later = Kept {
        oldest: 30,
        base: Vec::new(),
        changes: Vec::new(),
        ..block_history.clone()
    };
    let found = timeline(&later, &[deletion], &address());
    let expected = [(EventKind::BlockReleased, None)];
    assert_eq!(
        found
            .iter()
            .map(|event| (event.what, event.revision))
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn times_without_zone_and_clocks_that_went_back_are_uncertain() {
    let mut block = fresh();
    let mut versions = vec![version(20, Some(&block))];
    block
        .update(|update| update.assign(3, &pod("a", "2026-05-01 10:05:00")))
        .unwrap();
    versions.push(version(21, Some(&block)));
    block
        .update(|update| update.assign(4, &pod("b", "2026-05-01 09:00:00 +0000 UTC")))
        .unwrap();
    versions.push(version(22, Some(&block)));
    let found = timeline(&kept(Vec::new(), versions), &[], &HistorySubject::Block(cidr()));
    let assigned: Vec<&Event> = found
        .iter()
        .filter(|event| event.what == EventKind::Assigned)
        .collect();
    assert_eq!(assigned[0].time.at, None);
    assert_eq!(assigned[1].time.uncertainty, Some(Uncertainty::ClocksDisagree));
}

#[derive(Clone, Debug)]
enum Step {
    Assign(u32, u8),
    Release(u32),
    Cool(u32),
    Rewrite(u32, u8),
    Owner(Option<u8>),
    Collect,
    Delete,
    Break,
    Claim,
    /// Sets or removes a field that a later Calico version may add.
    Field(u8, Option<u8>),
    Mark(bool),
    /// Changes which free address is assigned next.
    Rotate,
    Number(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u32..8, 0u8..5).prop_map(|(ordinal, pod)| Step::Assign(ordinal, pod)),
        4 => (0u32..8).prop_map(Step::Release),
        2 => (0u32..8).prop_map(Step::Cool),
        2 => (0u32..8, 0u8..5).prop_map(|(ordinal, pod)| Step::Rewrite(ordinal, pod)),
        1 => proptest::option::of(0u8..3).prop_map(Step::Owner),
        1 => Just(Step::Collect),
        1 => Just(Step::Delete),
        1 => Just(Step::Break),
        1 => Just(Step::Claim),
        1 => (0u8..3, proptest::option::of(0u8..3)).prop_map(|(name, value)| Step::Field(name, value)),
        1 => any::<bool>().prop_map(Step::Mark),
        1 => Just(Step::Rotate),
        1 => (0u32..9).prop_map(Step::Number),
    ]
}

/// Edits the stored form of a block. Discards the edit if the result is not a sound block.
fn edit(block: &mut Block, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
    let mut value = serde_json::to_value(&*block).unwrap();
    change(value.as_object_mut().unwrap());
    if let Ok(BlockContent::Sound(edited)) = BlockContent::parse(value.to_string().as_bytes()) {
        *block = *edited;
    }
}

/// Applies a step, and returns the stored value.
fn take(block: &mut Option<Block>, step: &Step, at: Timestamp) -> Option<Vec<u8>> {
    let name = |number: u8| {
        pod(
            &format!("p{number}"),
            &at.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string(),
        )
    };
    match (step, &mut *block) {
        (Step::Delete, _) => *block = None,
        (Step::Claim, None) => *block = Block::new(cidr(), Some(BlockOwner::Host("node-2".into())), at),
        (Step::Break, Some(_)) => return Some(b"not a block".to_vec()),
        (Step::Assign(ordinal, pod), Some(block)) => {
            let _ = block.update(|update| update.assign(*ordinal, &name(*pod)));
        }
        (Step::Release(ordinal), Some(block)) => drop(block.update(|update| update.release(&[*ordinal]))),
        (Step::Cool(ordinal), Some(block)) => drop(block.update(|update| update.cool(&[*ordinal], at))),
        (Step::Rewrite(ordinal, pod), Some(block)) => {
            let _ = block.update(|update| update.set_attribute(*ordinal, &name(*pod)));
        }
        (Step::Owner(owner), Some(block)) => block.update(|update| match owner {
            Some(owner) => update.set_owner(BlockOwner::Host(format!("node-{owner}")), at),
            None => update.clear_owner(),
        }),
        (Step::Field(name, value), Some(block)) => edit(block, |fields| {
            match value {
                Some(value) => fields.insert(format!("field{name}"), serde_json::json!({ "is": value })),
                None => fields.remove(&format!("field{name}")),
            };
        }),
        (Step::Mark(deleted), Some(block)) => edit(block, |fields| {
            fields.insert("deleted".to_owned(), (*deleted).into());
        }),
        (Step::Rotate, Some(block)) => edit(block, |fields| {
            if let Some(free) = fields["unallocated"]
                .as_array_mut()
                .filter(|free| !free.is_empty())
            {
                free.rotate_left(1);
            }
        }),
        (Step::Number(number), Some(block)) => edit(block, |fields| {
            fields.insert("sequenceNumber".to_owned(), (*number).into());
        }),
        (Step::Collect, Some(block)) => {
            drop(block.update(|update| update.collect_cooled(at, SignedDuration::from_secs(90))));
        }
        _ => {}
    }
    block.as_ref().map(|block| serde_json::to_vec(block).unwrap())
}

/// The content of a stored block, without the positions of records, the order of free addresses and the sequence
/// number. `None` for a block that is deleted or marked deleted.
fn content(value: &Option<Vec<u8>>) -> Option<Value> {
    let Ok(mut value) = serde_json::from_slice::<Value>(value.as_ref()?) else {
        return Some("broken".into());
    };
    if value["deleted"] == true {
        return None;
    }
    let records = value["attributes"].as_array().cloned().unwrap_or_default();
    for place in value["allocations"].as_array_mut()? {
        if let Some(record) = place.as_u64().and_then(|place| records.get(place as usize)) {
            *place = record.clone();
        }
    }
    for name in ["attributes", "unallocated", "sequenceNumber"] {
        value[name] = Value::Null;
    }
    Some(value)
}

proptest! {
    /// There is an event between two states of a block exactly if their contents differ.
    #[test]
    fn every_difference_has_an_event(steps in proptest::collection::vec(step(), 0..40)) {
        let mut block = Some(fresh());
        let mut stored = vec![block.as_ref().map(|block| serde_json::to_vec(block).unwrap())];
        for (number, step) in steps.iter().enumerate() {
            let at = time("2026-05-01T10:00:00Z") + SignedDuration::from_mins(number as i64);
            stored.push(take(&mut block, step, at));
        }
        let (key, about) = (Key::Block(cidr()), HistorySubject::Block(cidr()));
        let state = |value: &Option<Vec<u8>>| -> State { decode(&key, PATH, value.as_deref(), &about).0 };
        for values in stored.windows(2) {
            let found = events_between(&key, Some(&state(&values[0])), &state(&values[1]), &about);
            prop_assert_eq!(found.is_empty(), content(&values[0]) == content(&values[1]), "{:?}", found);
        }
    }
}
