//! Simulations that begin with an existing cluster.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::config::IpamConfig;
use calipam_model::node::Node;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};
use calipam_simulate::answer::{Evicted, Eviction, advise, block_sizes, evict, run};
use calipam_simulate::{Micros, Scenario, Start, StartPod};
use serde_json::json;

fn pool(name: &str, cidr: &str, block_size: u8) -> Pool {
    let json = format!(r#"{{"spec":{{"cidr":"{cidr}","blockSize":{block_size}}}}}"#);
    Pool::parse(name, json.as_bytes()).unwrap().value
}

/// Four nodes, two of them in rack a.
fn cluster(pools: Vec<Pool>, config: IpamConfig) -> Scenario {
    let node = |number: u32| {
        let rack = if number < 2 { "a" } else { "b" };
        let labels = [("rack".to_owned(), rack.to_owned())];
        Node {
            name: format!("worker-{number}"),
            labels: labels.into(),
            ..Node::default()
        }
    };
    let start = Start {
        nodes: (0..4).map(node).collect(),
        pools,
        config: Some(config),
        ..Start::default()
    };
    Scenario {
        pods_per_node: 4,
        start: Some(Arc::new(start)),
        ..Scenario::default()
    }
}

#[test]
fn an_option_changes_one_setting_of_the_cluster() {
    let existing = IpamConfig {
        strict_affinity: true,
        max_blocks_per_host: 3,
        ..IpamConfig::default()
    };
    let scenario = cluster(vec![pool("p", "10.0.0.0/24", 28)], existing);
    assert_eq!(scenario.config(), Some(existing));

    let cooling = Scenario {
        cooldown: Micros::from_secs(30),
        ..scenario.clone()
    };
    assert_eq!(
        cooling.config(),
        Some(IpamConfig {
            cooldown_seconds: 30,
            ..existing
        })
    );
    // The block limit is allowed, since the cluster has strict affinity.
    let limited = Scenario {
        max_blocks_per_host: 1,
        ..scenario
    };
    assert_eq!(
        limited.config(),
        Some(IpamConfig {
            max_blocks_per_host: 1,
            ..existing
        })
    );
    assert_eq!(limited.check(), Ok(()));
}

#[test]
fn other_block_sizes_keep_the_rest_of_a_cluster() {
    let rack_a = Pool {
        node_selector: "rack == 'a'".to_owned(),
        ..pool("a", "10.0.0.0/24", 26)
    };
    let rack_b = Pool {
        node_selector: "rack == 'b'".to_owned(),
        ..pool("b", "10.0.1.0/24", 26)
    };
    let scenario = cluster(
        vec![rack_a, rack_b, pool("tiny", "10.0.2.0/29", 29)],
        IpamConfig::default(),
    );

    let fresh = scenario.afresh().with_block_size(27);
    let sizes: Vec<(String, u8, String)> = fresh
        .pools()
        .into_iter()
        .map(|pool| (pool.name, pool.block_size, pool.node_selector))
        .collect();
    let expected = [
        ("a", 27, "rack == 'a'"),
        ("b", 27, "rack == 'b'"),
        ("tiny", 29, "all()"),
    ];
    assert_eq!(
        sizes,
        expected.map(|(name, size, nodes)| (name.to_owned(), size, nodes.to_owned()))
    );

    let rows = block_sizes(&scenario, &[26, 28], 1).unwrap().rows;
    assert_eq!(
        rows.iter().map(|row| row.run.waiting_pods).collect::<Vec<_>>(),
        [0, 0]
    );
}

#[test]
fn a_tiny_pool_or_one_for_services_does_not_choose_the_block_size() {
    let services = Pool {
        allowed_uses: vec![PoolUse::LoadBalancer],
        ..pool("services", "10.9.0.0/28", 28)
    };
    let pools = vec![
        pool("p", "10.0.0.0/20", 26),
        pool("tiny", "10.1.0.0/28", 28),
        services,
    ];
    let scenario = Scenario {
        pods_per_node: 60,
        ..cluster(pools, IpamConfig::default())
    };
    let advice = advise(&scenario, &[24, 25, 26, 27, 28], 1).unwrap();
    assert_eq!(advice.candidates.len(), 5);
    assert_eq!(advice.block_size, Some(26), "{advice:?}");
}

#[test]
fn a_pool_for_services_alone_gives_no_pod_an_address() {
    let services = Pool {
        allowed_uses: vec![PoolUse::LoadBalancer],
        ..pool("services", "fd00::/112", 122)
    };
    let scenario = cluster(
        vec![pool("p", "10.0.0.0/24", 28), services.clone()],
        IpamConfig::default(),
    );
    let shown = run(&scenario).unwrap();
    assert_eq!((shown.pods, shown.waiting_pods), (16, 0));
    let alone = cluster(vec![services], IpamConfig::default());
    assert!(alone.check().unwrap_err().to_string().contains("no pool"));
}

/// Evicts two pods on each of four nodes from a disabled pool, three at a time.
fn evicted_to(new: Pool) -> Evicted {
    let old = Pool {
        disabled: true,
        ..pool("old", "10.0.0.0/24", 26)
    };
    let mut scenario = Scenario {
        pods_per_node: 0,
        ..cluster(vec![old, new], IpamConfig::default())
    };
    let addresses: BTreeSet<IpAddr> = (0..8).map(|number| [10, 0, 0, number].into()).collect();
    let pods = addresses.iter().zip(0..).map(|(address, number)| StartPod {
        handle: format!("h{number}"),
        node: format!("worker-{}", number % 4),
        addresses: vec![*address],
    });
    Arc::make_mut(scenario.start.as_mut().unwrap()).pods = pods.collect();
    let eviction = Eviction {
        addresses,
        batch: 3,
        pause: Micros::from_secs(5),
        patience: Micros::from_mins(3),
        ready_after: vec![Micros::from_secs(20)],
    };
    evict(&scenario, &eviction).unwrap()
}

#[test]
fn an_eviction_takes_as_long_as_its_batches_and_the_pauses_between_them() {
    let Evicted { pods, moved, took } = evicted_to(pool("new", "10.0.1.0/24", 28));
    assert_eq!((pods, moved), (8, 8));
    // The eviction takes three batches of 20 seconds, two pauses, and the time until the pods have addresses.
    assert!(
        (Micros::from_secs(70)..Micros::from_secs(75)).contains(&took),
        "{took}"
    );

    // The new pool has only four addresses, so the second batch waits until the eviction is stopped.
    let Evicted { pods, moved, took } = evicted_to(pool("new", "10.0.1.0/30", 30));
    assert_eq!((pods, moved), (8, 4));
    let given_up = Micros::from_secs(20 + 5 + 180);
    assert!(
        (given_up..given_up + Micros::from_secs(5)).contains(&took),
        "{took}"
    );
}

/// A cluster with two records of pods on one node. Only the first pod exists.
#[test]
fn a_leaked_address_is_no_pod() {
    let record = |pod: &str| {
        json!({"handle_id": format!("k8s-pod-network.{pod}"), "secondary": {"namespace": "ns", "node": "worker-0",
            "pod": pod, "timestamp": "2026-05-01 10:00:00 +0000 UTC"}})
    };
    let block = json!({"cidr": "10.0.0.0/30", "affinity": "host:worker-0", "allocations": [0, 1, null, null],
        "unallocated": [2, 3], "attributes": [record("a"), record("b")], "deleted": false});
    let pool = json!({"metadata": {"name": "p"}, "spec": {"cidr": "10.0.0.0/24", "blockSize": 30}});
    let node = json!({"metadata": {"name": "worker-0"}, "spec": {}});
    let endpoint = json!({"metadata": {"name": "worker--0-k8s-a-eth0", "namespace": "ns"},
        "spec": {"orchestrator": "k8s", "node": "worker-0", "pod": "a", "endpoint": "eth0",
            "ipNetworks": ["10.0.0.0/32"]}});
    let mut snapshot = Snapshot {
        taken_at: "2026-05-02T10:00:00Z".parse().unwrap(),
        ..Snapshot::default()
    };
    let resources = "/calico/resources/v3/projectcalico.org";
    for (key, value) in [
        (
            "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30".to_owned(),
            block,
        ),
        (format!("{resources}/ippools/p"), pool),
        (format!("{resources}/nodes/worker-0"), node),
        (
            format!("{resources}/workloadendpoints/ns/worker--0-k8s-a-eth0"),
            endpoint,
        ),
    ] {
        snapshot.add_entry(key.as_bytes(), value.to_string().as_bytes(), 1);
    }
    snapshot.mark_read(ETCD_SOURCES);

    let start = Start::from_snapshot(&snapshot);
    let pods: Vec<&str> = start.pods.iter().map(|pod| &*pod.handle).collect();
    assert_eq!(pods, ["k8s-pod-network.a"]);
    assert_eq!(
        start.blocks[0].allocations().count(),
        2,
        "the address stays taken"
    );
}
