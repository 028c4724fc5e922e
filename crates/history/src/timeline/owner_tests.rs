//! The holders of an address in successive states of its block.

use calipam_model::block::Block;
use calipam_model::snapshot::{Snapshot, Source};

use super::tests::{PATH, address, cidr, fresh, kept, of_pod_a, pod, time, version, words};
use super::{
    Event, EventKind, ExportReader, HistorySubject, JournaledWrite, RECORDS, Run, Uncertainty, Version, When,
    timeline,
};

#[test]
fn a_block_that_is_deleted_takes_its_addresses_along() {
    let block = of_pod_a();
    let kept = kept(Vec::new(), vec![version(21, Some(&block)), version(22, None)]);
    let of = |about: HistorySubject| timeline(&kept, &[], &about);
    let by_handle = of(HistorySubject::Handle("net.a".into()));
    assert_eq!(
        words(&by_handle),
        [(21, EventKind::Assigned), (22, EventKind::Released)]
    );
    assert_eq!(by_handle[1].detail, "its block was deleted");
    assert_eq!(
        words(&of(address()))[2..],
        [(22, EventKind::Released), (22, EventKind::BlockReleased)]
    );
    assert_eq!(words(&of(HistorySubject::Node("node-1".into()))).len(), 4);
}

#[test]
fn a_write_that_changes_the_owner_is_an_event_for_both_owners() {
    let mut block = of_pod_a();
    let first = version(21, Some(&block));
    block.update(|update| update.release(&[3]));
    block
        .update(|update| update.assign(3, &pod("b", "2026-05-01 10:30:00 +0000 UTC")))
        .unwrap();
    let kept = kept(Vec::new(), vec![first, version(22, Some(&block))]);
    let of = |about: HistorySubject| words(&timeline(&kept, &[], &about));
    let of_a = [(21, EventKind::Assigned), (22, EventKind::Released)];
    assert_eq!(of(HistorySubject::Handle("net.a".into())), of_a);
    assert_eq!(
        of(HistorySubject::Handle("net.b".into())),
        [(22, EventKind::Assigned)]
    );
    assert_eq!(
        of(address())[2..],
        [(22, EventKind::Released), (22, EventKind::Reused)]
    );
}

#[test]
fn other_writes_to_the_block_bound_event_times() {
    let mut block = of_pod_a();
    let mut versions = vec![version(20, Some(&block))];
    block
        .update(|update| update.assign(4, &pod("b", "2026-05-01 10:20:00 +0000 UTC")))
        .unwrap();
    versions.push(version(21, Some(&block)));
    block.update(|update| update.release(&[3]));
    versions.push(version(22, Some(&block)));
    block
        .update(|update| update.assign(5, &pod("c", "2026-05-01 10:25:00 +0000 UTC")))
        .unwrap();
    versions.push(version(23, Some(&block)));
    let found = timeline(&kept(Vec::new(), versions), &[], &address());
    let released = found.last().unwrap();
    let bounds = ["2026-05-01T10:20:00Z", "2026-05-01T10:25:00Z"].map(|text| Some(time(text)));
    assert_eq!(
        (released.what, [released.time.after, released.time.before]),
        (EventKind::Released, bounds)
    );
}

#[test]
fn an_address_in_overlapping_blocks_is_not_reused() {
    let outer = of_pod_a();
    let mut inner = Block::new("10.0.0.0/30".parse().unwrap(), None, time("2026-05-01T10:06:00Z")).unwrap();
    let claimed = serde_json::to_vec(&inner).unwrap();
    inner
        .update(|update| update.assign(3, &pod("b", "2026-05-01 10:07:00 +0000 UTC")))
        .unwrap();
    let path = PATH.replace("-29", "-30");
    let of_inner = |revision: i64, value: Vec<u8>| Version {
        path: path.clone(),
        revision,
        value: Some(value),
    };
    let mut versions = vec![version(20, Some(&outer)), of_inner(21, claimed)];
    versions.push(of_inner(22, serde_json::to_vec(&inner).unwrap()));
    versions.push(version(23, None));
    let found = timeline(&kept(Vec::new(), versions), &[], &address());
    let assigned: Vec<&Event> = found.iter().filter(|event| event.after.is_some()).collect();
    assert_eq!(
        (assigned[1].what, assigned[1].block),
        (EventKind::Assigned, "10.0.0.0/30".parse().ok())
    );
    assert_eq!(
        assigned[1].detail,
        "in 10.0.0.0/30, while pod ns/a holds it in 10.0.0.0/29"
    );
    assert_eq!(
        found[found.len() - 2].before.as_ref().unwrap().allocated_to,
        "ns/a"
    );
}

