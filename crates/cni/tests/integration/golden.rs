//! A sample of the states in which Calico's own plugins were called (`crates/check/tests/golden`), on real servers: this
//! plugin gives the pod the same addresses, or refuses it as well.
//!
//! Calico's main plugin called its IPAM plugin there. States in which it changes the call, or refuses the pod itself,
//! are left out, and so are those that docs/cni.md names as different.

use std::net::IpAddr;

use calipam_check::views::{Asking, RequestState, explain};
use calipam_check::{Context, Options};
use calipam_model::CniConfiguration;
use calipam_model::affinity::{Affinity, AffinityKey};
use calipam_model::snapshot::{DatastoreKind, Snapshot, Versioned};
use calipam_testkit::golden::{Called, Golden, golden_states};
use calipam_testkit::kube::{Flavour, create_in_etcd, install_kubevirt};
use calipam_testkit::servers::KubeApiserver;
use calipam_testkit::{World as Server, datastore};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::runtime::{Outcome, Runtime, addresses};
use crate::world::block_on;

/// The kinds of the objects, with the places of their objects in the etcd of an API server.
const PLACES: [(&str, &str); 13] = [
    ("Pod", "/registry/pods/"),
    ("Node", "/registry/minions/"),
    ("Namespace", "/registry/namespaces/"),
    ("IPAMBlock", "/registry/crd.projectcalico.org/ipamblocks/"),
    ("IPAMHandle", "/registry/crd.projectcalico.org/ipamhandles/"),
    (
        "BlockAffinity",
        "/registry/crd.projectcalico.org/blockaffinities/",
    ),
    ("IPAMConfig", "/registry/crd.projectcalico.org/ipamconfigs/"),
    ("IPPool", "/registry/crd.projectcalico.org/ippools/"),
    ("IPReservation", "/registry/crd.projectcalico.org/ipreservations/"),
    (
        "ClusterInformation",
        "/registry/crd.projectcalico.org/clusterinformations/",
    ),
    ("VirtualMachine", "/registry/kubevirt.io/virtualmachines/"),
    (
        "VirtualMachineInstance",
        "/registry/kubevirt.io/virtualmachineinstances/",
    ),
    (
        "VirtualMachineInstanceMigration",
        "/registry/kubevirt.io/virtualmachineinstancemigrations/",
    ),
];

/// Fields with times that decide which address is given. They are as old now as they were when Calico was called.
const TIMES: [&str; 2] = ["releasedAt", "affinityClaimTime"];

/// The node of the call.
fn node_of(golden: &Golden) -> &str {
    golden.conf["nodename"].as_str().unwrap_or("n1")
}

/// True if Calico's main plugin passes the call on as it is.
fn is_passed_on(golden: &Golden) -> bool {
    let is_ready = |value: &Value| value["spec"]["datastoreReady"] == true;
    let in_etcd = golden.entries.iter().any(|(key, value)| {
        let value: Value = serde_json::from_str(value.as_str().unwrap_or_default()).unwrap_or_default();
        key.contains("/clusterinformations/") && is_ready(&value)
    });
    let on_server = golden
        .objects
        .iter()
        .any(|object| object["kind"] == "ClusterInformation" && is_ready(object));
    (in_etcd || on_server) && !has_annotations(golden)
}

/// True if the pod or its namespace has annotations that the main plugin translates.
fn has_annotations(golden: &Golden) -> bool {
    let (namespace, name) = golden.pod_name();
    golden.objects.iter().any(|object| {
        let metadata = &object["metadata"];
        let is_pod =
            object["kind"] == "Pod" && metadata["name"] == name && metadata["namespace"] == namespace;
        let is_namespace = object["kind"] == "Namespace" && metadata["name"] == namespace;
        let annotations = metadata["annotations"].as_object();
        let mut names = annotations.into_iter().flatten().map(|(name, _)| name);
        (is_pod || is_namespace) && names.any(|name| name.starts_with("cni.projectcalico.org/"))
    })
}

/// The attempt of Calico that assigned addresses, or else the first one.
fn last_attempt(golden: &Golden) -> &Called {
    match &golden.calico.again {
        Some(again) if again.error.is_none() => again,
        _ => &golden.calico,
    }
}

