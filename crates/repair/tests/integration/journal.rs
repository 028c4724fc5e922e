//! Journal files that must be refused, and journal files after a crash. `tests/cli/repair/journal.rs` tests a full
//! disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use calipam_datastore::write::{Batch, Change, Swap};
use calipam_files::frames::Packer;
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use calipam_repair::journal::{
    ChangeRecord, FORMAT, Intent, IntentOutcome, Journal, JournalError, LockMark, Outcome, Recorded, Value,
    Version, resolve, resolve_killed,
};
use calipam_repair::{RepairError, UndoPlan};
use calipam_testkit::cluster::rng::Rng;

use crate::cluster::{Until, dump, header, journal_path, new_journal, start, values};

/// Decompresses the frames of a journal into its lines, as any zstd tool does.
fn lines_of(file: &[u8]) -> Vec<u8> {
    zstd::stream::decode_all(file).unwrap()
}

/// `text` as one frame of a journal.
fn framed(text: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Packer::new().unwrap().push(text, &mut frame).unwrap();
    frame
}

/// The frames of a journal, each including its head.
fn frames_of(mut file: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some(length) = file.get(8..12) {
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        let (frame, rest) = file.split_at(20 + length);
        frames.push(frame);
        file = rest;
    }
    frames
}

#[tokio::test]
async fn a_journal_is_read_as_it_was_written() {
    let (_etcd, site) = start(300).await;
    site.repair_by_hand("a/b/run", &site.leaks(3).await, Until::Outcome)
        .await;
    let path = site.journal("a/b/run");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let recorded = site.recorded("a/b/run");
    assert_eq!(recorded.header, header(&site.cluster));
    assert_eq!((recorded.intents.len(), recorded.outcomes.len()), (3, 3));
    assert!(recorded.ended && recorded.open_intents().next().is_none());
    assert!(!matches!(
        recorded.lock,
        Some(LockMark::Taking(_) | LockMark::Taken(_))
    ));
    // A journal is never overwritten.
    let error = Journal::create(&path, &recorded.header).unwrap_err();
    assert!(matches!(error, JournalError::Write { .. }), "{error}");
    assert_eq!(Recorded::read(&path).unwrap().intents.len(), 3);
}

#[tokio::test]
async fn an_outcome_without_its_intent_leaves_none_open() {
    let (_folder, path) = new_journal("run");
    let journal = Journal::create(&path, &header("cluster")).unwrap();
    journal.conclude(Outcome { id: 0, written: None }).unwrap();
    assert_eq!(journal.open_intents(), 0);
    journal.end().await.unwrap();
    drop(journal);
    let error = Recorded::read(&path).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("there is an outcome of intent 0, but no such intent"),
        "{error}"
    );
}

/// The states in which a cut journal is read. Each consists of the number of intents, the number of outcomes, and
/// whether the run has ended.
type Seen = std::collections::BTreeSet<(usize, usize, bool)>;

/// Cuts a journal at many offsets, and returns the states in which it is read. Reading must fail exactly if less than
/// the header is left, which is `header` bytes long.
fn seen_when_cut(whole: &[u8], header: usize) -> Seen {
    let (_folder, cut) = new_journal("cut");
    let mut seen = Seen::new();
    for length in (0..whole.len()).step_by(7).chain(whole.len() - 3..=whole.len()) {
        fs::write(&cut, &whole[..length]).unwrap();
        match Recorded::read(&cut) {
            Ok(recorded) => {
                assert!(length >= header);
                assert!(
                    recorded
                        .outcomes
                        .keys()
                        .all(|id| recorded.intents.iter().any(|i| i.id == *id))
                );
                seen.insert((recorded.intents.len(), recorded.outcomes.len(), recorded.ended));
            }
            Err(error) => assert!(length < header, "cut at {length}: {error}"),
        }
    }
    seen
}

#[tokio::test]
async fn a_journal_cut_at_any_byte_is_read_up_to_its_last_durable_line() {
    let (_etcd, site) = start(300).await;
    site.repair_by_hand("run", &site.leaks(2).await, Until::Outcome)
        .await;
    let whole = fs::read(site.journal("run")).unwrap();
    let each: Vec<Vec<u8>> = lines_of(&whole)
        .split_inclusive(|byte| *byte == b'\n')
        .map(framed)
        .collect();

    let states = [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)].map(|(i, o)| (i, o, false));
    let expected: Seen = states.into_iter().chain([(2, 2, true)]).collect();
    assert_eq!(
        seen_when_cut(&each.concat(), each[0].len()),
        expected,
        "a frame for each line"
    );
    // Outcomes are not written immediately, so an outcome can share a frame with later lines.
    let seen = seen_when_cut(&whole, frames_of(&whole)[0].len());
    assert!(seen.is_subset(&expected), "{seen:?}");
    for state in [(0, 0, false), (1, 0, false), (2, 2, true)] {
        assert!(seen.contains(&state), "{state:?}");
    }
}

