//! Undo restores values, and refuses objects that have changed since.

use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::edit::{Edit, HandleEdit, Step};
use calipam_model::key::Key;
use calipam_model::writable::Object;
use calipam_repair::{RepairError, UndoPlan, undo};
use calipam_testkit::datastore::consent;
use calipam_testkit::servers::Entries;
use jiff::Timestamp;

use crate::cluster::{Site, Until, consent_to_write, dump, start, values};

#[tokio::test(flavor = "multi_thread")]
async fn values_come_back_and_the_rest_is_untouched() {
    let (etcd, site) = start(2000).await;
    let original = dump(&etcd);
    let mut touched = Vec::new();
    // The first of two runs has a separate journal, and is not undone. The undo of the second run restores the state
    // between the two runs.
    touched.extend(
        site.repair_by_hand("0", &site.leaks(1).await, Until::Outcome)
            .await,
    );
    let base = dump(&etcd);
    let all = site.leaks(20).await;
    touched.extend(site.repair_by_hand("1", &all, Until::Outcome).await);
    let repaired = dump(&etcd);
    assert_ne!(values(&repaired), values(&base));
    let plan = site.undo_plan("1");
    assert_eq!((plan.steps().len(), plan.skipped().len()), (20, 0));
    let counts = plan.counts();
    assert_eq!((counts.blocks, counts.handles, counts.others), (20, 20, 0));
    let execution = site.undo(&plan, &site.options("2")).await;
    assert!(
        execution.is_complete() && execution.written == 20,
        "{execution:?}"
    );
    let undone = dump(&etcd);
    assert_eq!(values(&undone), values(&base));
    for (key, entry) in &original {
        let is_touched = touched.iter().any(|t| t.to_string() == *key);
        assert!(is_touched || undone.get(key) == Some(entry), "{key} was changed");
    }
    let number = |entries: &Entries, key: &str| {
        let value: serde_json::Value = serde_json::from_slice(&entries[key].0).unwrap();
        value["sequenceNumber"].as_u64().unwrap()
    };
    let block = all[0].0.to_string();
    assert!(number(&undone, &block) > number(&repaired, &block));
    assert!(number(&repaired, &block) > number(&base, &block));
    // A second undo finds everything restored already. The first undo can itself be undone.
    let execution = site.undo(&plan, &site.options("3")).await;
    assert_eq!((execution.written, execution.already), (0, 20));
    let execution = site.undo(&site.undo_plan("2"), &site.options("4")).await;
    assert_eq!(execution.written, 20, "{execution:?}");
    assert_eq!(values(&dump(&etcd)), values(&repaired));
}

#[tokio::test]
async fn changed_objects_are_refused_and_the_rest_is_undone() {
    refuse_changed_objects(async |plan, _| plan).await;
}

#[tokio::test]
async fn objects_that_change_after_the_plan_has_read_them_are_refused() {
    refuse_changed_objects(async |plan, site| plan.read(&site.store).await.unwrap()).await;
}

