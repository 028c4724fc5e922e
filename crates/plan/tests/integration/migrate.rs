//! Migrations and settings, planned on a few hand-written objects.

use std::collections::BTreeSet;

use calipam_check::Subject;
use calipam_model::config::IpamSetting;
use calipam_model::edit::{BlockEdit, Edit};
use calipam_model::hint::Call;
use calipam_model::pool::Pool;
use calipam_model::snapshot::{DatastoreKind, ETCD_SOURCES, Snapshot};
use calipam_plan::migrate::{
    Migration, Phase, Target, User, UserKind, capacity, check_pools, clean_up, find, survey,
};
use calipam_plan::release::Observations;
use calipam_plan::{SkipReason, configure};
use calipam_testkit::values;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::checked::{Checked, edits};

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

fn add(snapshot: &mut Snapshot, path: &str, value: &Value) {
    snapshot.add_entry(path.as_bytes(), value.to_string().as_bytes(), 7);
}

/// Two pools. The first one is disabled. In it, node-1 has a block with an address that a pod got a minute ago. node-2
/// has a similar block, and an empty one.
fn cluster() -> Snapshot {
    let mut snapshot = Snapshot {
        taken_at: "2026-05-01T12:00:00Z".parse().unwrap(),
        ..Snapshot::default()
    };
    snapshot.mark_read(ETCD_SOURCES);
    let mut put = |path: String, value: Value| add(&mut snapshot, &path, &value);
    for (name, cidr, disabled) in [("old", "10.0.0.0/24", true), ("other", "10.1.0.0/24", false)] {
        let spec = json!({"cidr": cidr, "blockSize": 30, "disabled": disabled});
        put(format!("{RESOURCES}/ippools/{name}"), json!({"spec": spec}));
    }
    for (node, block, pod) in [
        ("node-1", "10.0.0.0", "a"),
        ("node-2", "10.0.0.8", "b"),
        ("node-2", "10.0.0.12", ""),
    ] {
        put(format!("{RESOURCES}/nodes/{node}"), json!({"spec": {}}));
        let state = json!({"state": "confirmed"});
        let cidr = format!("{block}/30");
        put(values::affinity_key(&format!("host/{node}"), &cidr), state);
        let secondary = json!({"namespace": "ns", "pod": pod, "node": node, "timestamp": "2026-05-01 11:59:00 +0000 UTC"});
        let record = json!({"handle_id": format!("net.{pod}"), "secondary": secondary});
        let records = Some(record).filter(|_| !pod.is_empty());
        put(
            values::block_key(&cidr),
            values::block(&cidr, format!("host:{node}"), records),
        );
    }
    assert!(snapshot.defects.is_empty(), "{:?}", snapshot.defects);
    snapshot
}

fn migration(snapshot: &Snapshot) -> Migration {
    Migration {
        old: snapshot.pools[0].value.clone(),
        new: None,
        creates: false,
    }
}

#[test]
fn a_clean_up_takes_empty_blocks_with_their_own_affinities_and_nothing_else() {
    let checked = Checked::new(cluster());
    let plan = clean_up(&checked.basis(), &migration(&checked.snapshot));
    let keys: BTreeSet<String> = edits(&plan).map(|edit| edit.key().to_string()).collect();
    let empty = [
        "/calico/ipam/v2/assignment/ipv4/block/10.0.0.12-30",
        "/calico/ipam/v2/host/node-2/ipv4/block/10.0.0.12-30",
    ];
    assert_eq!(keys, empty.map(str::to_owned).into());
    let collects = |edit: &Edit| matches!(edit, Edit::Block(_, BlockEdit::CollectCooled { .. }));
    assert!(!edits(&plan).any(collects), "nothing has cooled down in it");
    let kept = ["10.0.0.0/30", "10.0.0.8/30"].map(|block| Subject::Block(block.parse().unwrap()));
    let skipped: Vec<_> = plan
        .skipped
        .iter()
        .map(|skipped| (skipped.subject.clone(), skipped.reason))
        .collect();
    assert_eq!(skipped, kept.map(|block| (block, SkipReason::OwnerMayLive)));
}

#[test]
fn blocks_and_addresses_left_in_the_old_pool_are_counted() {
    let left =
        |snapshot: &Snapshot| survey(&Checked::new(snapshot.clone()).basis(), migration(snapshot)).leftovers;
    let mut snapshot = cluster();
    let unused = left(&snapshot);
    assert_eq!((unused.in_use, unused.leaked, unused.others), (0, 0, 2));
    let endpoint = json!({"spec": {"node": "node-1", "orchestrator": "k8s", "pod": "a", "endpoint": "eth0", "ipNetworks": ["10.0.0.0/32"]}});
    let path = format!("{RESOURCES}/workloadendpoints/ns/node--1-k8s-a-eth0");
    add(&mut snapshot, &path, &endpoint);
    let used = left(&snapshot);
    assert_eq!(
        (
            used.blocks,
            used.affinities,
            used.in_use,
            used.leaked,
            used.others
        ),
        (3, 3, 1, 0, 1)
    );
}

