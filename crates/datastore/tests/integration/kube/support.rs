//! A small cluster of Calico's objects on an API server.

use std::path::Path;
use std::time::Duration;

use calipam_datastore::Datastore;
use calipam_datastore::settings::{Overrides, Settings, Timeouts};
use calipam_model::plugin::INSTALLED;
use calipam_testkit::kube::{Flavour, Kinds, Lease, create, lease};
use calipam_testkit::servers::KubeApiserver;
use serde_json::{Value, json};

use crate::support::resolve;

/// The timeout in tests whose servers do not answer.
pub(super) const SHORT: Duration = Duration::from_secs(2);

/// An API server with Calico's kinds.
pub(super) fn server(flavour: Flavour) -> Lease {
    lease(Kinds::Calico(flavour)).unwrap()
}

pub(super) fn settings(kubeconfig: &Path) -> Settings {
    let overrides = Overrides {
        datastore: Some("kubernetes".into()),
        kubeconfig: Some(kubeconfig.display().to_string()),
        ..Overrides::default()
    };
    resolve(&overrides, &[])
}

/// Settings for the URL of an API server, with short timeouts.
pub(super) fn settings_for_url(url: &str) -> Settings {
    let overrides = Overrides { datastore: Some("kubernetes".into()), ..Overrides::default() };
    let mut settings = resolve(&overrides, &[("K8S_API_ENDPOINT", url)]);
    settings.kubernetes.timeouts = Timeouts { connect: SHORT, request: SHORT };
    settings
}

/// Opens the datastore behind an API server as an administrator.
pub(super) async fn open(server: &KubeApiserver) -> Datastore {
    Datastore::open(&settings(&server.kubeconfig())).await.unwrap()
}

/// Writes a copy of the server's kubeconfig in which `token` replaces its token.
pub(super) fn kubeconfig_with_token(
    server: &KubeApiserver,
    folder: &Path,
    token: &str,
) -> std::path::PathBuf {
    let text = std::fs::read_to_string(server.kubeconfig()).unwrap().replace(server.token(), token);
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
pub(super) fn block(flavour: Flavour) -> Value {
    resource(
        flavour,
        "IPAMBlock",
        "10-0-0-0-30",
        json!({
            "cidr": "10.0.0.0/30", "affinity": "host:node-1", "affinityClaimTime": "2026-05-01T10:11:12Z",
            "allocations": [0, 1, null, null], "unallocated": [3, 2],
            "attributes": [
                {"handle_id": "ipip-tunnel-addr-node-1", "secondary": {"node": "node-1", "type": "ipipTunnelAddress"}},
                {"handle_id": "k8s-pod-network.ABC", "secondary": {"namespace": "default", "node": "node-1",
                    "pod": "web-0", "timestamp": "2026-05-01 10:12:00.123456789 +0000 UTC"}},
            ],
            "sequenceNumber": 1777630272123456792u64,
            "sequenceNumberForAllocation": {"0": 1777630272123456789u64, "1": 1777630272123456790u64},
            "deleted": false, "strictAffinity": false,
        }),
    )
}

/// Creates a small, healthy cluster.
pub(super) fn seed(server: &KubeApiserver, flavour: Flavour) {
    let add = |plural: &str, objects: &[Value]| create(server, &flavour.path(plural), objects).unwrap();
    let deleted = if flavour == Flavour::Classic { json!("false") } else { json!(false) };
    let affinity = json!({"cidr": "10.0.0.0/30", "node": "node-1", "state": "confirmed", "type": "host", "deleted": deleted});
    let mut affinity = resource(flavour, "BlockAffinity", "node-1-10-0-0-0-30", affinity);
    affinity["metadata"]["labels"] = json!({"projectcalico.org/affinity-type": "host"});
    let handle = |id: &str| {
        let spec = json!({"handleID": id, "block": {"10.0.0.0/30": 1}, "deleted": false});
        resource(flavour, "IPAMHandle", &id.to_lowercase(), spec)
    };
    add("ipamblocks", &[block(flavour)]);
    add("blockaffinities", &[affinity]);
    add("ipamhandles", &[handle("ipip-tunnel-addr-node-1"), handle("k8s-pod-network.ABC")]);
    let config = json!({"strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": 4});
    match flavour {
        Flavour::Classic => add("ipamconfigs", &[resource(flavour, "IPAMConfig", "default", config)]),
        Flavour::Native => {
            add("ipamconfigurations", &[resource(flavour, "IPAMConfiguration", "default", config)])
        }
    }
    add(
        "ippools",
        &[resource(
            flavour,
            "IPPool",
            "default-ipv4-ippool",
            json!({"cidr": "10.0.0.0/16", "blockSize": 30}),
        )],
    );
    add(
        "ipreservations",
        &[resource(flavour, "IPReservation", "infra", json!({"reservedCIDRs": ["10.0.0.3/32"]}))],
    );
    let cluster = json!({"clusterGUID": "0f0e1d2c", "calicoVersion": "v3.32.1", "datastoreReady": true});
    add("clusterinformations", &[resource(flavour, "ClusterInformation", "default", cluster)]);
    let controllers = json!({"controllers": {"node": {"leakGracePeriod": "5m0s"}, "loadBalancer": {"assignIPs": "AllServices"}}});
    add(
        "kubecontrollersconfigurations",
        &[resource(flavour, "KubeControllersConfiguration", "default", controllers)],
    );
    let annotations = json!({"projectcalico.org/IPv4IPIPTunnelAddr": "10.0.0.0", INSTALLED: "calipam 0.1.0"});
    create(server, "/api/v1/nodes", &[node("node-1", annotations)]).unwrap();
    let mut pod = pod("web-0", "node-1");
    pod["metadata"]["annotations"] = json!({"cni.projectcalico.org/podIP": "10.0.0.1/32"});
    create(server, "/api/v1/namespaces/default/pods", &[pod]).unwrap();
}

/// A pod without addresses.
pub(super) fn pod(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
}
