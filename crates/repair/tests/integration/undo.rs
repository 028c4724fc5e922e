//! Undo restores values, and refuses objects that have changed since.

use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::edit::{Edit, HandleEdit, Step};
use calipam_model::key::Key;
use calipam_model::writable::Object;
use calipam_repair::journal::Recorded;
use calipam_repair::{Options, RepairError, UndoPlan, execute, undo};
use jiff::Timestamp;

use crate::cluster::{
    Until, consent, dump, guid, journal_path, leaks, new_journal, repair_by_hand, start, values,
};

#[tokio::test(flavor = "multi_thread")]
async fn values_come_back_and_the_rest_is_untouched() {
    let (etcd, store) = start(2000).await;
    let cluster = guid(&store).await;
    let folder = tempfile::tempdir().unwrap();
    let [first, second, third] = ["1", "2", "3"].map(|name| journal_path(folder.path(), name));
    let original = dump(&etcd).await;
    let mut touched = Vec::new();
    // The first of two runs has a separate journal, and is not undone. The undo of the second run restores the state
    // between the two runs.
    let mut all = leaks(&store, 20).await;
    touched.extend(repair_by_hand(&store, &folder.path().join("0"), &all[..1], Until::Outcome).await);
    let base = dump(&etcd).await;
    all = leaks(&store, 20).await;
    touched.extend(repair_by_hand(&store, &first, &all, Until::Outcome).await);
    let repaired = dump(&etcd).await;
    assert_ne!(values(&repaired), values(&base));
    let plan = UndoPlan::new(&Recorded::read(&first).unwrap()).unwrap();
    assert_eq!((plan.steps().len(), plan.skipped().len()), (20, 0));
    let question = plan.question("here");
    assert_eq!((question.blocks, question.handles, question.others), (20, 20, 0));
    let execution = undo(&store, &plan, consent(&cluster), &Options::new("undo", &second)).await.unwrap();
    assert!(execution.is_complete() && execution.written == 20, "{execution:?}");
    let undone = dump(&etcd).await;
    assert_eq!(values(&undone), values(&base));
    for (key, entry) in &original {
        let is_touched = touched.iter().any(|t| t.to_string() == *key);
        assert!(is_touched || undone.get(key) == Some(entry), "{key} was changed");
    }
    let number = |entries: &crate::cluster::Entries, key: &str| {
        let value: serde_json::Value = serde_json::from_slice(&entries[key].0).unwrap();
        value["sequenceNumber"].as_u64().unwrap()
    };
    let block = all[0].0.to_string();
    assert!(number(&undone, &block) > number(&repaired, &block));
    assert!(number(&repaired, &block) > number(&base, &block));
    // A second undo finds everything restored already. The first undo can itself be undone.
    let execution = undo(&store, &plan, consent(&cluster), &Options::new("undo", &third)).await.unwrap();
    assert_eq!((execution.written, execution.already), (0, 20));
    let back = UndoPlan::new(&Recorded::read(&second).unwrap()).unwrap();
    let options = Options::new("undo", journal_path(folder.path(), "4"));
    let execution = undo(&store, &back, consent(&cluster), &options).await.unwrap();
    assert_eq!(execution.written, 20, "{execution:?}");
    assert_eq!(values(&dump(&etcd).await), values(&repaired));
}