/// Only Calico 3.32 and later takes empty blocks of other nodes.
#[test]
fn room_for_the_users_is_what_the_clusters_calico_finds() {
    for (version, found) in [("v3.31.7", 0), ("v3.32.1", 1)] {
        let mut snapshot = cluster();
        let information = json!({"spec": {"calicoVersion": version}});
        add(
            &mut snapshot,
            &format!("{RESOURCES}/clusterinformations/default"),
            &information,
        );
        let config = json!({"strict_affinity": true, "auto_allocate_blocks": true});
        add(&mut snapshot, "/calico/ipam/v2/config", &config);
        let only = Pool {
            cidr: "10.1.0.0/30".parse().unwrap(),
            ..snapshot.pools[1].value.clone()
        };
        snapshot.pools[1].value = only;
        let path = values::affinity_key("host/node-2", "10.1.0.0/30");
        add(&mut snapshot, &path, &json!({"state": "confirmed"}));
        let empty = values::block("10.1.0.0/30", "host:node-2", []);
        add(&mut snapshot, &values::block_key("10.1.0.0/30"), &empty);

        let user = User {
            address: "10.0.0.0".parse().unwrap(),
            kind: UserKind::Pod,
            node: "node-1".to_owned(),
            name: "ns/a".to_owned(),
        };
        let migration = migration(&snapshot);
        let rooms = capacity(&mut snapshot, &migration, &[user]);
        assert_eq!(
            (rooms[0].needed, rooms[0].found),
            (1, found),
            "{version}: {rooms:?}"
        );
        assert_eq!(rooms[0].reason.is_some(), found == 0, "{rooms:?}");
    }
}

#[test]
fn a_begun_migration_is_found_only_by_its_own_pools() {
    let mut snapshot = cluster();
    let mut temporary = snapshot.pools[1].clone();
    (temporary.value.name, temporary.value.cidr) = ("temporary".into(), "10.2.0.0/24".parse().unwrap());
    let [old, other] = [0, 1].map(|index| snapshot.pools[index].value.clone());
    temporary.value.temporary_for = Some(calipam_model::pool::Successor {
        name: old.name,
        cidr: old.cidr,
        block_size: 29,
    });
    snapshot.pools.push(temporary);
    let found = |name: &str| find(&snapshot, Some(name), &Target::Unstated).unwrap().unwrap();
    let expected = [(); 2].map(|()| Target::Pool("temporary".into()));
    assert_eq!(["old", "temporary"].map(|name| found(name).1), expected);
    assert_eq!(
        (&found("other").0.name, found("other").1),
        (&other.name, Target::Unstated)
    );
}

/// Until the old pool is disabled, only the name of the new one shows that a migration has begun.
#[test]
fn a_migration_has_begun_once_its_new_pool_exists() {
    let begun = |name: &str, old: &str, is_old_disabled: bool, hours: [i64; 2], has_blocks: bool| {
        let mut snapshot = cluster();
        snapshot.blocks.retain(|_| has_blocks);
        snapshot.affinities.retain(|_| has_blocks);
        for (pool, name, hours) in [(0, old, hours[0]), (1, name, hours[1])] {
            let pool = &mut snapshot.pools[pool].value;
            pool.name = name.into();
            pool.created = Some(snapshot.taken_at + SignedDuration::from_hours(hours));
        }
        snapshot.pools[0].value.disabled = is_old_disabled;
        let found = find(&snapshot, None, &Target::Unstated);
        let named = found.map(|found| found.map(|(old, target)| (old.name.clone(), target)));
        named.map_err(|refused| refused.to_string())
    };
    let none_begun = || Err("no pool shows that a migration has begun".to_owned());
    let new = "old-10-1-0-0-24";
    let of = |old: &str| Ok(Some((old.to_owned(), Target::Pool(new.into()))));
    let expected = [of("old"), of("old")];
    assert_eq!(
        [false, true].map(|disabled| begun(new, "old", disabled, [2, 2], false)),
        expected
    );
    assert_eq!(
        begun(new, "old", true, [2, 2], true),
        of("old"),
        "blocks are left in the disabled pool"
    );
    // If calipam named both pools, the one that was created later is the new pool.
    assert_eq!(
        begun(new, "old-10-0-0-0-24", false, [1, 2], false),
        of("old-10-0-0-0-24")
    );
    assert_eq!(begun(new, "old-10-0-0-0-24", true, [2, 2], false), none_begun());
    for other in ["other", "old-10-9-0-0-24"] {
        assert_eq!(begun(other, "old", true, [1, 2], false), none_begun(), "{other}");
    }
}

