//! With clocks that are set back, several recorders, or other histories, each change is returned once and in order.

use super::*;

#[test]
fn a_clock_that_is_set_back_is_reported_and_changes_no_order() {
    let folder = tempfile::tempdir().unwrap();
    let (_recorder, mut journal) = begin_empty(folder.path());
    let put = |revision: i64| change("a", revision, Some(&revision.to_string()));
    journal.append(time(100), BTreeMap::new(), put(2)).unwrap();
    journal.append(time(-3_500), BTreeMap::new(), put(3)).unwrap();
    journal.append(time(110), BTreeMap::new(), put(4)).unwrap();
    let mut told = Vec::new();
    let reached = States::default().pass_states(&only(folder.path()), &|_| true, |one| {
        told.push(match one {
            StateUpdate::Unchanged(time) => (time, 0),
            StateUpdate::State(snapshot) => {
                (snapshot.taken_at, snapshot.handles.len() + snapshot.defects.len())
            }
        });
    });
    let reached = reached.unwrap().unwrap();
    assert_eq!(reached.set_back, SignedDuration::from_hours(1));
    let expected = [
        (0, 0),
        (0, 0),
        (100, 1),
        (100, 0),
        (100, 1),
        (100, 0),
        (110, 1),
        (110, 0),
    ]
    .map(|(at, n)| (time(at), n));
    assert_eq!(told, expected);
}

/// The clock was two days ahead when a full state was written, and was set back before the next changes.
#[test]
fn changes_recorded_until_a_clock_has_caught_up_are_returned() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, mut journal) = begin_empty(folder.path());
    let ahead = 2 * 86_400;
    let put = |revision: i64| change("a", revision, Some("{}"));
    let delete = |revision: i64| change("a", revision, None);
    journal.append(time(ahead), BTreeMap::new(), put(2)).unwrap();
    let mut journal = journal.renew(recorder.begin().unwrap()).unwrap();
    journal.append(time(5), BTreeMap::new(), delete(3)).unwrap();
    journal.append(time(6), BTreeMap::new(), put(4)).unwrap();
    // The server no longer has the changes after this state, so a new full state is written, with a correct clock.
    let state = State::from([(format!("{HANDLES}a").into_bytes(), (9, b"{}".to_vec()))]);
    let mut journal = begin(&recorder, &state, 9, time(50));
    journal.append(time(60), BTreeMap::new(), delete(10)).unwrap();
    drop((journal, recorder));

    let (told, reached) = recorded_states(folder.path());
    assert_eq!(
        told.iter().map(|(_, revision)| *revision).collect::<Vec<_>>(),
        [1, 2, 3, 4, 9, 10]
    );
    assert!(told.is_sorted() && told[2].0 >= time(ahead), "{told:?}");
    assert_eq!(
        reached
            .iter()
            .map(|reached| reached.continues)
            .collect::<Vec<_>>(),
        [false, true, false]
    );
    // The next run continues from the last recording.
    let journal = Recorder::open(folder.path())
        .unwrap()
        .resume(GUID)
        .unwrap()
        .unwrap();
    assert_eq!(journal.positions()["etcd"].last.unwrap().0, 10);
}

/// According to their clocks, the two recorders received the changes at different times. Neither recorder ran all the
/// time.
#[test]
fn changes_from_two_recorders_are_returned_once_and_in_order() {
    let mut world = World::new(2, 8);
    let first = world.revision;
    let mut states = BTreeMap::from([(first, world.state.clone())]);
    let mut changes = Vec::new();
    for _ in 0..40 {
        let is_stop = world.random.below(2) == 0;
        let group = if is_stop { world.stop() } else { world.start(1) };
        changes.extend(group);
        states.insert(world.revision, world.state.clone());
    }
    let last = world.revision;
    // Records the changes from the first state at or after revision `from` until revision `until`. By the recorder's
    // clock, each group arrives `late` seconds later.
    let mut record = |folder: &Path, from: i64, until: i64, late: i64| {
        let recorder = Recorder::open(folder).unwrap();
        let (begin_at, state) = states.range(from..).next().unwrap();
        let mut journal = begin(&recorder, state, *begin_at, time(*begin_at + late));
        let mut rest: Vec<Change> = changes
            .iter()
            .filter(|change| (begin_at + 1..until).contains(&change.revision))
            .cloned()
            .collect();
        while !rest.is_empty() {
            let group: Vec<Change> = rest
                .drain(..(1 + world.random.below(9)).min(rest.len()))
                .collect();
            let revision = group.last().unwrap().revision;
            journal
                .append(
                    time(revision + late),
                    [("etcd".to_owned(), revision)].into(),
                    group,
                )
                .unwrap();
        }
    };
    for (one, other) in [
        // One recorder takes over from the other, one covers only part of the other's time, or one fills a gap of the
        // other.
        (vec![(first, first + 50)], vec![(first + 20, last + 1)]),
        (vec![(first, last + 1)], vec![(first + 20, first + 50)]),
        (
            vec![(first, first + 30), (first + 47, last + 1)],
            vec![(first + 23, first + 57)],
        ),
    ] {
        for late in [-15, 3] {
            let folder = tempfile::tempdir().unwrap();
            for (runs, late) in [(&one, 0), (&other, late)] {
                let own = tempfile::tempdir().unwrap();
                runs.iter()
                    .for_each(|(from, until)| record(own.path(), *from, *until, late));
                for entry in fs::read_dir(own.path()).unwrap() {
                    let path = entry.unwrap().path();
                    fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
                }
            }
            let (told, reached) = recorded_states(folder.path());
            let revisions: Vec<i64> = told.iter().map(|(_, revision)| *revision).collect();
            assert!(
                told.is_sorted() && revisions.is_sorted(),
                "{one:?} {other:?} {late}: {told:?}"
            );
            assert_eq!(
                revisions,
                (first..=last).collect::<Vec<_>>(),
                "{one:?} {other:?} {late}"
            );
            assert_eq!(reached.iter().filter(|reached| !reached.continues).count(), 1);
        }
    }
}

/// After a restore, the same revisions occur again, and count as new.
#[test]
fn another_history_is_returned_from_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, mut journal) = begin_empty(folder.path());
    journal
        .append(time(1), BTreeMap::new(), change("a", 5, Some("{}")))
        .unwrap();
    // The new recording begins at the time of the last change, because the clock was set back or has a resolution of
    // seconds.
    let mut journal = begin_history(&recorder, &State::new(), 2, time(1), Some(journal.last()));
    journal
        .append(time(10), BTreeMap::new(), change("b", 4, Some("{}")))
        .unwrap();
    let (told, reached) = recorded_states(folder.path());
    let next = time(1) + SignedDuration::from_millis(1);
    assert_eq!(told, [(time(0), 1), (time(1), 5), (next, 2), (time(10), 4)]);
    assert!(!reached[1].continues);
}
