//! The choice of the pools that serve a request. It depends on their states, node selectors and allowed uses, and on
//! the pools that the request names.

use std::sync::{Arc, Mutex};

use calipam_assign::{AutoAssign, Event, Family};
use calipam_model::IpNet;
use calipam_model::pool::PoolUse;
use serde_json::json;

use super::{differs, rows};
use crate::cluster::{Cluster, net, wants};
use crate::run;

const V4: [&str; 2] = ["10.0.0.1/24", "20.0.0.0/24"];
const V6: [&str; 2] = ["fe80::11/120", "fe80::2:0/120"];

/// The state of a pool, as seen from the node `host-a` with the label `foo=bar`.
#[derive(Clone, Copy, PartialEq)]
enum Is {
    Unselective,
    Selecting,
    /// The pool selects other nodes.
    NotSelecting,
    SelectingAll,
    Disabled,
}

/// Creates two pools, and requests an address from those at the positions in `requested`. Expects the positions of the
/// pools that serve the request, which are the same for both families; `None` for an error.
fn served(are: [Is; 2], requested: &[usize], expected: Option<&[usize]>) {
    for pools in [V4, V6] {
        served_of(pools, are, requested, expected);
    }
}

fn served_of(pools: [&str; 2], are: [Is; 2], requested: &[usize], expected: Option<&[usize]>) {
    let cluster = Cluster::new(&[]);
    cluster.node("host-a", &[("foo", "bar")]);
    for (cidr, is) in pools.into_iter().zip(are) {
        let selector = match is {
            Is::Selecting => r#"foo == "bar""#,
            Is::NotSelecting => r#"foo != "bar""#,
            Is::SelectingAll => "all()",
            Is::Unselective | Is::Disabled => "",
        };
        cluster.pool(
            cidr,
            json!({"disabled": is == Is::Disabled, "nodeSelector": selector}),
        );
    }
    let named: Vec<IpNet> = requested.iter().map(|index| net(pools[*index])).collect();
    let request = match Family::of(net(pools[0])) {
        Family::V4 => AutoAssign {
            pools_v4: named,
            ..wants("host-a", 1)
        },
        Family::V6 => AutoAssign {
            v6: 1,
            pools_v6: named,
            ..wants("host-a", 0)
        },
    };

    let serving: Arc<Mutex<Vec<IpNet>>> = Arc::default();
    let note = Arc::clone(&serving);
    let observed = cluster.allocator().observed_by(Arc::new(move |event| {
        if let Event::PoolServes { cidr, .. } = event {
            note.lock().unwrap().push(cidr.trunc());
        }
    }));
    let given = run(observed.auto_assign(&request));
    let Some(expected) = expected else {
        let error = given.unwrap_err().error.to_string();
        let disabled = format!(
            "the given pool ({}) does not exist, or is not enabled",
            net(pools[0]).trunc()
        );
        let texts = [disabled, "no configured Calico pools for node host-a".to_owned()];
        assert!(texts.contains(&error), "{error}");
        return;
    };
    let expected: Vec<IpNet> = expected.iter().map(|index| net(pools[*index]).trunc()).collect();
    // The allocator selects the pools only once in this test, so each pool is reported once.
    assert_eq!(*serving.lock().unwrap(), expected);
    let address = given.unwrap().addresses().next().unwrap();
    assert!(expected.iter().any(|pool| pool.contains(&address)), "{address}");
}

rows! { served:
    both_pools_serve([Is::Unselective, Is::Unselective], &[], Some(&[0, 1]));
    the_first_pool_is_asked_for([Is::Unselective, Is::Unselective], &[0], Some(&[0]));
    the_selecting_pool_serves([Is::Selecting, Is::NotSelecting], &[], Some(&[0]));
    a_selecting_pool_is_asked_for([Is::Selecting, Is::NotSelecting], &[0], Some(&[0]));
    the_pool_that_selects_all_serves([Is::NotSelecting, Is::SelectingAll], &[], Some(&[1]));
    a_pool_of_other_nodes_serves_requests_that_name_it([Is::NotSelecting, Is::Unselective], &[0], Some(&[0]));
    the_second_pool_is_asked_for([Is::Selecting, Is::Unselective], &[1], Some(&[1]));
    a_disabled_pool_does_not_serve([Is::Disabled, Is::Unselective], &[], Some(&[1]));
    a_disabled_pool_cannot_be_asked_for([Is::Disabled, Is::Unselective], &[0], None);
    the_pool_beside_a_disabled_one_is_asked_for([Is::Disabled, Is::Unselective], &[1], Some(&[1]));
    the_selecting_pool_beside_a_disabled_one_serves([Is::Disabled, Is::Selecting], &[], Some(&[1]));
    the_selecting_pool_beside_a_disabled_one_is_asked_for([Is::Disabled, Is::Selecting], &[1], Some(&[1]));
    no_pool_is_left([Is::Disabled, Is::NotSelecting], &[], None);
    a_pool_of_other_nodes_beside_a_disabled_one_is_asked_for([Is::Disabled, Is::NotSelecting], &[1], Some(&[1]));
}