/// Changes objects of three of four steps after `prepare` has been called with the plan to undo all of them.
async fn refuse_changed_objects(prepare: impl AsyncFn(UndoPlan, &Site) -> UndoPlan) {
    let (etcd, site) = start(600).await;
    let all = site.leaks(4).await;
    let base = dump(&etcd);
    site.repair_by_hand("first", &all, Until::Outcome).await;
    let plan = prepare(site.undo_plan("first"), &site).await;
    // The block of the first leak is rewritten with the same value, and the handle of the second exists again.
    let block = all[0].0.to_string();
    let value = dump(&etcd)[&block].0.clone();
    etcd.put(&block, value).unwrap();
    etcd.put(&all[1].2.to_string(), r#"{"block":{"10.9.9.0/26":1}}"#)
        .unwrap();
    // The block of the third leak is deleted.
    etcd.delete(&all[2].0.to_string()).unwrap();
    let changed = dump(&etcd);
    let execution = site.undo(&plan, &site.options("second")).await;
    assert_eq!(
        (execution.written, execution.conflicts.len()),
        (1, 3),
        "{execution:?}"
    );
    assert!(
        execution
            .conflicts
            .iter()
            .all(|c| c.reason.contains("has changed since the run"))
    );
    let undone = dump(&etcd);
    for (block, _, handle) in &all[..3] {
        for key in [block.to_string(), handle.to_string()] {
            assert_eq!(undone.get(&key), changed.get(&key), "{key}");
        }
    }
    let handle = all[3].2.to_string();
    assert_eq!(undone[&handle].0, base[&handle].0);
}

#[tokio::test]
async fn objects_are_read_once_unless_they_change() {
    let (etcd, site) = start(600).await;
    let base = dump(&etcd);
    site.repair_by_hand("first", &site.leaks(1).await, Until::Outcome)
        .await;
    let plan = site.undo_plan("first").read(&site.store).await.unwrap();
    let before = site.store.request_count();
    let execution = site.undo(&plan, &site.options("second")).await;
    assert_eq!(execution.written, 1, "{execution:?}");
    assert_eq!(values(&dump(&etcd)), values(&base));
    // The cluster's information is read again, and the transaction is sent.
    assert_eq!(site.store.request_count() - before, 2);
}

#[tokio::test]
async fn changes_between_two_writes_of_a_run_are_noticed() {
    let (_etcd, site) = start(600).await;
    site.repair_by_hand("first", &site.leaks(1).await, Until::Outcome)
        .await;
    let mut recorded = site.recorded("first");
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
    assert!(
        plan.skipped()[0].reason.contains("between two writes"),
        "{:?}",
        plan.skipped()
    );
}

#[tokio::test]
async fn another_cluster_and_missing_consent_are_refused() {
    let (etcd, site) = start(300).await;
    site.repair_by_hand("first", &site.leaks(2).await, Until::Outcome)
        .await;
    let before = dump(&etcd);
    let (plan, options) = (site.undo_plan("first"), site.options("second"));
    // Tries consent for another cluster, consent for fewer objects, and a journal of another cluster.
    let error = undo(&site.store, &plan, consent("another"), &options)
        .await
        .unwrap_err();
    assert!(matches!(error, RepairError::OtherCluster { .. }), "{error}");
    let mut counts = plan.counts();
    counts.handles -= 1;
    let little = consent_to_write(plan.cluster(), counts);
    let error = undo(&site.store, &plan, little, &options).await.unwrap_err();
    assert!(
        matches!(
            error,
            RepairError::NotAgreed {
                agreed: 3,
                planned: 4
            }
        ),
        "{error}"
    );
    let mut recorded = site.recorded("first");
    recorded.header.cluster = "another".into();
    let other = UndoPlan::new(&recorded).unwrap();
    let error = undo(&site.store, &other, consent("another"), &options)
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("another") && text.contains(&site.cluster), "{text}");
    assert!(!options.journal.exists());
    assert_eq!(dump(&etcd), before);
}

/// The intents of a step with several writes share no object. The step is still undone as a whole or not at all.
/// Otherwise, the handles of live pods would be deleted while their block is kept.
#[tokio::test]
async fn a_step_of_many_writes_is_undone_as_a_whole() {
    let (etcd, site) = start(600).await;
    // A block and its handles are lost, and a rebuild creates them again in several writes.
    let block = Block::new("10.99.0.0/24".parse().unwrap(), None, Timestamp::now()).unwrap();
    let id = |ordinal: u32| format!("k8s-pod-network.{ordinal}");
    let record = |ordinal| {
        (
            ordinal,
            Attribute {
                handle: Some(id(ordinal)),
                ..Attribute::default()
            },
        )
    };
    let mut step = Step::new("a block that was lost");
    let counts = (0..200).map(|n| Edit::Handle(id(n), HandleEdit::Increment(block.cidr(), 1)));
    step.whole().edits = counts.collect();
    let mut whole = block.clone();
    whole.update(|update| {
        (0..200)
            .map(record)
            .for_each(|(n, record)| update.assign(n, &record).unwrap())
    });
    step.whole().edits.push(Edit::Create(
        Key::Block(block.cidr()),
        Box::new(Object::from(whole)),
    ));
    let execution = site.run_as("first", vec![step]).await;
    assert!(execution.is_complete(), "{execution:?}");
    let recorded = site.recorded("first");
    assert!(recorded.intents.len() > 1);
    let plan = UndoPlan::new(&recorded).unwrap();
    assert_eq!((plan.steps().len(), plan.skipped().len()), (1, 0));

    // Calico writes the block.
    let key = Key::Block(block.cidr()).to_string();
    let value = dump(&etcd)[&key].0.clone();
    etcd.put(&key, value).unwrap();
    let before = dump(&etcd);
    let undone = site.undo(&plan, &site.options("second")).await;
    assert_eq!(
        (undone.written, undone.partly, undone.conflicts.len()),
        (0, 0, 1),
        "{undone:?}"
    );
    assert_eq!(dump(&etcd), before);

    // If the outcome of one write of the step is unknown, none of its writes is undone.
    let mut unknown = recorded.clone();
    unknown.outcomes.pop_last();
    let plan = UndoPlan::new(&unknown).unwrap();
    assert_eq!((plan.steps().len(), plan.skipped().len()), (0, 1));
}