/// Nothing in an emptied pool says whether a migration has emptied it, so it has to be named.
#[test]
fn a_disabled_pool_is_found_until_it_is_empty_and_then_named_in_the_refusal() {
    let mut snapshot = cluster();
    snapshot.blocks.clear();
    let found = find(&snapshot, None, &Target::Unstated).unwrap().unwrap();
    assert_eq!(found.0.name, "old", "affinities are left");

    snapshot.affinities.clear();
    let refused = find(&snapshot, None, &Target::Unstated).unwrap_err();
    let called = [Call::Name("old".into()), Call::to(["migrate", "--from", "old"])];
    assert_eq!(refused.hint.unwrap().calls, called);
    let named = find(&snapshot, Some("old"), &Target::Unstated).unwrap().unwrap();
    let migration = Migration::of(&snapshot, named.0, &named.1).unwrap();
    let phase = survey(&Checked::new(snapshot.clone()).basis(), migration).phase;
    assert_eq!(phase, Phase::Delete);

    snapshot.pools[0].value.disabled = false;
    let refused = find(&snapshot, None, &Target::Unstated).unwrap_err();
    assert!(refused.hint.unwrap().calls.is_empty(), "no pool is disabled");
}

/// The clean-up keeps an affinity if a CNI ADD may be about to create its block.
#[test]
fn a_clean_up_waits_for_an_affinity_between_two_steps() {
    for state in ["pending", "pendingDeletion"] {
        let mut snapshot = cluster();
        let path = "/calico/ipam/v2/host/node-1/ipv4/block/10.0.0.16-30";
        add(&mut snapshot, path, &json!({"state": state}));
        let checked = Checked::new(snapshot);
        let about_it = |observations: &[Observations]| {
            let plan = clean_up(
                &checked.basis().with(observations, 0),
                &migration(&checked.snapshot),
            );
            let deletes = edits(&plan).filter(|edit| edit.key().to_string() == path).count();
            let waits = plan
                .skipped
                .iter()
                .filter(|skipped| skipped.reason == SkipReason::SeenOnce)
                .count();
            (deletes, waits)
        };
        assert_eq!(
            [about_it(&[]), about_it(&[checked.seen(60)])],
            [(0, 1), (1, 0)],
            "{state}"
        );
    }
}

#[test]
fn changes_that_leave_a_family_without_pools_or_cover_other_blocks_are_refused() {
    let mut snapshot = cluster();
    for (name, cidr) in [("six", "fd00::/64"), ("six-b", "fd01::/64")] {
        let spec = json!({"spec": {"cidr": cidr, "blockSize": 122}});
        add(&mut snapshot, &format!("{RESOURCES}/ippools/{name}"), &spec);
    }
    let pools: Vec<Pool> = snapshot.pools.iter().map(|pool| pool.value.clone()).collect();
    let without = |names: &[&str]| {
        let left: Vec<Pool> = pools
            .iter()
            .filter(|p| !names.contains(&&*p.name))
            .cloned()
            .collect();
        check_pools(&snapshot, &left).map_err(|refused| refused.to_string())
    };
    let last = |pool: &str| Err(format!("without {pool}, no pool of its family would be enabled"));
    assert_eq!(without(&["old"]), Ok(()));
    assert_eq!(without(&["other"]), last("other"));
    assert_eq!(without(&["six"]), Ok(()));
    assert_eq!(without(&["six", "six-b"]), last("six"));

    let changed = |change: &dyn Fn(&mut Pool)| {
        let mut after = pools.clone();
        change(&mut after[0]);
        check_pools(&snapshot, &after)
    };
    assert_eq!(changed(&|old| old.disabled = false), Ok(()));
    for disabled in [true, false] {
        let refusal = changed(&|old| (old.block_size, old.disabled) = (29, disabled));
        let refusal = refusal.unwrap_err().to_string();
        assert!(refusal.ends_with("where blocks must be /29"), "{refusal}");
    }
    // The parts of a split become one pool again.
    let whole = Pool {
        name: "whole".into(),
        cidr: "10.0.0.0/23".parse().unwrap(),
        ..pools[0].clone()
    };
    let after = [&[whole], &pools[1..]].concat();
    assert_eq!(check_pools(&snapshot, &after), Ok(()));
}

#[test]
fn only_etcd_stores_the_settings_twice() {
    let warned = |datastore, shown: bool| {
        let mut snapshot = Snapshot {
            datastore,
            ..cluster()
        };
        let config = snapshot.ipam_config.unwrap_or_default();
        snapshot.ipam_configuration = Some(calipam_model::config::IpamConfig {
            strict_affinity: shown,
            ..config
        });
        let plan = configure::plan(snapshot, None, &[IpamSetting::StrictAffinity(true)]).unwrap();
        plan.warnings.iter().any(|warning| {
            let patch = r#"{"spec":{"strictAffinity":true}}"#;
            let next = Call::calicoctl(["patch", "ipamconfiguration", "default", "-p", patch]);
            warning
                .text
                .contains("IPAMConfiguration resource `default` differs")
                && warning.calls == [next]
        })
    };
    let etcd = [true, false].map(|shown| warned(DatastoreKind::Etcd, shown));
    assert_eq!(
        (etcd, warned(DatastoreKind::Kubernetes, false)),
        ([false, true], false)
    );
}
