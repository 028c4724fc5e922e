//! Pools that select nodes, and their blocks when selectors or labels change.

use calipam_assign::AutoAssign;
use calipam_model::pool::PoolUse;
use serde_json::json;

use crate::cluster::{Cluster, all_in, nets, wants, wants_as};

const POOL: &str = "10.0.0.0/24";
const OTHER: &str = "20.0.0.0/24";
const SELECTS: &str = r#"foo == "bar""#;
const SELECTS_NOT: &str = r#"foo != "bar""#;

/// A cluster with a pool that selects the label `foo=bar`, which `host-a` has.
fn cluster() -> Cluster {
    let cluster = Cluster::new(&[]);
    cluster.node("host-a", &[("foo", "bar")]);
    select(&cluster, POOL, SELECTS);
    cluster
}

fn select(cluster: &Cluster, pool: &str, selector: &str) {
    cluster.pool(pool, json!({"nodeSelector": selector}));
}

#[test]
fn addresses_come_only_from_pools_that_select_the_node() {
    let cluster = cluster();
    select(&cluster, OTHER, SELECTS_NOT);
    let given = cluster.addresses(&wants("host-a", 300));
    assert!(given.len() == 256 && all_in(&given, POOL));
}

/// Releases three addresses one after the other. After the first release, the pool no longer selects the node.
fn assert_block_is_deleted_with_its_last_address(release: impl Fn(&Cluster, usize, std::net::IpAddr)) {
    let cluster = cluster();
    let handles = ["h0", "h1", "h2"];
    let given = handles.map(|handle| cluster.addresses(&wants_as("host-a", 1, handle))[0]);
    assert!(all_in(&given, POOL));
    for (number, address) in given.into_iter().enumerate() {
        assert_eq!(
            (cluster.blocks().len(), cluster.blocks_of("host-a").len()),
            (1, 1),
            "before {address}"
        );
        if number == 1 {
            select(&cluster, POOL, SELECTS_NOT);
        }
        release(&cluster, number, address);
    }
    assert!(cluster.blocks().is_empty() && cluster.affinities().is_empty());
}

#[test]
fn a_block_of_a_pool_that_no_longer_selects_the_node_is_deleted_with_its_last_address_or_handle() {
    assert_block_is_deleted_with_its_last_address(|cluster, _, address| cluster.release_all(&[address]));
    let release = |cluster: &Cluster, number, _| cluster.release_handle(&format!("h{number}")).unwrap();
    assert_block_is_deleted_with_its_last_address(release);
}

#[test]
fn a_node_that_is_selected_instead_borrows_if_no_block_is_left() {
    let cluster = Cluster::new(&[]);
    cluster.node("host-a", &[("foo", "bar")]);
    cluster.node("host-b", &[]);
    cluster.pool("10.0.0.0/30", json!({"blockSize": 30, "nodeSelector": SELECTS}));
    assert_eq!(cluster.addresses(&wants("host-a", 3)).len(), 3);
    cluster.node("host-a", &[]);
    cluster.node("host-b", &[("foo", "bar")]);

    assert_eq!(
        cluster.refusal(&wants("host-a", 1)),
        "no configured Calico pools for node host-a"
    );
    let borrowed = cluster.addresses(&wants("host-b", 1));
    assert!(borrowed.len() == 1 && all_in(&borrowed, "10.0.0.0/30"));
    assert_eq!(
        (
            cluster.blocks_of("host-a").len(),
            cluster.blocks_of("host-b").len()
        ),
        (1, 0)
    );
}

/// A cluster in which `host-a` has an empty block, from which three addresses were released.
fn with_an_empty_block() -> Cluster {
    let cluster = cluster();
    let given = cluster.addresses(&wants("host-a", 3));
    cluster.release_all(&given);
    assert_eq!(
        (cluster.blocks().len(), cluster.blocks_of("host-a").len()),
        (1, 1)
    );
    cluster
}

#[test]
fn an_empty_block_of_a_pool_that_no_longer_selects_the_node_is_given_up_by_the_next_request() {
    let cluster = with_an_empty_block();
    select(&cluster, POOL, SELECTS_NOT);
    select(&cluster, OTHER, "all()");
    assert!(all_in(&cluster.addresses(&wants("host-a", 3)), OTHER));
    let blocks = cluster.blocks_of("host-a");
    assert!(
        blocks.len() == 1 && all_in(&[blocks[0].addr()], OTHER),
        "{blocks:?}"
    );
    assert_eq!(cluster.blocks().len(), 1);
}

#[test]
fn an_empty_block_of_a_pool_that_is_not_for_the_use_is_kept() {
    let cluster = Cluster::new(&[]);
    cluster.node("host-a", &[("foo", "bar")]);
    cluster.pool(
        POOL,
        json!({"nodeSelector": SELECTS, "allowedUses": ["Workload"]}),
    );
    let given = cluster.addresses(&wants("host-a", 3));
    cluster.release_all(&given);
    cluster.pool(OTHER, json!({"nodeSelector": SELECTS, "allowedUses": ["Tunnel"]}));
    let tunnel = AutoAssign {
        intended_use: Some(PoolUse::Tunnel),
        ..wants("host-a", 1)
    };
    assert!(all_in(&cluster.addresses(&tunnel), OTHER));
    assert_eq!(
        (cluster.blocks().len(), cluster.blocks_of("host-a").len()),
        (2, 2)
    );
    assert!(cluster.blocks().iter().all(|block| block.owner().is_some()));
}

#[test]
fn an_empty_block_of_a_pool_that_was_not_requested_is_kept() {
    let cluster = with_an_empty_block();
    select(&cluster, OTHER, "all()");
    let given = cluster.addresses(&AutoAssign {
        pools_v4: nets(&[OTHER]),
        ..wants("host-a", 3)
    });
    assert!(given.len() == 3 && all_in(&given, OTHER));
    assert_eq!(
        (cluster.blocks().len(), cluster.blocks_of("host-a").len()),
        (2, 2)
    );
}

#[test]
fn a_block_in_use_of_a_pool_that_no_longer_selects_the_node_is_kept() {
    let cluster = cluster();
    cluster.addresses(&wants("host-a", 1));
    select(&cluster, POOL, SELECTS_NOT);
    select(&cluster, OTHER, "all()");
    assert!(all_in(&cluster.addresses(&wants("host-a", 1)), OTHER));
    assert_eq!(cluster.blocks_of("host-a").len(), 2);
}

#[test]
fn a_block_of_a_node_that_is_gone_stays_when_its_last_address_is_released() {
    let cluster = cluster();
    let given = cluster.addresses(&wants("host-a", 1));
    assert!(
        cluster
            .store
            .remove("/calico/resources/v3/projectcalico.org/nodes/host-a")
    );
    select(&cluster, POOL, SELECTS_NOT);
    cluster.release_all(&given);
    assert_eq!(cluster.blocks().len(), 1);
}