/// Writes the state to empty servers.
fn write(golden: &Golden, server: &Server) {
    let age = Timestamp::now().duration_since(golden.at);
    match server {
        Server::Kubernetes(server, _) => write_objects(server, golden.objects.clone(), age),
        Server::EtcdWithKubernetes(etcd, server) => {
            write_objects(server, golden.objects.clone(), age);
            let mut entries = Vec::new();
            for (key, value) in &golden.entries {
                let text = value.as_str().unwrap();
                let moved = serde_json::from_str(text).map(|mut value| {
                    move_times(&mut value, age);
                    value.to_string()
                });
                entries.push((key.clone(), moved.unwrap_or(text.to_owned()).into_bytes()));
            }
            etcd.put_all(&entries).unwrap();
        }
        Server::Etcd(_) => unreachable!("each state has an API server"),
    }
}

/// Calls the plugin as Calico's main plugin did.
fn add(golden: &Golden, server: &Server) -> Outcome {
    let mut runtime = match server {
        Server::EtcdWithKubernetes(etcd, _) => Runtime::on_etcd(&etcd.endpoint()),
        _ => Runtime::new(&serde_json::json!({"datastore_type": "kubernetes"})),
    };
    for (name, value) in golden.conf.as_object().unwrap() {
        runtime = runtime.with(name, value.clone());
    }
    let kubernetes = serde_json::json!({"kubeconfig": server.server().kubeconfig()});
    let runtime = runtime
        .with("name", "k8s-pod-network")
        .with("cniVersion", "1.0.0")
        .with("nodename", node_of(golden))
        .with("kubernetes", kubernetes);
    let (namespace, name) = golden.pod_name();
    let args = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID=c"
    );
    runtime.call("ADD", "c0ffee", &args)
}

/// The difference between Calico's plugin and this one; `None` if there is none.
fn difference(golden: &Golden, outcome: &Outcome) -> Option<String> {
    let calico = last_attempt(golden);
    if outcome.code != Some(0) {
        let (_, message) = outcome.error();
        return match &calico.error {
            None => Some(format!("{message}; Calico assigned {:?}", calico.ips)),
            Some(_) => None,
        };
    }
    let mut given = addresses(&outcome.json());
    let mut expected: Vec<String> = calico.ips.iter().map(IpAddr::to_string).collect();
    given.sort();
    expected.sort();
    (given != expected).then(|| format!("{given:?}; Calico: {expected:?}, {:?}", calico.error))
}

/// The difference between what `explain` foretells on a node with this plugin and what the plugin did.
fn difference_to_prediction(golden: &Golden, snapshot: &Snapshot, outcome: &Outcome) -> Option<String> {
    let options = Options {
        cni_configuration: Some(CniConfiguration::parse(golden.conf.to_string().as_bytes()).unwrap()),
        ..Options::default()
    };
    let (namespace, name) = golden.pod_name();
    let context = Context::new(snapshot, &options);
    let explained = explain(&context, snapshot, Asking::Pod(namespace, name)).expect("the pod exists");
    // The pod has an address, or its answer depends on data that cannot be decoded.
    if explained.state != RequestState::Asks {
        return None;
    }
    // The order of addresses depends on the clock, or the plugin for Windows is meant.
    if has_single_addresses(snapshot) || is_windows(snapshot, node_of(golden)) {
        return None;
    }

    let said = explained.sentence();
    if explained.is_refused() {
        return (outcome.code == Some(0)).then(|| format!("{said}; got {:?}", addresses(&outcome.json())));
    }
    if outcome.code != Some(0) {
        return Some(format!("{said}; failed: {}", outcome.error().1));
    }
    let given = addresses(&outcome.json());
    let answers = explained.families.iter().map(|family| &family.answer);
    let mut foretold = answers
        .filter_map(|answer| answer.outcome.as_ref().ok())
        .map(|given| given.address.to_string());
    (!foretold.all(|address| given.contains(&address))).then(|| format!("{said}; got {given:?}"))
}

/// True if docs/cni.md says that calipam's plugin may give another answer than Calico's.
fn is_declared(snapshot: &Snapshot, node: &str) -> bool {
    let pools = || snapshot.pools.iter().map(|stored| &stored.value);
    let blocks = || snapshot.blocks.iter().map(|stored| &stored.value);

    let is_impossible = pools().any(|pool| pool.has_impossible_blocks());
    let is_contradictory = blocks().any(|block| block.content.usable().is_none());
    let is_half_deleted = blocks().any(|block| block.content.is_deleted());
    let is_other_size = blocks().any(|block| {
        pools()
            .any(|pool| pool.cidr.contains(&block.key.network()) && pool.block_size != block.key.prefix_len())
    });
    let is_without_affinity = blocks().any(|block| {
        let Some(owner) = block.content.owner() else {
            return false;
        };
        let Some(key) = AffinityKey::of_owner(owner, block.key) else {
            return false;
        };
        let is_its_affinity = |stored: &Versioned<Affinity>| {
            stored.value.key == key && !stored.value.deleted && stored.wrong_labels().is_empty()
        };
        key.node == node && !snapshot.affinities.iter().any(is_its_affinity)
    });
    has_single_addresses(snapshot)
        || is_windows(snapshot, node)
        || is_impossible
        || is_contradictory
        || is_half_deleted
        || is_other_size
        || is_without_affinity
        || !snapshot.defects.is_empty()
}

