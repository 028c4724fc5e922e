//! Leftovers of half-done operations, other programs and earlier versions, which are removed only if nothing can need
//! them.

use calipam_check::{Code, Options, Scope, Subject, check};
use calipam_model::affinity::{AffinityState, AffinityType};
use calipam_model::block::{BlockContent, BlockOwner};
use calipam_model::config::IpamConfig;
use calipam_model::edit::{Edit, HandleEdit, Precondition};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot, StoredBlock, Versioned};
use calipam_model::writable::Object;
use calipam_plan::rebuild::{self, Request};
use calipam_plan::release::{self, Observations};
use calipam_plan::{Basis, Plan, SkipReason, Skipped, Verb};
use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use jiff::SignedDuration;

use super::judge::{rebuild, words};

fn plain() -> Cluster {
    Cluster::plain(ClusterSpec::new(12), 3, 3)
}

/// Plans a release of orphan handles and a rebuild, both with these observations.
fn plans(snapshot: &Snapshot, observations: &[Observations]) -> [Plan; 2] {
    let options = Options::default();
    let report = check(snapshot, &options);
    let basis = Basis::new(snapshot, &report, &options).with(observations, 0);
    let orphans = release::Request { orphan_handles: true, ..release::Request::default() };
    [release::plan(&basis, &orphans), rebuild::plan(&basis, &Request::default())]
}

