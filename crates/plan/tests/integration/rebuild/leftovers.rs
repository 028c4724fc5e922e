//! Leftovers of half-done operations, other programs and earlier versions, which are removed only if nothing can need
//! them.

use calipam_check::{Code, Remedy, Scope, Subject};
use calipam_model::affinity::{AffinityState, AffinityType};
use calipam_model::block::{BlockContent, BlockOwner};
use calipam_model::config::IpamConfig;
use calipam_model::edit::{Edit, HandleEdit, Precondition};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source, StoredBlock, Versioned};
use calipam_plan::rebuild::{self, Request};
use calipam_plan::release::{self, Observations};
use calipam_plan::{Plan, SkipReason, Skipped, Verb};
use calipam_testkit::cluster::Fault;
use calipam_testkit::cluster::wire::key;

use super::judge::{at_first_sight, plain, rebuild_all, words};
use crate::checked::{Checked, created_block, edits};

/// Plans a release of orphan handles and a rebuild, both with these observations.
fn plans(checked: &Checked, observations: &[Observations]) -> [Plan; 2] {
    let basis = checked.basis().with(observations, 0);
    let orphans = release::Request {
        orphan_handles: true,
        ..release::Request::default()
    };
    [
        release::plan(&basis, &orphans),
        rebuild::plan(&basis, &Request::default()),
    ]
}

/// The number of changes of a plan with this verb.
fn count(plan: &Plan, verb: Verb) -> usize {
    plan.changes().filter(|change| change.action == verb).count()
}

/// A slow CNI ADD may have written the handle, but not the block yet.
#[test]
fn a_handle_that_nothing_refers_to_has_to_be_seen_twice() {
    let checked = Checked::new(plain().with(Fault::OrphanHandle, 1).snapshot());
    let mut other = checked.seen(60);
    other
        .handles
        .values_mut()
        .for_each(|revision| *revision = "1".into());
    for seen in [vec![], vec![checked.seen(1)], vec![other]] {
        for plan in plans(&checked, &seen) {
            assert!(plan.is_empty(), "{}", words(&plan));
            let of_orphan = plan
                .skipped
                .iter()
                .find(|skipped| skipped.code == Some(Code::OrphanHandle));
            let expected = Some(SkipReason::SeenOnce);
            assert_eq!(
                of_orphan.map(|skipped| skipped.reason),
                expected,
                "{}",
                words(&plan)
            );
        }
    }
    for plan in plans(&checked, &[checked.seen(60)]) {
        assert_eq!(count(&plan, Verb::DeleteHandle), 1, "{}", words(&plan));
        // Nor may the handle's blocks record the handle at the time of the write.
        let guarded = plan.actions.iter().flat_map(|action| action.step.evidence());
        assert!(guarded.into_iter().any(|(key, expect)| {
            matches!((key, expect), (Key::Block(_), Precondition::Records(_, range)) if *range.end() == 0)
        }));
    }
}

/// In an etcd that was restored from a backup, a node's block and endpoints can be missing together. Its handles then
/// look like orphans, and only pods show that they are not.
#[test]
fn a_handle_of_a_missing_block_is_deleted_only_if_pods_were_read() {
    let snapshot = plain().with(Fault::OrphanHandleNoBlock, 1).snapshot();
    let release = |snapshot: Snapshot| {
        let checked = Checked::new(snapshot);
        let remedy = checked
            .report
            .findings
            .iter()
            .find(|finding| finding.code == Code::OrphanHandle);
        let remedy = remedy.and_then(|finding| finding.remedy());
        let [release, _] = plans(&checked, &[checked.seen(60)]);
        (release, remedy)
    };
    let (unread, remedy) = release(snapshot.clone());
    assert_eq!((unread.is_empty(), remedy), (true, None), "{}", words(&unread));
    let skipped = unread
        .skipped
        .iter()
        .find(|skipped| skipped.code == Some(Code::OrphanHandle));
    assert_eq!(
        skipped.map(|skipped| skipped.reason),
        Some(SkipReason::NotRead),
        "{}",
        words(&unread)
    );

    let mut with_pods = snapshot;
    with_pods.mark_read([Source::Pods]);
    let (read, remedy) = release(with_pods);
    assert_eq!(count(&read, Verb::DeleteHandle), 1, "{}", words(&read));
    assert_eq!(remedy, Some(Remedy::ReleaseOrphanHandles));
}