#[tokio::test]
async fn a_journal_of_a_killed_run_is_resolved_and_undone() {
    let (etcd, site) = start(300).await;
    let before = dump(&etcd);
    let path = site.journal("run");
    site.repair_by_hand("run", &site.leaks(2).await, Until::Write)
        .await;
    let written = fs::read(&path).unwrap();

    let resolved = resolve_killed(&site.store, site.folder(), &site.cluster)
        .await
        .unwrap();
    assert_eq!(resolved.resolved, std::slice::from_ref(&path), "{resolved:?}");
    assert!(fs::read(&path).unwrap().starts_with(&written), "lines are added");
    let recorded = site.recorded("run");
    assert_eq!((recorded.intents.len(), recorded.open_intents().count()), (2, 0));
    let execution = site.undo(&site.undo_plan("run"), &site.options("undo")).await;
    assert!(execution.is_complete(), "{execution:?}");
    assert_eq!(values(&dump(&etcd)), values(&before));
}

#[test]
fn other_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let read = |file: &[u8]| {
        fs::write(&path, file).unwrap();
        Recorded::read(&path).unwrap_err()
    };
    for text in ["", "{}", "hello\n", "{\"intent\":{}}\n"] {
        assert!(
            matches!(read(text.as_bytes()), JournalError::NoJournal { .. }),
            "{text}"
        );
        if !text.is_empty() {
            assert!(
                matches!(read(&framed(text.as_bytes())), JournalError::NoJournal { .. }),
                "{text}"
            );
        }
    }
    let other = format!("{{\"header\":{{\"format\":{},\"whatever\":1}}}}\n", FORMAT + 1);
    let error = read(&framed(other.as_bytes()));
    assert!(matches!(error, JournalError::OtherFormat { found, .. } if found == FORMAT + 1));
    let unsealed = serde_json::to_string(&calipam_repair::journal::Entry::Header(header("c"))).unwrap();
    let error = read(&framed(format!("{unsealed}\n").as_bytes()));
    assert!(matches!(error, JournalError::Line { line: 1, .. }));
    assert!(matches!(
        Recorded::read(&folder.path().join("none")).unwrap_err(),
        JournalError::Read { .. }
    ));
}

fn intent(key: &str, before: Option<Value>) -> Intent {
    let before = before.map(|value| Version {
        revision: "5".into(),
        value,
    });
    let change = ChangeRecord {
        key: key.to_owned(),
        before,
        after: None,
    };
    Intent {
        id: 0,
        step: 0,
        reason: "a test".into(),
        changes: vec![change],
        guards: Vec::new(),
    }
}

/// Writes a journal of one intent and its outcomes, with sound checksums, and reads the journal.
async fn read_one(
    mut one: Intent,
    outcomes: impl IntoIterator<Item = Vec<Option<String>>>,
) -> Result<Recorded, JournalError> {
    let (_folder, path) = new_journal("run");
    let journal = Journal::create(&path, &header("c")).unwrap();
    journal.intend(&mut one).await.unwrap();
    for written in outcomes {
        journal
            .conclude(Outcome {
                id: one.id,
                written: Some(written),
            })
            .unwrap();
    }
    journal.end().await.unwrap();
    drop(journal);
    Recorded::read(&path)
}

#[tokio::test]
async fn two_runs_may_find_the_same_outcome() {
    for (second, is_read) in [(vec![None], true), (vec![Some("7".to_owned())], false)] {
        let one = intent("/calico/ipam/v2/handle/x", Some(Value::Text("{}".into())));
        assert_eq!(read_one(one, [vec![None], second]).await.is_ok(), is_read);
    }
}

