//! Users and recorded owners of virtual machine addresses.

use calipam_model::pod::PodParts;
use calipam_model::service::Machine;
use calipam_model::snapshot::{Revision, Versioned};
use serde_json::{Value, json};

use super::in_use_tests::{NOTHING, etcd, kubernetes, verdict};
use super::kubernetes_tests::running;
use crate::test_cluster::pod;

fn machine(name: &str, is_owned: bool) -> Versioned<Machine> {
    let value = Machine {
        namespace: "vms".into(),
        name: name.into(),
        is_owned,
        ..Machine::default()
    };
    Versioned {
        value,
        revision: Revision::Etcd(1),
    }
}

/// The record of a machine's pod, in the namespace default.
fn machine_record(node: &str, pod_name: &str, machine: &str) -> Value {
    let mut record = pod(node, pod_name);
    record["handle_id"] = format!("k8s-pod-network.vmi.default.{machine}").into();
    record["secondary"]["vmi-name"] = machine.into();
    record
}

/// A machine's record without attributes.
fn bare(machine: &str) -> Value {
    json!({"handle_id": format!("k8s-pod-network.vmi.default.{machine}")})
}

/// The findings in a cluster in etcd in which these pods use these addresses.
fn on_etcd(records: &[Value], users: &[(&str, &str)]) -> Vec<String> {
    let mut cluster = etcd(records.to_vec());
    for (pod, address) in users {
        cluster.endpoint("node-1", pod, &[address]);
    }
    verdict(&cluster)
}

#[test]
fn a_machine_on_a_network_with_a_dot_in_its_name() {
    let record = json!({"handle_id": "prod.net.vmi.vms.vm-1"});
    assert_eq!(
        verdict(&etcd([record.clone()])),
        NOTHING,
        "machines were not read"
    );
    let mut stopped = kubernetes([record.clone()], &[]);
    assert_eq!(verdict(&stopped), ["error leaked-address 10.244.1.4"]);
    stopped.0.machines.push(machine("vm-1", false));
    assert_eq!(verdict(&stopped), NOTHING);
    let launcher = PodParts {
        namespace: "vms",
        machine: Some("vm-1"),
        ..running("virt-launcher-vm-1-abcde", "10.244.1.4")
    };
    let mut runs = kubernetes([record], &[launcher]);
    runs.0.machines.push(machine("vm-1", false));
    assert_eq!(verdict(&runs), NOTHING);
}

#[test]
fn a_machine_whose_name_is_a_hash_in_the_handle() {
    let record = json!({"handle_id": "k8s-pod-network.vmi._0aZ-9bY_x"});
    let launcher = PodParts {
        namespace: "vms",
        machine: Some("long"),
        ..running("virt-launcher-long-abcde", "10.244.1.4")
    };
    assert_eq!(verdict(&kubernetes([record.clone()], &[launcher])), NOTHING);
    assert_eq!(
        verdict(&kubernetes([record.clone()], &[])),
        NOTHING,
        "any machine's, be it stopped"
    );
    let other = kubernetes([record], &[running("web-1", "10.244.1.4")]);
    assert_eq!(verdict(&other), ["error owner-mismatch 10.244.1.4"]);
}

#[test]
fn networks_whose_names_hold_vmi() {
    let mut stopped = kubernetes([json!({"handle_id": "a.vmi.b.vmi.vms.vm-1"})], &[]);
    assert_eq!(verdict(&stopped), ["error leaked-address 10.244.1.4"]);
    stopped.0.machines.push(machine("vm-1", false));
    assert_eq!(verdict(&stopped), NOTHING);
    // The handle has neither a namespace nor a hash, so it belongs to a container on the network `prod.vmi`.
    let id = "0123456789abcdef0123456789abcdef";
    let attributes = json!({"node": "node-1", "timestamp": "2026-05-01 10:00:00 +0000 UTC"});
    let record = json!({"handle_id": format!("prod.vmi.{id}"), "secondary": attributes});
    let container = PodParts {
        container_id: id,
        ..running("bare", "10.244.1.4")
    };
    assert_eq!(verdict(&kubernetes([record], &[container])), NOTHING);
}

#[test]
fn an_instance_whose_machine_is_deleted_keeps_no_address() {
    let mut cluster = kubernetes([json!({"handle_id": "k8s-pod-network.vmi.vms.vm-1"})], &[]);
    cluster.0.machines.push(machine("vm-1", true));
    assert_eq!(verdict(&cluster), ["error leaked-address 10.244.1.4"]);
    cluster.0.machines.push(machine("vm-1", false));
    assert_eq!(verdict(&cluster), NOTHING);
}

#[test]
fn a_pod_that_a_record_names_has_its_address_whatever_machine_it_names() {
    let record = machine_record("node-1", "odd", "vm-1");
    for (name, expected) in [
        ("odd", NOTHING.as_slice()),
        ("other", &["error owner-mismatch 10.244.1.4"]),
    ] {
        let pod = PodParts {
            machine: Some("vm-2"),
            ..running(name, "10.244.1.4")
        };
        let mut cluster = kubernetes([record.clone()], &[pod]);
        cluster
            .0
            .machines
            .extend([machine("vm-1", false), machine("vm-2", false)]);
        assert_eq!(verdict(&cluster), expected, "{name}");
    }
}