/// An ADD may have counted its address in the handle, but not recorded it in the block yet. A count is lowered only
/// after a second read, and only if the block records no more addresses.
#[test]
fn a_count_that_is_too_high_has_to_be_seen_twice() {
    for datastore in [DatastoreKind::Etcd, DatastoreKind::Kubernetes] {
        let cluster = plain()
            .with(Fault::HandleCountHigh, 2)
            .with(Fault::HandleCountGoneBlock, 1)
            .with(Fault::HandleCountBoth, 1);
        let checked = Checked::new(Snapshot {
            datastore,
            ..cluster.snapshot()
        });
        let mut other = checked.seen(60);
        other
            .unsettled
            .values_mut()
            .for_each(|revision| *revision = "1".into());
        for seen in [vec![], vec![checked.seen(1)], vec![other]] {
            let [_, plan] = plans(&checked, &seen);
            assert!(
                !edits(&plan).any(|edit| matches!(edit.key(), Key::Handle(_))),
                "{}",
                words(&plan)
            );
            let once = plan
                .skipped
                .iter()
                .filter(|skipped| skipped.reason == SkipReason::SeenOnce);
            assert_eq!(once.count(), 4, "{}", words(&plan));
        }

        let [_, plan] = plans(&checked, &[checked.seen(60)]);
        let mut falls = 0;
        for action in &plan.actions {
            for edit in action.step.edits() {
                let Edit::Handle(id, HandleEdit::Counts(_, counts)) = edit else {
                    continue;
                };
                let mut handles = checked.snapshot.handles.iter();
                let handle = &handles
                    .find(|handle| handle.value.id() == *id.as_str())
                    .unwrap()
                    .value;
                for (block, count) in counts
                    .iter()
                    .filter(|(block, count)| handle.count(*block) > *count)
                {
                    falls += 1;
                    let most = usize::try_from(*count).unwrap();
                    let guard = (Key::Block(*block), Precondition::Records(id.clone(), 0..=most));
                    assert!(
                        action.step.evidence().any(|evidence| *evidence == guard),
                        "{}",
                        words(&plan)
                    );
                }
            }
        }
        assert_eq!(falls, 4, "{}", words(&plan));
    }
}

/// The affinity's node may be about to create the block, and would not find it without the affinity.
#[test]
fn an_affinity_between_two_steps_has_to_be_seen_twice() {
    for cidr in ["10.244.200.0/26", "fd00:10:244:ff::/122"] {
        let mut snapshot = plain().snapshot();
        let mut affinity = snapshot.affinities[0].clone();
        affinity.value.key.cidr = cidr.parse().unwrap();
        affinity.value.state = AffinityState::Pending;
        snapshot.affinities.push(affinity);
        let checked = Checked::new(snapshot);
        let [_, plan] = plans(&checked, &[]);
        assert!(plan.is_empty(), "{}", words(&plan));
        let is_seen_once = |skipped: &Skipped| skipped.reason == SkipReason::SeenOnce;
        assert!(plan.skipped.iter().all(is_seen_once), "{}", words(&plan));
        let [_, plan] = plans(&checked, &[checked.seen(60)]);
        assert_eq!(count(&plan, Verb::DeleteAffinity), 1, "{cidr}: {}", words(&plan));
    }
}

