//! Tests that violations made by hand are reported, on both datastores.

use std::sync::Arc;
use std::time::Duration;

use calipam_assign::{Query, Record, Store as _};
use calipam_model::cidr::ordinal_of;
use calipam_model::key::Key;

use super::ledger::{Ledger, Tenant, Violation};
use super::store::Target;
use super::{Churn, ChurnLog};
use crate::cluster::{Cluster, ClusterSpec};
use crate::kube::{Flavour, Kinds, lease, seed};
use crate::runtime::block_on;
use crate::servers::Etcd;

/// Returns true if the log contains live, leaked, finished and evicted pods.
fn is_enough(log: &ChurnLog) -> bool {
    let is_mixed = log.ledger.live().len() > 5 && log.lost > 0 && log.stopped > log.lost;
    is_mixed && log.finished > 0 && log.evicted > 0
}

fn churn() -> Churn {
    let limit = Duration::from_secs(120);
    Churn {
        workers: 3,
        operations: 40,
        enough: is_enough,
        limit,
        pause: Duration::ZERO,
        leaks: 300,
        ..Churn::default()
    }
}

fn spec() -> ClusterSpec {
    ClusterSpec::new(8).v4_only()
}

/// Frees the address of one live pod, and deletes the handle of another one.
fn break_two(target: Target<'_>, ledger: &Ledger) -> [Tenant; 2] {
    let [freed, uncounted] = [0, 1].map(|place| ledger.live().nth(place).unwrap().clone());
    let keys = [Key::Block(freed.block), Key::Handle(uncounted.handle.clone())];
    let ordinal = ordinal_of(freed.block, freed.address).unwrap();
    let broken = block_on(async || {
        let store = target.connect().await?;
        let [mut block, handle] = store
            .read(&keys.map(Query::Get))
            .await?
            .concat()
            .try_into()
            .unwrap();
        let Record::Block(content) = &mut block.record else {
            panic!("{block:?}")
        };
        Arc::make_mut(content).update(|edit| edit.release(&[ordinal]));
        store.update(&block.record, &block.revision).await?;
        anyhow::Ok(store.delete(&handle).await?)
    });
    broken.unwrap();
    [freed, uncounted]
}

/// Runs a churn, which must cause no violations. Then makes violations by hand, and asserts that exactly these are
/// found.
fn violations_are_found(target: Target<'_>, nodes: &[String]) {
    let log = churn().run(target, &spec(), nodes).unwrap();
    assert!(is_enough(&log), "{log:?}");
    assert_eq!(
        log.ledger.leaked().len() as u64,
        log.lost,
        "nothing frees what has leaked"
    );
    assert_eq!(log.ledger.verify(target).unwrap(), []);
    let [freed, uncounted] = break_two(target, &log.ledger);
    let found = log.ledger.verify(target).unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.contains(&Violation::Freed(freed)) && found.contains(&Violation::Uncounted(uncounted)));
}

#[test]
fn violations_are_found_on_etcd() {
    let etcd = Etcd::start().unwrap();
    let cluster = Cluster::plain(spec(), 3, 0);
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.name.clone()).collect();
    violations_are_found(Target::Etcd(&etcd), &nodes);
}

#[test]
fn violations_are_found_on_kubernetes() {
    for flavour in [Flavour::Classic, Flavour::Native] {
        let server = lease(Kinds::Calico(flavour)).unwrap();
        let nodes = seed(&server, flavour, &spec(), 3).unwrap();
        violations_are_found(Target::Kubernetes(&server, flavour), &nodes);
    }
}

#[test]
fn an_address_that_is_given_twice_is_a_violation() {
    let tenant = |pod: &str, address: &str| Tenant {
        pod: format!("default/{pod}"),
        handle: format!("k8s-pod-network.{pod}"),
        address: address.parse().unwrap(),
        block: "10.0.0.0/26".parse().unwrap(),
    };
    let (a, b, c) = (
        tenant("a", "10.0.0.1"),
        tenant("b", "10.0.0.1"),
        tenant("c", "10.0.0.1"),
    );
    let mut ledger = Ledger::default();
    ledger.give(a.clone());
    ledger.end(&a.handle);
    ledger.give(b.clone());
    assert_eq!(ledger.violations(), [], "the first pod was gone");
    ledger.leak(&b.handle);
    assert_eq!(ledger.leaked().len(), 1);
    ledger.give(c.clone());
    assert_eq!(
        (ledger.violations(), ledger.leaked().len()),
        (&[][..], 0),
        "what had leaked was freed"
    );
    ledger.give(tenant("d", "10.0.0.2"));
    ledger.give(a.clone());
    let twice = Violation::GivenTwice {
        first: c.clone(),
        second: a.clone(),
    };
    assert_eq!(ledger.violations(), std::slice::from_ref(&twice));
    // The second owner ends. The first one still has the address, so no other pod may get it.
    ledger.end(&a.handle);
    ledger.give(b.clone());
    assert_eq!(ledger.violations().len(), 2, "{:?}", ledger.violations());
}