#[test]
fn a_machine_stays_in_the_block_of_its_first_node() {
    let record = machine_record("node-2", "virt-launcher-vm-1-abcde", "vm-1");
    let mut cluster = etcd([record, pod("node-2", "web-1")]);
    cluster.resource("nodes/node-2", json!({}));
    cluster.endpoint("node-2", "virt-launcher-vm-1-abcde", &["10.244.1.4/32"]);
    cluster.endpoint("node-2", "web-1", &["10.244.1.5/32"]);
    cluster.config(json!({"strict_affinity": true, "auto_allocate_blocks": true}));
    assert_eq!(
        verdict(&cluster),
        ["warning borrowed-under-strict-affinity 10.244.1.5"]
    );
}

#[test]
fn an_instance_without_its_name_is_not_judged() {
    let mut record = machine_record("node-1", "virt-launcher-db-abcde", "db");
    let verdict_of = |record: &Value| verdict(&kubernetes([record.clone()], &[]));
    assert_eq!(verdict_of(&record), ["error leaked-address 10.244.1.4"]);
    record["secondary"]["vmi-name"] = "".into();
    assert_eq!(verdict_of(&record), NOTHING);
    record["secondary"]["vmi-name"] = "db".into();
    record["secondary"]["namespace"] = "".into();
    assert_eq!(verdict_of(&record), NOTHING);
}

/// Two virtual machines whose names begin with the same letters.
#[test]
fn pods_of_machines_whose_names_begin_alike() {
    let own = ["virt-launcher-db-abcde", "virt-launcher-db-fghij"];
    let other = "virt-launcher-db-0-abcde";
    for record in [machine_record("node-1", own[0], "db"), bare("db")] {
        let in_etcd = |pods: &[&str]| {
            let users: Vec<_> = pods.iter().map(|name| (*name, "10.244.1.4")).collect();
            on_etcd(std::slice::from_ref(&record), &users)
        };
        let on_kubernetes = |pods: &[&str]| {
            let parts = pods.iter().map(|name| PodParts {
                machine: Some(if *name == other { "db-0" } else { "db" }),
                ..running(name, "10.244.1.4")
            });
            let mut cluster = kubernetes([record.clone()], &parts.collect::<Vec<_>>());
            cluster
                .0
                .machines
                .extend([machine("db", false), machine("db-0", false)]);
            verdict(&cluster)
        };
        for verdict in [&in_etcd as &dyn Fn(&[&str]) -> Vec<String>, &on_kubernetes] {
            assert_eq!(verdict(&own), NOTHING, "source and target of a live migration");
            assert_eq!(
                verdict(&[own[0], other]),
                ["critical duplicate-address 10.244.1.4"]
            );
            assert_eq!(verdict(&[other]), ["error owner-mismatch 10.244.1.4"]);
        }
    }
}

#[test]
fn names_of_pods_that_are_cut() {
    let long = "v".repeat(50);
    let cut = |machine: &str, pod: &str| on_etcd(&[bare(machine)], &[(pod, "10.244.1.4")]);
    let launcher = format!("virt-launcher-{}abcde", &long[..44]);
    assert_eq!(cut(&long, &launcher), NOTHING);
    assert_eq!(
        cut("db.prod", "virt-launcher-db-abcde"),
        NOTHING,
        "KubeVirt keeps the name up to the dot"
    );
    let others = ["error owner-mismatch 10.244.1.4"];
    assert_eq!(cut("v", &launcher), others);
    for odd in ["virt-launcher-db-abcd", "virt-launcher-db-ab-cd"] {
        assert_eq!(cut("db", odd), others, "{odd}: five random characters end it");
    }
}

#[test]
fn two_pods_of_one_machine_share_no_address_of_a_container() {
    let names = ["virt-launcher-db-abcde", "virt-launcher-db-fghij"];
    let parts = names.map(|name| PodParts {
        machine: Some("db"),
        ..running(name, "10.244.1.4")
    });
    let clash = ["critical duplicate-address 10.244.1.4"];
    assert_eq!(verdict(&kubernetes([pod("node-1", names[0])], &parts)), clash);
    assert_eq!(
        verdict(&kubernetes([pod("node-1", names[0])], &parts[..1])),
        NOTHING
    );
    assert_eq!(
        on_etcd(
            &[pod("node-1", names[0])],
            &names.map(|name| (name, "10.244.1.4"))
        ),
        clash
    );
}

#[test]
fn machines_that_swapped_their_addresses() {
    let records = [bare("db"), bare("db-0")];
    let pods = [
        ("virt-launcher-db-abcde", "10.244.1.5"),
        ("virt-launcher-db-0-abcde", "10.244.1.4"),
    ];
    let both = [
        "error owner-mismatch 10.244.1.4",
        "error owner-mismatch 10.244.1.5",
    ];
    assert_eq!(on_etcd(&records, &pods), both);
    let names = ["db", "db-0"];
    let parts = [0, 1].map(|i| PodParts {
        machine: Some(names[i]),
        ..running(pods[i].0, pods[i].1)
    });
    assert_eq!(verdict(&kubernetes(records, &parts)), both);
}