#[test]
fn handles_that_the_datastore_cannot_hold_are_left_with_the_reason() {
    for (id, datastore) in [
        ("team/a", DatastoreKind::Etcd),
        ("bad_id!", DatastoreKind::Kubernetes),
    ] {
        let mut cluster = plain();
        let pod = cluster.add_pod_on(1);
        for (address, block) in &pod.addresses {
            cluster.count(&pod.handle, *block, -1);
            cluster.record_mut(*address, *block).handle = Some(id.to_owned());
        }
        let plan = at_first_sight(Snapshot {
            datastore,
            ..cluster.snapshot()
        });
        assert!(
            !edits(&plan).any(|edit| edit.key() == Key::Handle(id.into())),
            "{plan:?}"
        );
        let why = plan
            .skipped
            .iter()
            .find(|skipped| skipped.subject == Subject::Handle(id.into()));
        let expected = Some(SkipReason::HandleNotStorable);
        assert_eq!(why.map(|skipped| skipped.reason), expected, "{}", words(&plan));
    }
}

#[test]
fn an_affinity_of_an_unknown_type_is_deleted_if_no_block_belongs_to_it() {
    let cluster = plain().with(Fault::AffinityUnexpected, 1);
    let rebuilt = rebuild_all("unexpected type", &cluster);
    assert_eq!(
        count(&rebuilt.plan, Verb::DeleteAffinity),
        1,
        "{}",
        words(&rebuilt.plan)
    );
    assert!(rebuilt.later.findings.is_empty(), "{:?}", rebuilt.later.findings);

    // A block that belongs to the affinity's holder.
    let mut snapshot = cluster.snapshot();
    let mut keys = snapshot.affinities.iter().map(|affinity| &affinity.value.key);
    let key = keys
        .find(|key| matches!(key.kind, AffinityType::Other(_)))
        .unwrap()
        .clone();
    let block = snapshot
        .blocks
        .iter_mut()
        .find(|block| block.value.key == key.cidr)
        .unwrap();
    let BlockContent::Sound(sound) = &mut block.value.content else {
        panic!()
    };
    sound.update(|edit| edit.set_owner(key.owner(), jiff::Timestamp::UNIX_EPOCH));
    let plan = at_first_sight(snapshot);
    // The former node's affinity for the block has the same subject, but is deleted.
    assert!(
        edits(&plan).all(|edit| edit.key() != Key::Affinity(key.clone())),
        "{}",
        words(&plan)
    );
}

#[test]
fn an_affinity_in_a_state_that_calico_does_not_know_is_left_to_a_person() {
    let mut snapshot = plain().snapshot();
    snapshot.affinities[0].value.state = AffinityState::Other("odd".to_owned());
    let plan = at_first_sight(snapshot.clone());
    let [skipped] = &plan.skipped[..] else {
        panic!("{:?}", plan.skipped)
    };
    assert!(
        plan.is_empty() && skipped.reason == SkipReason::NeedsDecision,
        "{}",
        words(&plan)
    );
    assert!(skipped.detail.contains("odd"), "{}", skipped.detail);

    // A request with a scope reports only the affinities in the scope as skipped.
    snapshot.affinities.iter_mut().for_each(|affinity| {
        affinity.value.state = AffinityState::Other("odd".to_owned());
    });
    let node = snapshot.affinities[0].value.key.node.clone();
    let own = snapshot
        .affinities
        .iter()
        .filter(|affinity| affinity.value.key.node == node)
        .count();
    assert!(own > 0 && own < snapshot.affinities.len());
    let checked = Checked::new(snapshot.clone());
    let skipped = |request: Request| rebuild::plan(&checked.basis(), &request).skipped.len();
    assert_eq!(
        skipped(Request {
            scope: Scope::of_nodes([node]),
            ..Request::default()
        }),
        own
    );
    let pool = snapshot.pools[0].value.cidr;
    let inside = snapshot
        .affinities
        .iter()
        .filter(|a| pool.contains(&a.value.key.cidr))
        .count();
    assert!(inside > 0);
    assert_eq!(
        skipped(Request {
            scope: Scope::of_networks([pool]),
            ..Request::default()
        }),
        inside
    );
}

