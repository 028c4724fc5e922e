//! Scopes of rebuilds: objects outside of the scope stay as they are.

use std::collections::BTreeSet;

use calipam_check::Scope;
use calipam_model::IpNet;
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_plan::rebuild::Request;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};

use super::judge::{Rebuilt, rebuild};
use crate::checked::edits;

/// Leaks, lost records and stale affinities on several nodes.
fn cluster() -> Cluster {
    let mut cluster = Cluster::plain(ClusterSpec::new(8), 2, 2);
    for fault in [
        Fault::LeakedNoOwner,
        Fault::UnallocatedFreed,
        Fault::UnallocatedNoBlock,
        Fault::CorruptFreeTwice,
        Fault::AffinityOfOther,
        Fault::BlockOfMissingNode,
        Fault::MissingHandle,
        Fault::HandleCountHigh,
        Fault::OrphanHandle,
        Fault::CarriageReturn,
        Fault::LeakedInDisabledPool,
    ] {
        cluster.inject(fault, 2);
    }
    cluster
}

fn touched(rebuilt: &Rebuilt) -> BTreeSet<Key> {
    edits(&rebuilt.plan).map(Edit::key).collect()
}

fn blocks(keys: &BTreeSet<Key>) -> BTreeSet<IpNet> {
    let block = |key: &Key| match key {
        Key::Block(cidr) => Some(*cidr),
        _ => None,
    };
    keys.iter().filter_map(block).collect()
}

#[test]
fn each_part_changes_its_own_blocks_and_all_parts_together_change_everything() {
    let snapshot = cluster().snapshot();
    let whole = rebuild("everything", snapshot.clone(), &Request::default());
    let all = blocks(&touched(&whole));
    assert!(all.len() > 8, "{all:?}");
    for block in &all {
        let request = Request {
            blocks: vec![*block],
            ..Request::default()
        };
        let part = rebuild(&format!("--block {block}"), snapshot.clone(), &request);
        let changed = blocks(&touched(&part));
        assert!(
            changed.is_subset(&[*block].into()),
            "--block {block} changes {changed:?}"
        );
    }
    for number in [2, all.len()] {
        let named: Vec<IpNet> = all.iter().copied().take(number).collect();
        let request = Request {
            blocks: named.clone(),
            ..Request::default()
        };
        let part = rebuild(&format!("{number} blocks"), snapshot.clone(), &request);
        assert_eq!(blocks(&touched(&part)), BTreeSet::from_iter(named));
    }
}

#[test]
fn a_node_that_is_gone_can_be_named() {
    let cluster = Cluster::plain(ClusterSpec::new(8), 2, 2).with(Fault::NodeGone, 2);
    let gone = cluster.nodes()[2].name.clone();
    let request = Request {
        scope: Scope::of_nodes([gone.clone()]),
        ..Request::default()
    };
    let part = rebuild("gone", cluster.snapshot(), &request);
    let left: BTreeSet<&str> = part
        .later
        .findings
        .iter()
        .flat_map(|f| &f.nodes)
        .map(String::as_str)
        .collect();
    assert!(!part.plan.is_empty() && !left.contains(gone.as_str()), "{left:?}");
    assert!(left.contains(cluster.nodes()[3].name.as_str()), "{left:?}");
}

#[test]
fn a_pool_changes_only_its_own_objects() {
    let snapshot = cluster().snapshot();
    for pool in &snapshot.pools {
        let request = Request {
            scope: Scope::of_networks([pool.value.cidr]),
            ..Request::default()
        };
        let part = rebuild(&pool.value.name, snapshot.clone(), &request);
        let keys = touched(&part);
        for cidr in blocks(&keys) {
            assert!(pool.value.cidr.contains(&cidr), "{}: {cidr}", pool.value.name);
        }
        for key in keys {
            if let Key::Affinity(key) = key {
                assert!(pool.value.cidr.contains(&key.cidr), "{}: {key}", pool.value.name);
            }
        }
    }
}

/// Checks that a rebuild of a node changes only its own blocks and affinities.
fn assert_only_own(node: &str, part: &Rebuilt) {
    let all = part.before.blocks.iter().chain(&part.after.blocks);
    let own = all.filter(|block| block.value.content.owner().and_then(|owner| owner.host()) == Some(node));
    let owned: BTreeSet<IpNet> = own.map(|block| block.value.key).collect();
    let keys = touched(part);
    assert!(blocks(&keys).is_subset(&owned), "--node {node} changes {keys:?}");
    for key in &keys {
        if let Key::Affinity(key) = key {
            assert!(
                key.node == node || owned.contains(&key.cidr),
                "--node {node} changes {key}"
            );
        }
    }
}

/// Several names of one kind widen a scope. Names of different kinds narrow it.
#[test]
fn a_node_changes_only_its_own_and_a_node_a_pool_and_blocks_narrow_each_other() {
    let snapshot = cluster().snapshot();
    let of = |request: &Request| blocks(&touched(&rebuild("part", snapshot.clone(), request)));
    let (mut changed, mut narrowed) = (0, 0);
    for node in &snapshot.nodes {
        let name = &node.value.name;
        let by_node = Request {
            scope: Scope::of_nodes([name.clone()]),
            ..Request::default()
        };
        let part = rebuild(&format!("--node {name}"), snapshot.clone(), &by_node);
        assert_only_own(name, &part);
        changed += usize::from(!part.plan.is_empty());
        let all = blocks(&touched(&part));
        for pool in &snapshot.pools {
            let cidr = pool.value.cidr;
            let scope = Scope {
                networks: vec![cidr],
                ..by_node.scope.clone()
            };
            let within = of(&Request {
                scope,
                ..by_node.clone()
            });
            let expected: BTreeSet<IpNet> = all
                .iter()
                .filter(|block| cidr.contains(*block))
                .copied()
                .collect();
            assert_eq!(within, expected, "{name} in {}", pool.value.name);
            narrowed += usize::from(!expected.is_empty() && expected.len() < all.len());
        }
        for block in all {
            assert_eq!(
                of(&Request {
                    blocks: vec![block],
                    ..by_node.clone()
                }),
                [block].into(),
                "{name}"
            );
        }
    }
    assert!(changed > 3 && narrowed > 0, "{changed} {narrowed}");
}