#[tokio::test]
async fn journals_that_would_be_undone_wrongly_are_refused() {
    let handle = "/calico/ipam/v2/handle/x";
    let text = || Some(Value::Text("{}".into()));
    assert!(read_one(intent(handle, text()), [vec![None]]).await.is_ok());
    let message = |error: JournalError| error.to_string();
    // If invalid base64 were taken for an absent object, the undo would delete the present object.
    let broken = read_one(intent(handle, Some(Value::Base64("?".into()))), [vec![None]])
        .await
        .unwrap_err();
    assert!(message(broken).contains("line 2 of the journal"));
    let unequal = read_one(intent(handle, text()), [vec![None, None]])
        .await
        .unwrap_err();
    assert!(message(unequal).contains("a different number of objects"));
    let mut twice = intent(handle, text());
    twice.changes.push(twice.changes[0].clone());
    assert!(message(read_one(twice, [vec![None, None]]).await.unwrap_err()).contains("one intent changes"));
    for key in [
        "/calico/resources/v3/projectcalico.org/nodes/n",
        "/calico/ipam/v2/handle/a/b",
        "pods/a/b",
    ] {
        let recorded = read_one(intent(key, text()), [vec![None]]).await.unwrap();
        let error = UndoPlan::new(&recorded).unwrap_err();
        assert!(
            matches!(&error, RepairError::UnexpectedKey { path } if path == key),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_journal_whose_run_lives_is_not_read() {
    let (_folder, path) = new_journal("run");
    let journal = Journal::create(&path, &header("c")).unwrap();
    assert!(matches!(
        Recorded::read(&path).unwrap_err(),
        JournalError::Alive { .. }
    ));
    journal.end().await.unwrap();
    drop(journal);
    assert!(Recorded::read(&path).unwrap().ended);
}

/// A child process shares all files of its parent, and their locks, until it executes its own program.
#[test]
fn a_run_that_is_over_is_over_while_children_are_started() {
    let folder = tempfile::tempdir().unwrap();
    let is_done = AtomicBool::new(false);
    let start_children = || {
        while !is_done.load(Ordering::Relaxed) {
            Command::new("true").status().unwrap();
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let read = thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(start_children)));
        let write_and_read = |number: usize| {
            let path = journal_path(folder.path(), &number.to_string());
            runtime.block_on(Journal::create(&path, &header("c"))?.end())?;
            Recorded::read(&path)
        };
        let read: Result<Vec<Recorded>, JournalError> = (0..100).map(write_and_read).collect();
        is_done.store(true, Ordering::Relaxed);
        read
    });
    assert!(read.unwrap().iter().all(|recorded| recorded.ended));
}

/// Pipes, links and folders with names of journals neither block a run nor affect it, and undecodable files are
/// reported.
#[tokio::test]
async fn files_that_only_look_like_journals_are_passed_over() {
    let (_etcd, site) = start(300).await;
    let fifo = Command::new("mkfifo").arg(site.journal("pipe")).status().unwrap();
    assert!(fifo.success());
    fs::create_dir(site.journal("folder")).unwrap();
    let left = "elsewhere/left";
    let touched = site
        .repair_by_hand(left, &site.leaks(1).await, Until::Write)
        .await;
    std::os::unix::fs::symlink(site.journal(left), site.journal("link")).unwrap();
    // An intent with a key that calipam never writes.
    let strange = site.journal("strange");
    let open = Journal::create(&strange, &header(&site.cluster)).unwrap();
    open.intend(&mut intent("/calico/ipam/v2/handle/a/b", None))
        .await
        .unwrap();
    drop(open);

    let resolved = resolve_killed(&site.store, site.folder(), &site.cluster)
        .await
        .unwrap();
    assert!(resolved.resolved.is_empty(), "{resolved:?}");
    let [(path, reason)] = resolved.passed_over.as_slice() else {
        panic!("{resolved:?}")
    };
    assert!(*path == strange && reason.contains("handle/a/b"), "{reason}");
    assert_eq!(site.recorded(left).open_intents().count(), 1);
    assert!(matches!(
        Recorded::read(&site.journal("pipe")).unwrap_err(),
        JournalError::Read { .. }
    ));
    // The next run succeeds all the same, and reports the journal that it could not resolve.
    let plan = UndoPlan::new(&resolve(site.recorded(left), &site.store).await.unwrap().0).unwrap();
    let execution = site.undo(&plan, &site.options("next")).await;
    assert!(
        execution.is_complete() && execution.passed_over == resolved.passed_over,
        "{execution:?}"
    );
    assert_eq!(touched.len(), 2);
}

/// A journal that was cut, or that has flipped bits or moved lines, leads to an error or to an undo of the writes
/// before the damage, and never to another effect.
#[tokio::test]
async fn a_damaged_journal_has_no_other_effect() {
    let (_etcd, site) = start(300).await;
    site.repair_by_hand("run", &site.leaks(5).await, Until::Outcome)
        .await;
    let file = fs::read(site.journal("run")).unwrap();
    let lines = lines_of(&file);
    let right = site.undo_plan("run");
    let damaged = site.journal("damaged");
    let mut random = Rng::new(0x9E37_79B9_7F4A_7C15);
    let mut below = |most: usize| random.below(most as u64) as usize;
    let (mut errors, mut undone) = (0, 0);
    for round in 0..1200 {
        // Changed lines that are packed again are detected only by their checksums.
        let to_frames = round % 2 == 0;
        let whole = if to_frames { &file } else { &lines };
        let mut text = whole.clone();
        match round / 2 % 3 {
            0 => text.truncate(below(whole.len())),
            1 => {
                let (place, bit) = (below(whole.len()), below(8));
                text[place] ^= 1 << bit;
            }
            _ => {
                let mut parts = match to_frames {
                    true => frames_of(whole),
                    false => whole.split_inclusive(|byte| *byte == b'\n').collect(),
                };
                let (from, to) = (below(parts.len()), below(parts.len()));
                let part = parts.remove(from);
                parts.insert(to, part);
                text = parts.concat();
            }
        }
        let packed = if to_frames { text.clone() } else { framed(&text) };
        fs::write(&damaged, packed).unwrap();
        let Ok(recorded) = Recorded::read(&damaged) else {
            errors += 1;
            continue;
        };
        let (recorded, _) = resolve(recorded, &site.store).await.unwrap();
        let plan = UndoPlan::new(&recorded).unwrap();
        for step in plan.steps() {
            let known = right.steps().iter().any(|known| known.objects == step.objects);
            assert!(known || step.objects.is_empty(), "{round}: {step:?}");
        }
        assert!(
            text == *whole || !recorded.ended || plan.steps().len() == right.steps().len(),
            "{round}"
        );
        undone += 1;
    }
    assert!(errors > 600 && undone > 200, "{errors} {undone}");
}

/// etcd still holds the last write of a killed run when the run is undone.
#[tokio::test]
async fn a_late_write_fails_after_the_undo_of_its_run() {
    let (etcd, site) = start(300).await;
    let before = values(&dump(&etcd));
    site.repair_by_hand("run", &site.leaks(2).await, Until::Intent)
        .await;
    let (resolved, _) = resolve(site.recorded("run"), &site.store).await.unwrap();
    let late = resolved.intents.last().unwrap();
    assert!(resolved.awaited.contains(&late.id));
    let plan = UndoPlan::new(&resolved).unwrap().read(&site.store).await.unwrap();
    let execution = site.undo(&plan, &site.options("undo")).await;
    assert!(execution.is_complete(), "{execution:?}");

    let delete = |change: &ChangeRecord| {
        let revision = change.before.as_ref().unwrap().revision.parse().unwrap();
        Change::delete(
            Key::parse(&change.key).unwrap().unwrap(),
            Revision::Etcd(revision),
        )
    };
    let batch = Batch {
        changes: late.changes.iter().map(delete).collect(),
        ..Batch::default()
    };
    let writer = site.store.writer(site.consent()).unwrap();
    assert_eq!(writer.commit(&batch).await.unwrap(), Swap::Conflict);
    assert_eq!(values(&dump(&etcd)), before);

    // Nothing is left to undo, nor to keep.
    let (resolved, _) = resolve(site.recorded("run"), &site.store).await.unwrap();
    let again = UndoPlan::new(&resolved).unwrap().read(&site.store).await.unwrap();
    assert_eq!(again.written().count(), 0, "{again:?}");
}

#[tokio::test]
async fn open_intents_are_resolved_by_reading() {
    for until in [Until::Intent, Until::Write] {
        let (etcd, site) = start(300).await;
        let touched = site.repair_by_hand("run", &site.leaks(2).await, until).await;
        let recorded = site.recorded("run");
        assert_eq!((recorded.open_intents().count(), recorded.ended), (1, false));
        let (resolved, outcomes) = resolve(recorded.clone(), &site.store).await.unwrap();
        assert_eq!(resolved.open_intents().count(), 0);
        match (until, &outcomes[&1]) {
            (Until::Intent, IntentOutcome::NotWritten) => {}
            (Until::Write, IntentOutcome::Written(outcome)) => {
                assert_eq!(outcome.written.as_ref().map(Vec::len), Some(2));
            }
            other => panic!("{other:?}"),
        }
        // Another client changes the block, so the outcome is no longer certain.
        etcd.put(&touched[2].to_string(), r#"{"cidr":"10.0.0.0/26"}"#)
            .unwrap();
        let (resolved, outcomes) = resolve(recorded, &site.store).await.unwrap();
        assert_eq!(outcomes[&1], IntentOutcome::Changed(vec![touched[2].to_string()]));
        assert_eq!(UndoPlan::new(&resolved).unwrap().skipped().len(), 1);
    }
}
