//! Assigning a requested address.

use calipam_assign::AssignIp;
use calipam_model::pool::PoolUse;
use serde_json::json;

use super::{differs, rows};
use crate::cluster::{Cluster, given, ip, net, owned_by, wants};

fn assigned(address: &str, times: usize, expected: Result<(), &str>) {
    let cluster = Cluster::new(&["192.168.1.0/24", "fd80:24e2:f998:72d6::/120"]);
    (1..times).for_each(|_| cluster.assign(&given(address)).unwrap());
    let result = cluster.assign(&given(address)).map_err(|error| error.to_string());
    assert_eq!(result, expected.map_err(str::to_owned));
    let is_there = cluster
        .blocks()
        .iter()
        .any(|block| block.allocation_of(ip(address)).is_some());
    assert_eq!(is_there, expected.is_ok() || times > 1);
}

rows! { assigned:
    an_address_of_a_pool("192.168.1.0", 1, Ok(()));
    an_ipv6_address_of_a_pool("fd80:24e2:f998:72d6::", 1, Ok(()));
    an_address_outside_of_the_pools("1.1.1.1", 1, Err("The provided IP address is not in a configured pool\n"));
    an_ipv6_address_outside_of_the_pools("fd00::1", 1, Err("The provided IP address is not in a configured pool\n"));
    an_address_twice("192.168.1.0", 2, Err("resource already exists: 192.168.1.0 with error: Address already assigned in block"));
}

fn used_for(address: &str, intended_use: Option<PoolUse>, expected: Result<(), &str>) {
    let cluster = Cluster::new(&["20.0.0.0/24"]);
    cluster.pool("10.0.0.0/24", json!({"allowedUses": ["Workload"]}));
    let result = cluster.assign(&AssignIp {
        intended_use,
        ..given(address)
    });
    assert_eq!(
        result.map_err(|error| error.to_string()),
        expected.map_err(str::to_owned)
    );
}

rows! { used_for:
    a_pool_for_workloads_has_no_address_for_a_tunnel("10.0.0.1", Some(PoolUse::Tunnel),
        Err("IP address 10.0.0.1 is in IP pool \"10-0-0-0-24\", which is not allowed for use \"Tunnel\" (allowedUses: [Workload])"));
    a_pool_for_workloads_has_an_address_for_one("10.0.0.2", Some(PoolUse::Workload), Ok(()));
    every_pool_is_for_requests_without_a_use("10.0.0.3", None, Ok(()));
    a_pool_without_uses_is_for_tunnels_too("20.0.0.1", Some(PoolUse::Tunnel), Ok(()));
    a_pool_without_uses_is_not_for_load_balancers("20.0.0.1", Some(PoolUse::LoadBalancer),
        Err("IP address 20.0.0.1 is in IP pool \"20-0-0-0-24\", which is not allowed for use \"LoadBalancer\" (allowedUses: [Workload Tunnel])"));
}

#[test]
fn an_address_of_a_disabled_pool_counts_as_outside_the_pools() {
    let cluster = Cluster::new(&[]);
    cluster.pool("10.0.0.0/24", json!({"disabled": true}));
    let error = cluster.assign(&given("10.0.0.1")).unwrap_err().to_string();
    assert_eq!(error, "The provided IP address is not in a configured pool\n");
}

#[test]
fn the_block_of_the_address_is_claimed_for_the_host() {
    let cluster = Cluster::new(&["10.0.0.0/24"]);
    cluster.assign(&given("10.0.0.77")).unwrap();
    assert_eq!(cluster.block().owner().cloned(), owned_by("host-a"));
    assert_eq!(cluster.blocks_of("host-a"), [net("10.0.0.64/26")]);
}

#[test]
fn an_address_in_the_block_of_another_host_is_borrowed_unless_affinity_is_strict() {
    let cluster = Cluster::new(&["10.0.0.0/26"]);
    cluster.node("host-b", &[]);
    cluster.addresses(&wants("host-b", 1));
    cluster.assign(&given("10.0.0.60")).unwrap();
    cluster.affinity_is_strict(true);
    let error = cluster.assign(&given("10.0.0.61")).unwrap_err().to_string();
    assert_eq!(error, "Block host affinity does not match");
}

#[test]
fn an_address_is_found_in_a_block_of_another_size() {
    differs("A pool's block size was changed, and an address is in a block of the old size");
    let cluster = Cluster::with_blocks(&[("10.0.0.0/24", 26)]);
    cluster.assign(&given("10.0.0.1")).unwrap();
    cluster.pool("10.0.0.0/24", json!({"blockSize": 28}));
    cluster.assign(&given("10.0.0.2")).unwrap();
    assert_eq!(cluster.block().cidr(), net("10.0.0.0/26"));
    assert!(cluster.assign(&given("10.0.0.1")).is_err());
}