#[test]
fn borrowed_tunnel_addresses_are_skipped_as_too_low_or_too_high() {
    let mut snapshot = plain().snapshot();
    let owner = |index: usize| BlockOwner::Host(snapshot.nodes[index].value.name.clone());
    let owners = [owner(0), owner(1)];
    let v4 = |block: &&mut Versioned<StoredBlock>| block.value.key.addr().is_ipv4();
    for block in snapshot.blocks.iter_mut().filter(v4) {
        let BlockContent::Sound(block) = &mut block.value.content else {
            panic!()
        };
        let other = owners
            .iter()
            .position(|owner| block.owner() == Some(owner))
            .map(|index| 1 - index);
        if let Some(other) = other {
            block.update(|update| update.set_owner(owners[other].clone(), jiff::Timestamp::UNIX_EPOCH));
        }
    }
    let plan = at_first_sight(snapshot);
    let of_tunnels = |skipped: &&Skipped| skipped.code == Some(Code::BorrowedTunnelAddress);
    let mut told: Vec<_> = plan.skipped.iter().filter(of_tunnels).collect();
    told.sort_by_key(|skipped| skipped.subject.clone());
    let mut reasons: Vec<SkipReason> = told.iter().map(|skipped| skipped.reason).collect();
    reasons.dedup();
    assert_eq!(
        reasons,
        [SkipReason::TunnelAddressTooLow, SkipReason::TunnelAddressTooHigh],
        "{told:?}"
    );
}

#[test]
fn addresses_borrowed_under_strict_affinity_are_left_to_a_person() {
    let mut snapshot = plain().snapshot();
    let other = BlockOwner::Host(snapshot.nodes[1].value.name.clone());
    let strict = IpamConfig {
        strict_affinity: true,
        ..IpamConfig::default()
    };
    snapshot.ipam_config = Some(strict);
    let BlockContent::Sound(block) = &mut snapshot.blocks[0].value.content else {
        panic!()
    };
    block.update(|update| update.set_owner(other, jiff::Timestamp::UNIX_EPOCH));
    let plan = at_first_sight(snapshot);
    let borrowed = |skipped: &&Skipped| skipped.code == Some(Code::BorrowedUnderStrictAffinity);
    let skipped = plan.skipped.iter().find(borrowed).unwrap();
    assert!(
        skipped.detail.ends_with("or switch strict affinity off"),
        "{}",
        skipped.detail
    );
}

#[test]
fn a_block_that_is_marked_deleted_and_records_addresses_is_left_to_a_person() {
    let mut cluster = plain();
    let pod = cluster.add_pod_on(1);
    cluster.json_mut(&key::block(pod.block()))["deleted"] = true.into();
    let plan = at_first_sight(cluster.snapshot());
    let why = plan
        .skipped
        .iter()
        .find(|skipped| skipped.code == Some(Code::HalfDeleted))
        .unwrap();
    assert_eq!(why.reason, SkipReason::InUse, "{}", words(&plan));
    assert_eq!(count(&plan, Verb::DeleteBlock), 0, "{}", words(&plan));
}

/// In Calico 3.13, each block has its own strict affinity setting.
#[test]
fn a_new_block_of_an_old_cluster_carries_its_strict_affinity() {
    for (version, wanted) in [("v3.13.5", Some(true)), ("v3.32.1", None)] {
        let cluster = plain().with(Fault::UnallocatedNoBlock, 1);
        let mut snapshot = cluster.snapshot();
        snapshot.cluster.as_mut().unwrap().calico_version = version.into();
        let mut config = snapshot.effective_ipam_config().unwrap();
        config.strict_affinity = true;
        snapshot.ipam_config = Some(config);
        for block in &mut snapshot.blocks {
            let BlockContent::Sound(sound) = &mut block.value.content else {
                panic!()
            };
            sound.set_own_strict_affinity(wanted);
        }
        let plan = at_first_sight(snapshot);
        let created = created_block(&plan).unwrap_or_else(|| panic!("{}", words(&plan)));
        assert_eq!(created.own_strict_affinity(), wanted, "{version}");
        let text = serde_json::to_string(created).unwrap();
        assert_eq!(
            text.contains(r#""strictAffinity":true"#),
            wanted.is_some(),
            "{text}"
        );
    }
}