#[test]
fn an_undecodable_block_leaves_a_gap_and_is_an_event_of_its_handles_and_node() {
    let block = of_pod_a();
    let broken = |revision: i64| Version {
        path: PATH.into(),
        revision,
        value: Some(b"{".to_vec()),
    };
    let between = vec![version(30, Some(&block)), broken(31), version(32, Some(&block))];
    let found = timeline(&kept(Vec::new(), between), &[], &address());
    let expected = [
        (30, EventKind::BlockClaimed),
        (30, EventKind::Assigned),
        (31, EventKind::Undecodable),
    ];
    assert_eq!(words(&found)[..3], expected);

    let after = kept(Vec::new(), vec![version(20, Some(&block)), broken(21)]);
    let first = kept(vec![broken(8)], Vec::new());
    for about in [
        HistorySubject::Handle("net.a".into()),
        HistorySubject::Node("node-1".into()),
    ] {
        let found = timeline(&after, &[], &about);
        assert_eq!(
            words(&found).last(),
            Some(&(21, EventKind::Undecodable)),
            "{about:?}"
        );
        assert_eq!(
            words(&timeline(&first, &[], &about)),
            [(8, EventKind::Undecodable)],
            "{about:?}"
        );
    }
}

/// Builds an export of a block, taken at the time `at`.
fn export(at: &str, block: &Block) -> Snapshot {
    let mut snapshot = Snapshot {
        taken_at: time(at),
        ..Snapshot::default()
    };
    snapshot.add_entry(PATH.as_bytes(), &serde_json::to_vec(block).unwrap(), 1);
    snapshot.mark_read([Source::Blocks, Source::Affinities, Source::Handles]);
    snapshot
}

#[test]
fn changes_between_exports_are_events_of_each_owner() {
    let mut block = of_pod_a();
    let first = export("2026-05-01T11:00:00Z", &block);
    block.update(|update| update.release(&[3]));
    block
        .update(|update| update.assign(3, &pod("b", "2026-05-01 11:20:00 +0000 UTC")))
        .unwrap();
    block
        .update(|update| update.assign(4, &pod("c", "2026-05-01 11:10:00 +0000 UTC")))
        .unwrap();
    let second = export("2026-05-01T12:00:00Z", &block);
    let of = |about: HistorySubject| {
        let mut reader = ExportReader::new(&about, &[]);
        [&first, &second]
            .into_iter()
            .for_each(|export| reader.take(export.clone(), RECORDS));
        reader.finish()
    };
    let whats = |events: &[Event]| events.iter().map(|event| event.what).collect::<Vec<_>>();
    let found = of(address());
    assert_eq!(
        whats(&found),
        [EventKind::Known, EventKind::Released, EventKind::Reused]
    );
    // The address was released before its next owner got it.
    let released = &found[1].time;
    let expected = (
        Some(time("2026-05-01T11:00:00Z")),
        Some(time("2026-05-01T11:20:00Z")),
    );
    assert_eq!((released.after, released.before), expected);
    assert_eq!(
        whats(&of(HistorySubject::Handle("net.a".into()))),
        [EventKind::Known, EventKind::Released]
    );
    // Events between two exports are ordered by their recorded times.
    let of_block = of(HistorySubject::Block(cidr()));
    let who = |event: &Event| event.after.as_ref().map(|holder| holder.allocated_to.clone());
    assert_eq!(
        of_block.iter().filter_map(who).collect::<Vec<_>>(),
        ["ns/c", "ns/b"]
    );
}