/// A slow CNI ADD may have written the handle, but not the block yet.
#[test]
fn a_handle_that_nothing_refers_to_has_to_be_seen_twice() {
    let cluster = plain().with(Fault::OrphanHandle, 1);
    let snapshot = cluster.snapshot();
    let report = check(&snapshot, &Options::default());
    let looked = |minutes: i64| {
        let at = snapshot.taken_at.checked_sub(SignedDuration::from_mins(minutes)).unwrap();
        Observations { at, ..Observations::of_report(&report) }
    };
    let mut other = looked(60);
    other.handles.values_mut().for_each(|revision| *revision = "1".into());
    for seen in [vec![], vec![looked(1)], vec![other]] {
        for plan in plans(&snapshot, &seen) {
            assert!(plan.is_empty(), "{}", words(&plan));
            let of_orphan = plan.skipped.iter().find(|skipped| skipped.code == Some(Code::OrphanHandle));
            let expected = Some(SkipReason::SeenOnce);
            assert_eq!(of_orphan.map(|skipped| skipped.reason), expected, "{}", words(&plan));
        }
    }
    for plan in plans(&snapshot, &[looked(60)]) {
        let deleted: Vec<_> = plan.changes().filter(|change| change.action == Verb::DeleteHandle).collect();
        assert_eq!(deleted.len(), 1, "{}", words(&plan));
        // Nor may the handle's blocks record the handle at the time of the write.
        let guarded = plan.actions.iter().flat_map(|action| action.step.evidence());
        assert!(guarded.into_iter().any(|(key, expect)| {
            matches!((key, expect), (Key::Block(_), Precondition::Records(_, range)) if *range.end() == 0)
        }));
    }
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
        let snapshot = Snapshot { datastore, ..cluster.snapshot() };
        let report = check(&snapshot, &Options::default());
        let looked = |minutes: i64| {
            let at = snapshot.taken_at.checked_sub(SignedDuration::from_mins(minutes)).unwrap();
            Observations { at, ..Observations::of_report(&report) }
        };
        let mut other = looked(60);
        other.unsettled.values_mut().for_each(|revision| *revision = "1".into());
        for seen in [vec![], vec![looked(1)], vec![other]] {
            let [_, plan] = plans(&snapshot, &seen);
            let mut edits = plan.actions.iter().flat_map(|action| action.step.edits());
            assert!(!edits.any(|edit| matches!(edit.key(), Key::Handle(_))), "{}", words(&plan));
            let once = plan.skipped.iter().filter(|skipped| skipped.reason == SkipReason::SeenOnce);
            assert_eq!(once.count(), 4, "{}", words(&plan));
        }

        let [_, plan] = plans(&snapshot, &[looked(60)]);
        let mut falls = 0;
        for action in &plan.actions {
            for edit in action.step.edits() {
                let Edit::Handle(id, HandleEdit::Counts(_, counts)) = edit else { continue };
                let handle =
                    snapshot.handles.iter().find(|handle| handle.value.id() == *id.as_str()).unwrap();
                for (block, count) in
                    counts.iter().filter(|(block, count)| handle.value.count(*block) > *count)
                {
                    falls += 1;
                    let most = usize::try_from(*count).unwrap();
                    let guard = (Key::Block(*block), Precondition::Records(id.clone(), 0..=most));
                    assert!(action.step.evidence().any(|evidence| *evidence == guard), "{}", words(&plan));
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
        let report = check(&snapshot, &Options::default());
        let at = snapshot.taken_at.checked_sub(SignedDuration::from_hours(1)).unwrap();
        let looked = Observations { at, ..Observations::of_report(&report) };
        let [_, plan] = plans(&snapshot, &[]);
        assert!(plan.is_empty(), "{}", words(&plan));
        assert!(
            plan.skipped.iter().all(|skipped| skipped.reason == SkipReason::SeenOnce),
            "{}",
            words(&plan)
        );
        let [_, plan] = plans(&snapshot, &[looked]);
        let deleted = plan.changes().filter(|change| change.action == Verb::DeleteAffinity).count();
        assert_eq!(deleted, 1, "{cidr}: {}", words(&plan));
    }
}

#[test]
fn handles_that_the_datastore_cannot_hold_are_left_with_the_reason() {
    for (id, datastore) in [("team/a", DatastoreKind::Etcd), ("bad_id!", DatastoreKind::Kubernetes)] {
        let mut cluster = plain();
        let pod = cluster.add_pod_on(1);
        for (address, block) in &pod.addresses {
            cluster.count(&pod.handle, *block, -1);
            cluster.record_mut(*address, *block).handle = Some(id.to_owned());
        }
        let mut snapshot = cluster.snapshot();
        snapshot.datastore = datastore;
        let options = Options::default();
        let report = check(&snapshot, &options);
        let plan = rebuild::plan(&Basis::new(&snapshot, &report, &options), &Request::default());
        let written: Vec<&Edit> = plan.actions.iter().flat_map(|action| action.step.edits()).collect();
        assert!(!written.iter().any(|edit| edit.key() == Key::Handle(id.into())), "{written:?}");
        let why = plan.skipped.iter().find(|skipped| skipped.subject == Subject::Handle(id.into()));
        let expected = Some(SkipReason::HandleNotStorable);
        assert_eq!(why.map(|skipped| skipped.reason), expected, "{}", words(&plan));
    }
}

#[test]
fn an_affinity_of_an_unknown_type_is_deleted_if_no_block_belongs_to_it() {
    let cluster = plain().with(Fault::AffinityUnexpected, 1);
    let rebuilt = rebuild("unexpected type", cluster.snapshot(), &Request::default());
    let deleted: Vec<_> =
        rebuilt.plan.changes().filter(|change| change.action == Verb::DeleteAffinity).collect();
    assert_eq!(deleted.len(), 1, "{}", words(&rebuilt.plan));
    assert!(rebuilt.later.findings.is_empty(), "{:?}", rebuilt.later.findings);

    // A block that belongs to the affinity's holder.
    let mut snapshot = cluster.snapshot();
    let mut keys = snapshot.affinities.iter().map(|affinity| &affinity.value.key);
    let key = keys.find(|key| matches!(key.kind, AffinityType::Other(_))).unwrap().clone();
    let block = snapshot.blocks.iter_mut().find(|block| block.value.key == key.cidr).unwrap();
    let BlockContent::Sound(sound) = &mut block.value.content else { panic!() };
    sound.update(|edit| edit.set_owner(key.owner(), jiff::Timestamp::UNIX_EPOCH));
    let [_, plan] = plans(&snapshot, &[]);
    // The former node's affinity for the block has the same subject, but is deleted.
    let of_unknown_type = |edit: &Edit| edit.key() == Key::Affinity(key.clone());
    let mut edits = plan.actions.iter().flat_map(|action| action.step.edits());
    assert!(!edits.any(of_unknown_type), "{}", words(&plan));
}

#[test]
fn an_affinity_in_a_state_that_calico_does_not_know_is_left_to_a_person() {
    let mut snapshot = plain().snapshot();
    snapshot.affinities[0].value.state = AffinityState::Other("odd".to_owned());
    let [_, plan] = plans(&snapshot, &[]);
    let [skipped] = &plan.skipped[..] else { panic!("{:?}", plan.skipped) };
    assert!(plan.is_empty() && skipped.reason == SkipReason::NeedsDecision, "{}", words(&plan));
    assert!(skipped.detail.contains("odd"), "{}", skipped.detail);

    // A request with a scope reports only the affinities in the scope as skipped.
    snapshot.affinities.iter_mut().for_each(|affinity| {
        affinity.value.state = AffinityState::Other("odd".to_owned());
    });
    let node = snapshot.affinities[0].value.key.node.clone();
    let own = snapshot.affinities.iter().filter(|affinity| affinity.value.key.node == node).count();
    assert!(own > 0 && own < snapshot.affinities.len());
    let options = Options::default();
    let report = check(&snapshot, &options);
    let skipped =
        |request: Request| rebuild::plan(&Basis::new(&snapshot, &report, &options), &request).skipped.len();
    assert_eq!(skipped(Request { scope: Scope::of_nodes([node]), ..Request::default() }), own);
    let pool = snapshot.pools[0].value.cidr;
    let inside = snapshot.affinities.iter().filter(|a| pool.contains(&a.value.key.cidr)).count();
    assert!(inside > 0);
    assert_eq!(skipped(Request { scope: Scope::of_networks([pool]), ..Request::default() }), inside);
}

#[test]
fn borrowed_tunnel_addresses_are_skipped_as_too_low_or_too_high() {
    let mut snapshot = plain().snapshot();
    let owner = |index: usize| BlockOwner::Host(snapshot.nodes[index].value.name.clone());
    let owners = [owner(0), owner(1)];
    let v4 = |block: &&mut Versioned<StoredBlock>| block.value.key.addr().is_ipv4();
    for block in snapshot.blocks.iter_mut().filter(v4) {
        let BlockContent::Sound(block) = &mut block.value.content else { panic!() };
        let other = owners.iter().position(|owner| block.owner() == Some(owner)).map(|index| 1 - index);
        if let Some(other) = other {
            block.update(|update| update.set_owner(owners[other].clone(), jiff::Timestamp::UNIX_EPOCH));
        }
    }
    let [_, plan] = plans(&snapshot, &[]);
    let of_tunnels = |skipped: &&Skipped| skipped.code == Some(Code::BorrowedTunnelAddress);
    let mut told: Vec<_> = plan.skipped.iter().filter(of_tunnels).collect();
    told.sort_by_key(|skipped| skipped.subject.clone());
    let mut reasons: Vec<SkipReason> = told.iter().map(|skipped| skipped.reason).collect();
    reasons.dedup();
    assert_eq!(reasons, [SkipReason::TunnelAddressTooLow, SkipReason::TunnelAddressTooHigh], "{told:?}");
}

#[test]
fn addresses_borrowed_under_strict_affinity_are_left_to_a_person() {
    let mut snapshot = plain().snapshot();
    let other = BlockOwner::Host(snapshot.nodes[1].value.name.clone());
    let strict = IpamConfig { strict_affinity: true, ..IpamConfig::default() };
    snapshot.ipam_config = Some(strict);
    let BlockContent::Sound(block) = &mut snapshot.blocks[0].value.content else { panic!() };
    block.update(|update| update.set_owner(other, jiff::Timestamp::UNIX_EPOCH));
    let [_, plan] = plans(&snapshot, &[]);
    let borrowed = |skipped: &&Skipped| skipped.code == Some(Code::BorrowedUnderStrictAffinity);
    let skipped = plan.skipped.iter().find(borrowed).unwrap();
    assert!(skipped.detail.ends_with("or switch strict affinity off"), "{}", skipped.detail);
}

#[test]
fn a_block_that_is_marked_deleted_and_records_addresses_is_left_to_a_person() {
    let mut cluster = plain();
    let pod = cluster.add_pod_on(1);
    let (_, block) = pod.addresses[0];
    let path = key::block(block);
    let mut value: serde_json::Value =
        serde_json::from_slice(&cluster.get(&path).expect("there is such a block").value()).unwrap();
    value["deleted"] = true.into();
    cluster.put_raw(path, value.to_string());
    let [_, plan] = plans(&cluster.snapshot(), &[]);
    let why = plan.skipped.iter().find(|skipped| skipped.code == Some(Code::HalfDeleted)).unwrap();
    assert_eq!(why.reason, SkipReason::InUse, "{}", words(&plan));
    assert!(!plan.changes().any(|change| change.action == Verb::DeleteBlock), "{}", words(&plan));
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
            let BlockContent::Sound(sound) = &mut block.value.content else { panic!() };
            sound.set_own_strict_affinity(wanted);
        }
        let [_, plan] = plans(&snapshot, &[]);
        let created =
            plan.actions.iter().flat_map(|action| action.step.edits()).find_map(|edit| match edit {
                Edit::Create(Key::Block(_), block) => Some(block),
                _ => None,
            });
        let created = created.unwrap_or_else(|| panic!("{}", words(&plan)));
        let Object::Block(BlockContent::Sound(created)) = &**created else { panic!() };
        assert_eq!(created.own_strict_affinity(), wanted, "{version}");
        let text = serde_json::to_string(created).unwrap();
        assert_eq!(text.contains(r#""strictAffinity":true"#), wanted.is_some(), "{text}");
    }
}
