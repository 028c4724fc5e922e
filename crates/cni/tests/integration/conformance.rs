//! ADD, CHECK, DEL and GC, some repeated, for each version on each datastore; then, on the same server, many calls at
//! once.

use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::{EtcdVersion, Tool, left_out};
use serde_json::{Value, json};

use crate::concurrent::{churn, turns};
use crate::runtime::{Runtime, addresses};
use crate::world::World;

const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
const POD: &str =
    "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=x;K8S_POD_UID=u";

#[test]
fn on_etcd_3_6() {
    let world = World::etcd();
    conforms(&world, &VERSIONS);
    churn(&world, turns(24, 1_000));
}

#[test]
fn on_etcd_3_4() {
    if left_out(&[Tool::OldEtcd]) {
        return;
    }
    let world = World::etcd_of(EtcdVersion::V3_4);
    conforms(&world, &["0.3.1", "1.1.0"]);
    churn(&world, turns(8, 1_000));
}

#[test]
fn on_the_classic_group_of_kubernetes() {
    let world = World::kubernetes(Flavour::Classic);
    conforms(&world, &VERSIONS);
    shares_a_connection(&world);
    churn(&world, turns(3, 1_000));
}

#[test]
fn on_the_native_group_of_kubernetes() {
    let world = World::kubernetes(Flavour::Native);
    conforms(&world, &["0.3.1", "1.1.0"]);
    churn(&world, turns(3, 1_000));
}

/// Each call opens one connection to the API server, however many requests it sends at the same time.
fn shares_a_connection(world: &World) {
    let (runtime, relay) = world.relayed();
    let runtime = runtime.with("cniVersion", "1.1.0");
    for command in ["ADD", "CHECK", "DEL"] {
        runtime.call(command, "c1", POD).success();
        assert_eq!(relay.take(), 1, "{command}");
    }
}

/// Runs all calls in the life of a container, for each version.
fn conforms(world: &World, versions: &[&str]) {
    for version in versions {
        let runtime = world
            .runtime()
            .with("cniVersion", *version)
            .with_ipam("assign_ipv6", "true");
        life(world, &runtime, version);
    }
    collects_garbage(world);
}

fn life(world: &World, runtime: &Runtime, version: &str) {
    let result = runtime.call("ADD", "c1", POD).success();
    assert_eq!(result["cniVersion"], version, "{result}");
    assert_shape(&result, version);
    let first = addresses(&result);
    let again = addresses(&runtime.call("ADD", "c1", POD).success());
    assert!(first.len() == 2 && again.len() == 2 && first.iter().all(|address| !again.contains(address)));
    let held = world.allocated();
    assert!(
        held.len() == 4 && held.iter().all(|(_, handle)| handle == "net.c1"),
        "{held:?}"
    );

    check(runtime, version, &result, 0);
    assert_eq!(runtime.call("DEL", "c1", POD).success(), Value::Null);
    world.assert_empty();
    check(runtime, version, &result, 999);
    assert_eq!(runtime.call("DEL", "c1", POD).success(), Value::Null);
    world.assert_empty();
}

/// Runs CHECK, which old versions of the protocol do not have.
fn check(runtime: &Runtime, version: &str, previous: &Value, expected: u64) {
    let outcome = runtime.call_after("CHECK", "c1", POD, previous);
    match (version < "0.4.0", expected) {
        (true, _) => assert_eq!(outcome.error(), (1, "config version does not allow CHECK".into())),
        (false, 0) => assert_eq!(outcome.success(), Value::Null),
        (false, expected) => assert_eq!(outcome.error().0, expected),
    }
}

fn assert_shape(result: &Value, version: &str) {
    let first = |name: &str| result[name][0].clone();
    match version {
        "0.1.0" | "0.2.0" => {
            assert!(result["ip4"]["ip"].as_str().unwrap().ends_with("/28"), "{result}");
            assert_eq!(result["ip4"]["routes"][0]["dst"], result["ip4"]["ip"]);
            assert!(
                result["ip6"]["ip"].as_str().unwrap().ends_with("/124"),
                "{result}"
            );
            assert_eq!((&result["dns"], &result["ips"]), (&json!({}), &Value::Null));
        }
        "0.3.0" | "0.3.1" | "0.4.0" => {
            assert_eq!(
                (&first("ips")["version"], &result["dns"]),
                (&json!("4"), &json!({}))
            );
            assert_eq!(first("routes")["dst"], first("ips")["address"]);
            assert_eq!(result["ips"][1]["version"], "6");
        }
        _ => {
            assert_eq!(first("ips").as_object().unwrap().len(), 1);
            assert_eq!(first("routes")["dst"], first("ips")["address"]);
            assert_eq!(result["dns"], Value::Null);
        }
    }
}

fn collects_garbage(world: &World) {
    let runtime = world.runtime().with("cniVersion", "1.1.0");
    for container in ["alive", "gone"] {
        runtime.call("ADD", container, POD).success();
    }
    let elsewhere = world.runtime().with("nodename", "b");
    elsewhere.call("ADD", "elsewhere", POD).success();
    assert_eq!(runtime.call("STATUS", "", "").success(), Value::Null);
    let valid = json!([{"containerID": "alive", "ifname": "eth0"}]);
    let gc = world
        .runtime()
        .with("cniVersion", "1.1.0")
        .with("cni.dev/valid-attachments", valid);
    assert_eq!(gc.call("GC", "", "").success(), Value::Null);
    let handles: Vec<String> = world.allocated().into_iter().map(|(_, handle)| handle).collect();
    assert!(handles.len() == 2 && handles.contains(&"net.alive".into()));
    assert!(handles.contains(&"net.elsewhere".into()));
    runtime.call("DEL", "alive", POD).success();
    elsewhere.call("DEL", "elsewhere", POD).success();
    world.assert_empty();
}