/// Between two exports, the pool was replaced by one with another block size, so the blocks were never there together.
#[test]
fn blocks_of_two_exports_are_not_said_to_overlap() {
    let mut smaller = Block::new("10.0.0.0/30".parse().unwrap(), None, time("2026-05-01T11:06:00Z")).unwrap();
    smaller
        .update(|update| update.assign(3, &pod("b", "2026-05-01 11:07:00 +0000 UTC")))
        .unwrap();
    let with_smaller = {
        let mut snapshot = export("2026-05-01T12:00:00Z", &of_pod_a());
        snapshot.blocks.clear();
        let value = serde_json::to_vec(&smaller).unwrap();
        snapshot.add_entry(PATH.replace("-29", "-30").as_bytes(), &value, 2);
        snapshot
    };

    let about = address();
    let mut reader = ExportReader::new(&about, &[]);
    reader.take(export("2026-05-01T11:00:00Z", &of_pod_a()), RECORDS);
    reader.take(with_smaller, RECORDS);
    let found = reader.finish();
    let assigned = found
        .iter()
        .find(|event| event.block == "10.0.0.0/30".parse().ok() && event.after.is_some())
        .unwrap();
    assert_eq!(
        (assigned.what, assigned.detail.as_str()),
        (EventKind::Reused, "previously pod ns/a")
    );
}

#[test]
fn a_restored_record_is_older_than_its_write() {
    let mut block = fresh();
    let empty = block.clone();
    block
        .update(|update| update.assign(3, &pod("a", "2026-05-01 10:05:00 +0000 UTC")))
        .unwrap();
    let value = |block: &Block| serde_json::to_vec(block).unwrap();
    let run = Run {
        command: "undo".into(),
        started_at: "2026-05-01T10:05:30Z".into(),
        journal: "b".into(),
    };
    let written = [JournaledWrite {
        run,
        path: PATH.into(),
        revision: Some(21),
        replaced: Some(20),
        before: Some(value(&empty)),
        after: Some(value(&block)),
        is_certain: true,
    }];
    let kept = kept(
        Vec::new(),
        vec![version(20, Some(&empty)), version(21, Some(&block))],
    );
    let found = timeline(&kept, &written, &address());
    assert_eq!(
        (found[1].what, found[1].time.uncertainty),
        (EventKind::Assigned, Some(Uncertainty::Copied))
    );

    let about = address();
    let mut reader = ExportReader::new(&about, &written);
    reader.take(export("2026-05-01T10:05:10Z", &empty), RECORDS);
    reader.take(export("2026-05-01T11:00:00Z", &block), RECORDS);
    let found = reader.finish();
    let When {
        at,
        after,
        before,
        uncertainty,
    } = found[1].time.clone();
    assert_eq!(
        (found[1].what, at, uncertainty),
        (EventKind::Assigned, None, Some(Uncertainty::Copied))
    );
    assert_eq!(
        (after, before),
        (
            Some(time("2026-05-01T10:05:30Z")),
            Some(time("2026-05-01T11:00:00Z"))
        )
    );
}

/// In a recording, changes that were read together have the same time. The time that Calico recorded for the assignment
/// is earlier.
#[test]
fn events_at_the_same_time_are_in_revision_order() {
    let mut block = fresh();
    let at = "2026-05-01T11:00:00.5Z";
    let state = |block: &Block, at: &str, revision: i64| Snapshot {
        revision: revision.to_string(),
        ..export(at, block)
    };
    block
        .update(|update| update.assign(3, &pod("a", "2026-05-01 10:05:00 +0000 UTC")))
        .unwrap();
    let first = state(&block, "2026-05-01T11:00:00Z", 20);
    block.update(|update| update.release(&[3]));
    let second = state(&block, at, 21);
    block
        .update(|update| update.assign(3, &pod("b", "2026-05-01 10:59:59.9 +0000 UTC")))
        .unwrap();
    let third = state(&block, at, 22);
    for states in [&[&first, &second, &third][..], &[&first, &third]] {
        let about = address();
        let mut reader = ExportReader::new(&about, &[]);
        for state in states {
            reader.take((*state).clone(), RECORDS);
            reader.mark_valid_until(state.taken_at);
        }
        let found = reader.finish();
        let whats: Vec<EventKind> = found.iter().map(|event| event.what).collect();
        let expected = [EventKind::Known, EventKind::Released, EventKind::Reused];
        assert_eq!(whats, expected, "{} states", states.len());
    }
}