/// True if a pool has blocks of single addresses.
fn has_single_addresses(snapshot: &Snapshot) -> bool {
    let mut pools = snapshot.pools.iter().map(|stored| &stored.value);
    pools.any(|pool| pool.block_size == pool.cidr.max_prefix_len())
}

fn is_windows(snapshot: &Snapshot, node: &str) -> bool {
    let mut nodes = snapshot.nodes.iter().map(|stored| &stored.value);
    nodes.any(|found| found.name == node && found.is_windows())
}

/// Writes objects to the etcd of an API server, which would refuse some of them.
fn write_objects(server: &KubeApiserver, mut objects: Vec<Value>, age: SignedDuration) {
    for object in &mut objects {
        move_times(object, age);
    }
    for (kind, place) in PLACES {
        let of_kind: Vec<Value> = objects
            .iter()
            .filter(|object| object["kind"] == kind)
            .cloned()
            .collect();
        create_in_etcd(server, place, &of_kind).unwrap();
    }
}

/// Makes times later by `age`.
fn move_times(value: &mut Value, age: SignedDuration) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let time = value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
                match time {
                    Some(time) if TIMES.contains(&name.as_str()) => *value = (time + age).to_string().into(),
                    _ => move_times(value, age),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| move_times(value, age)),
        _ => {}
    }
}

/// Empties the servers for the next state.
fn clear(server: &Server) {
    let etcd = server.server().etcd();
    for (kind, place) in PLACES {
        // The API server needs its own namespaces.
        if kind == "Namespace" {
            etcd.delete_below(&format!("{place}ns")).unwrap();
        } else {
            etcd.delete_below(place).unwrap();
        }
    }
    if let Server::EtcdWithKubernetes(etcd, _) = server {
        etcd.delete_below("/calico/").unwrap();
    }
}

/// Reads the golden states of a datastore that the main plugin passes on.
fn states(datastore: DatastoreKind) -> Vec<Golden> {
    let mut states = golden_states().unwrap();
    states.retain(|golden| {
        let is_of_datastore = golden.is_on_etcd() == (datastore == DatastoreKind::Etcd);
        is_of_datastore && is_passed_on(golden)
    });
    states
}

/// Calls the plugin in every `step`-th of the states, and compares it with Calico's.
fn compare(server: &Server, datastore: DatastoreKind, step: usize) {
    let mut given = 0;
    let mut refused = 0;
    let mut differences = Vec::new();
    for golden in states(datastore).iter().step_by(step) {
        clear(server);
        write(golden, server);
        let mut snapshot = block_on(async { datastore::observe(&server.open().await).await });
        for node in &mut snapshot.nodes {
            node.value.plugin = Some("calipam 0.1.0".to_owned());
        }
        let outcome = add(golden, server);
        if let Some(difference) = difference_to_prediction(golden, &snapshot, &outcome) {
            differences.push(format!("{}: {difference}", golden.seed));
        }

        if is_declared(&snapshot, node_of(golden)) {
            continue;
        }
        if let Some(difference) = difference(golden, &outcome) {
            differences.push(format!("{}: {difference}", golden.seed));
        } else if outcome.code == Some(0) {
            given += 1;
        } else {
            refused += 1;
        }
    }
    clear(server);
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert!(given > 5 && refused > 10, "{given} {refused}");
}

#[test]
fn the_plugin_does_what_calico_did_on_etcd() {
    let server = Server::etcd_with_kubernetes();
    install_kubevirt(server.server()).unwrap();
    compare(&server, DatastoreKind::Etcd, 5);
}

#[test]
fn the_plugin_does_what_calico_did_on_kubernetes() {
    compare(
        &Server::kubernetes(Flavour::Classic),
        DatastoreKind::Kubernetes,
        12,
    );
}
