//! A small cluster of Calico's objects on an API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use calipam_datastore::Datastore;
use calipam_datastore::settings::{Overrides, Settings, Timeouts};
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::key::{DEFAULT, Key};
use calipam_model::plugin::INSTALLED;
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::KubeApiserver;
use calipam_testkit::{World, datastore, values};
use serde_json::{Value, json};

use crate::support::resolve;

/// The timeout in tests whose servers do not answer.
pub(super) const SHORT: Duration = Duration::from_secs(2);

pub(super) fn settings(kubeconfig: &Path) -> Settings {
    datastore::settings(&datastore::kubernetes(kubeconfig))
}

/// Settings for the URL of an API server, with short timeouts.
pub(super) fn settings_for_url(url: &str) -> Settings {
    let overrides = Overrides {
        datastore: Some("kubernetes".into()),
        ..Overrides::default()
    };
    let mut settings = resolve(&overrides, &[("K8S_API_ENDPOINT", url)]);
    settings.kubernetes.timeouts = Timeouts {
        connect: SHORT,
        request: SHORT,
    };
    settings
}

/// Opens the datastore behind an API server as an administrator.
pub(super) async fn open(server: &KubeApiserver) -> Datastore {
    datastore::open(datastore::kubernetes(&server.kubeconfig())).await
}

/// Writes a copy of the server's kubeconfig in which `token` replaces its token.
pub(super) fn kubeconfig_with_token(server: &KubeApiserver, folder: &Path, token: &str) -> PathBuf {
    let text = std::fs::read_to_string(server.kubeconfig())
        .unwrap()
        .replace(server.token(), token);
    let path = folder.join("kubeconfig.yaml");
    std::fs::write(&path, text).unwrap();
    path
}

pub(super) fn resource(flavour: Flavour, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": flavour.api_version(), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A node with a label and the given annotations.
pub(super) fn node(name: &str, annotations: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata":
        {"name": name, "labels": {"zone": "a"}, "annotations": annotations}})
}

/// The block 10.0.0.0/30 of node-1, in which one address belongs to a tunnel and one to a pod.
pub(super) fn block() -> Value {
    let tunnel = json!({"handle_id": "ipip-tunnel-addr-node-1",
        "secondary": {"node": "node-1", "type": "ipipTunnelAddress"}});
    let pod = json!({"handle_id": "k8s-pod-network.ABC", "secondary": {"namespace": "default", "node": "node-1",
        "pod": "web-0", "timestamp": "2026-05-01 10:12:00.123456789 +0000 UTC"}});
    let mut block = values::block("10.0.0.0/30", "host:node-1", [tunnel, pod]);
    block["affinity_claim_time"] = "2026-05-01T10:11:12Z".into();
    block["unallocated"] = json!([3, 2]);
    block["sequenceNumber"] = 1777630272123456792u64.into();
    block["sequenceNumberForAllocation"] = json!({"0": 1777630272123456789u64, "1": 1777630272123456790u64});
    block
}

/// The key of an affinity of node-1.
pub(super) fn affinity_key(cidr: &str) -> AffinityKey {
    AffinityKey {
        kind: AffinityType::Host,
        node: "node-1".into(),
        cidr: cidr.parse().unwrap(),
    }
}

/// An API server with a small, healthy cluster.
pub(super) fn seeded(flavour: Flavour) -> World {
    let world = World::kubernetes(flavour);
    seed(&world);
    world
}

/// Creates a small, healthy cluster.
pub(super) fn seed(world: &World) {
    let cidr = "10.0.0.0/30";
    let create = |key: Key, value: Value| world.create(&key, &value);
    create(Key::Block(cidr.parse().unwrap()), block());
    create(Key::Affinity(affinity_key(cidr)), json!({"state": "confirmed"}));
    for id in ["ipip-tunnel-addr-node-1", "k8s-pod-network.ABC"] {
        create(Key::Handle(id.into()), json!({"block": {cidr: 1}}));
    }
    let config = json!({"strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": 4});
    create(Key::IpamConfig, config);
    let resource =
        |key: fn(String) -> Key, name: &str, spec: Value| create(key(name.into()), json!({"spec": spec}));
    resource(
        Key::Pool,
        "default-ipv4-ippool",
        json!({"cidr": "10.0.0.0/16", "blockSize": 30}),
    );
    resource(
        Key::Reservation,
        "infra",
        json!({"reservedCIDRs": ["10.0.0.3/32"]}),
    );
    let cluster = json!({"clusterGUID": "0f0e1d2c", "calicoVersion": "v3.32.1", "datastoreReady": true});
    resource(Key::ClusterInformation, DEFAULT, cluster);
    let controllers =
        json!({"node": {"leakGracePeriod": "5m0s"}, "loadBalancer": {"assignIPs": "AllServices"}});
    resource(
        Key::KubeControllersConfiguration,
        DEFAULT,
        json!({"controllers": controllers}),
    );
    let annotations = json!({"projectcalico.org/IPv4IPIPTunnelAddr": "10.0.0.0", INSTALLED: "calipam 0.1.0"});
    create(Key::Node("node-1".into()), node("node-1", annotations));
    let mut pod = pod("web-0", "node-1");
    pod["metadata"]["annotations"] = json!({"cni.projectcalico.org/podIP": "10.0.0.1/32"});
    create(
        Key::Pod {
            namespace: "default".into(),
            name: "web-0".into(),
        },
        pod,
    );
}

/// A pod without addresses.
pub(super) fn pod(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
}