#[tokio::test]
async fn changed_objects_are_refused_and_the_rest_is_undone() {
    let (etcd, store) = start(600).await;
    let cluster = guid(&store).await;
    let (folder, first) = new_journal("first");
    let all = leaks(&store, 4).await;
    let base = dump(&etcd).await;
    repair_by_hand(&store, &first, &all, Until::Outcome).await;
    let mut client = etcd.client().await.unwrap();
    // The block of the first leak is rewritten with the same value, and the handle of the second exists again.
    let block = all[0].0.to_string();
    let value = dump(&etcd).await[&block].0.clone();
    client.put(block.as_str(), value, None).await.unwrap();
    client.put(all[1].2.to_string(), r#"{"block":{"10.9.9.0/26":1}}"#, None).await.unwrap();
    // The block of the third leak is deleted.
    client.delete(all[2].0.to_string(), None).await.unwrap();
    let changed = dump(&etcd).await;
    let plan = UndoPlan::new(&Recorded::read(&first).unwrap()).unwrap();
    let options = Options::new("undo", journal_path(folder.path(), "second"));
    let execution = undo(&store, &plan, consent(&cluster), &options).await.unwrap();
    assert_eq!((execution.written, execution.conflicts.len()), (1, 3), "{execution:?}");
    assert!(execution.conflicts.iter().all(|c| c.reason.contains("has changed since the run")));
    let undone = dump(&etcd).await;
    for (block, _, handle) in &all[..3] {
        for key in [block.to_string(), handle.to_string()] {
            assert_eq!(undone.get(&key), changed.get(&key), "{key}");
        }
    }
    let handle = all[3].2.to_string();
    assert_eq!(undone[&handle].0, base[&handle].0);
}

#[tokio::test]
async fn changes_between_two_writes_of_a_run_are_noticed() {
    let (etcd, store) = start(600).await;
    let (_folder, first) = new_journal("first");
    let leak = leaks(&store, 1).await;
    repair_by_hand(&store, &first, &leak, Until::Outcome).await;
    let mut recorded = Recorded::read(&first).unwrap();
    // Adds a second intent, for a version of the block that the run has not written.
    let mut again = recorded.intents[0].clone();
    again.id = 1;
    again.changes.truncate(1);
    again.changes[0].before.as_mut().unwrap().revision = "999999".into();
    recorded.intents.push(again);
    let mut outcome = recorded.outcomes[&0].clone();
    outcome.id = 1;
    recorded.outcomes.insert(1, outcome);
    let plan = UndoPlan::new(&recorded).unwrap();
    assert!(plan.steps().is_empty());
    assert_eq!(plan.skipped().len(), 1);
    assert!(plan.skipped()[0].reason.contains("between two writes"), "{:?}", plan.skipped());
    drop(etcd);
}

#[tokio::test]
async fn another_cluster_and_missing_consent_are_refused() {
    let (etcd, store) = start(300).await;
    let cluster = guid(&store).await;
    let (folder, first) = new_journal("first");
    repair_by_hand(&store, &first, &leaks(&store, 2).await, Until::Outcome).await;
    let before = dump(&etcd).await;
    let plan = UndoPlan::new(&Recorded::read(&first).unwrap()).unwrap();
    let second = journal_path(folder.path(), "second");
    let options = Options::new("undo", &second);
    // Tries consent for another cluster, consent for fewer objects, and a journal of another cluster.
    let error = undo(&store, &plan, consent("another"), &options).await.unwrap_err();
    assert!(matches!(error, RepairError::OtherCluster { .. }), "{error}");
    let mut question = plan.question("here");
    question.handles -= 1;
    let little = calipam_datastore::write::Consent::from_option(question, true).unwrap();
    let error = undo(&store, &plan, little, &options).await.unwrap_err();
    assert!(matches!(error, RepairError::NotAgreed { agreed: 3, planned: 4 }), "{error}");
    let mut recorded = Recorded::read(&first).unwrap();
    recorded.header.cluster = "another".into();
    let other = UndoPlan::new(&recorded).unwrap();
    let error = undo(&store, &other, consent("another"), &options).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("another") && text.contains(&cluster), "{text}");
    assert!(!second.exists());
    assert_eq!(dump(&etcd).await, before);
}

/// The intents of a step with several writes share no object. The step is still undone as a whole or not at all.
/// Otherwise, the handles of live pods would be deleted while their block is kept.
#[tokio::test]
async fn a_step_of_many_writes_is_undone_as_a_whole() {
    let (etcd, store) = start(600).await;
    let cluster = guid(&store).await;
    let folder = tempfile::tempdir().unwrap();
    // A block and its handles are lost, and a rebuild creates them again in several writes.
    let block = Block::new("10.99.0.0/24".parse().unwrap(), None, Timestamp::now()).unwrap();
    let id = |ordinal: u32| format!("k8s-pod-network.{ordinal}");
    let record = |ordinal| (ordinal, Attribute { handle: Some(id(ordinal)), ..Attribute::default() });
    let mut step = Step::new("a block that was lost");
    let counts = (0..200).map(|n| Edit::Handle(id(n), HandleEdit::Increment(block.cidr(), 1)));
    step.whole().edits = counts.collect();
    let mut whole = block.clone();
    whole.update(|update| (0..200).map(record).for_each(|(n, record)| update.assign(n, &record).unwrap()));
    step.whole().edits.push(Edit::Create(Key::Block(block.cidr()), Box::new(Object::from(whole))));
    let path = journal_path(folder.path(), "first");
    let steps = vec![step];
    let execution =
        execute(&store, &cluster, steps, consent(&cluster), &Options::new("rebuild", &path)).await.unwrap();
    assert!(execution.is_complete(), "{execution:?}");
    let recorded = Recorded::read(&path).unwrap();
    assert!(recorded.intents.len() > 1);
    let plan = UndoPlan::new(&recorded).unwrap();
    assert_eq!((plan.steps().len(), plan.skipped().len()), (1, 0));

    // Calico writes the block.
    let key = Key::Block(block.cidr()).to_string();
    let value = dump(&etcd).await[&key].0.clone();
    etcd.client().await.unwrap().put(key.as_str(), value, None).await.unwrap();
    let before = dump(&etcd).await;
    let options = Options::new("undo", journal_path(folder.path(), "second"));
    let undone = undo(&store, &plan, consent(&cluster), &options).await.unwrap();
    assert_eq!((undone.written, undone.partly, undone.conflicts.len()), (0, 0, 1), "{undone:?}");
    assert_eq!(dump(&etcd).await, before);

    // If the outcome of one write of the step is unknown, none of its writes is undone.
    let mut unknown = recorded.clone();
    unknown.outcomes.pop_last();
    let plan = UndoPlan::new(&unknown).unwrap();
    assert_eq!((plan.steps().len(), plan.skipped().len()), (0, 1));
}