const WORKLOADS: &str = "192.168.2.0/24";
const TUNNELS: &str = "192.168.3.0/24";

/// Creates a pool for each of `uses`, and requests an address for the use `wanted`. Expects the pool that contains the
/// address, or an error.
fn used_for(uses: &[PoolUse], wanted: PoolUse, named: Option<&str>, expected: Result<&str, &str>) {
    let cluster = Cluster::new(&[]);
    for allowed in uses {
        let (cidr, name) = match allowed {
            PoolUse::Tunnel => (TUNNELS, "Tunnel"),
            _ => (WORKLOADS, "Workload"),
        };
        cluster.pool(cidr, json!({"blockSize": 32, "allowedUses": [name]}));
    }
    let pools_v4 = named.into_iter().map(net).collect();
    let request = AutoAssign {
        intended_use: Some(wanted),
        pools_v4,
        ..wants("host-a", 1)
    };
    match expected {
        Ok(pool) => assert!(net(pool).contains(&cluster.addresses(&request)[0])),
        Err(text) => assert_eq!(cluster.refusal(&request), text),
    }
}

const NONE_FOR_WORKLOADS: &str = "cannot find a qualified ippool, no pools match the required use (Workload)";
const BOTH: &[PoolUse] = &[PoolUse::Workload, PoolUse::Tunnel];

rows! { used_for:
    a_pool_for_tunnels_gives_no_workload_an_address(BOTH, PoolUse::Workload, Some(TUNNELS), Err(NONE_FOR_WORKLOADS));
    a_pool_for_workloads_is_asked_for(BOTH, PoolUse::Workload, Some(WORKLOADS), Ok(WORKLOADS));
    any_pool_for_workloads_serves_a_workload(BOTH, PoolUse::Workload, None, Ok(WORKLOADS));
    without_a_pool_for_workloads_there_is_none(&[PoolUse::Tunnel], PoolUse::Workload, None, Err(NONE_FOR_WORKLOADS));
    a_pool_for_tunnels_serves_a_tunnel(BOTH, PoolUse::Tunnel, Some(TUNNELS), Ok(TUNNELS));
}

#[test]
fn without_a_use_nothing_is_assigned() {
    let request = AutoAssign {
        intended_use: None,
        ..wants("host-a", 1)
    };
    let text = "must specify the intended use when assigning an IP";
    assert_eq!(Cluster::new(&["10.0.0.0/24"]).refusal(&request), text);
}

#[test]
fn a_node_that_is_not_there_gets_nothing() {
    let text = "resource does not exist: Node(nowhere) with error: <nil>";
    assert_eq!(Cluster::new(&["10.0.0.0/24"]).refusal(&wants("nowhere", 1)), text);
    differs("On Kubernetes, the message about a node that does not exist");
}

#[test]
fn a_pool_that_is_being_deleted_serves_no_more() {
    let cluster = Cluster::new(&["20.0.0.0/24"]);
    let spec =
        json!({"metadata": {"deletionTimestamp": "2026-05-01T09:00:00Z"}, "spec": {"cidr": "10.0.0.0/24"}});
    cluster.store.put(
        "/calico/resources/v3/projectcalico.org/ippools/a-deleted",
        spec.to_string(),
    );
    assert!(net("20.0.0.0/24").contains(&cluster.addresses(&wants("host-a", 1))[0]));
}

#[test]
fn a_manual_pool_serves_only_requests_that_name_it() {
    let cluster = Cluster::new(&[]);
    cluster.pool("10.0.0.0/24", json!({"assignmentMode": "Manual"}));
    assert_eq!(
        cluster.refusal(&wants("host-a", 1)),
        "no configured Calico pools for node host-a"
    );
    let request = AutoAssign {
        pools_v4: vec![net("10.0.0.0/24")],
        ..wants("host-a", 1)
    };
    assert_eq!(cluster.addresses(&request).len(), 1);
}
