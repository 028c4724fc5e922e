//! The fields of objects that no check reads, but every API server sends.

use calipam_testkit::cluster::KubeObject;
use serde_json::{Value, json};

/// Adds the fields that controllers, the kubelet and the API server write. A running pod then takes 7 KB.
pub(super) fn complete(object: &mut KubeObject) {
    match object.plural {
        "pods" => complete_pod(&mut object.json),
        "nodes" => object.json["status"]["images"] = (0..30).map(image).collect(),
        _ => {}
    }
    let managed = json!({"manager": "manager-of-this-kind", "operation": "Update", "time": "2026-05-01T10:12:03Z",
        "apiVersion": object.json["apiVersion"], "fieldsType": "FieldsV1", "fieldsV1": fields(&object.json)});
    object.json["metadata"]["managedFields"] = json!([managed]);
}

/// Adds the fields of a Deployment's pod.
fn complete_pod(pod: &mut Value) {
    let time = "2026-05-01T10:12:03Z";
    let image = "registry.example.com/shop/checkout:v2.31.4";
    let metadata = &mut pod["metadata"];
    let id = metadata["annotations"]["cni.projectcalico.org/containerID"].clone();
    metadata["annotations"]["prometheus.io/scrape"] = "true".into();
    metadata["annotations"]["prometheus.io/port"] = "9090".into();
    for (name, value) in [("pod-template-hash", "5d4f8c7b9d"), ("tier", "backend"), ("version", "v2.31.4")] {
        metadata["labels"][name] = value.into();
    }
    metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "name": "checkout-5d4f8c7b9d", "uid": "7b9b5d8e-2f3a-4c1d-9e0f-112233445566", "controller": true,
        "blockOwnerDeletion": true}]);

    let setting = |i| {
        let value = format!("value-of-setting-{i}-for-this-service");
        json!({"name": format!("CHECKOUT_SETTING_{i:02}"), "value": value})
    };
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": 8080}, "periodSeconds": 10});
    pod["spec"]["containers"] = json!([{
        "name": "checkout", "image": image, "env": (0..5).map(setting).collect::<Value>(),
        "ports": [{"containerPort": 8080, "name": "http"}, {"containerPort": 9090, "name": "metrics"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "livenessProbe": probe("/healthz"), "readinessProbe": probe("/ready"),
        "volumeMounts": [{"name": "config", "mountPath": "/etc/checkout"}, {"name": "token", "readOnly": true,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
    }]);
    pod["spec"]["volumes"] = json!([{"name": "config", "configMap": {"name": "checkout"}}, {"name": "token",
        "projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}]);
    let tolerations = ["not-ready", "unreachable"].map(|reason| {
        json!({"key": format!("node.kubernetes.io/{reason}"), "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 300})
    });
    pod["spec"]["tolerations"] = json!(tolerations);

    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let conditions =
        conditions.map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": time}));
    pod["status"]["conditions"] = json!(conditions);
    pod["status"]["containerStatuses"] = json!([{"name": "checkout", "ready": true, "started": true,
        "restartCount": 0, "state": {"running": {"startedAt": time}}, "lastState": {}, "image": image,
        "imageID": format!("registry.example.com/shop/checkout@sha256:{:064x}", 7),
        "containerID": format!("containerd://{}", id.as_str().unwrap_or_default())}]);
}

/// An image in the status of a node.
fn image(i: usize) -> Value {
    let name = format!("registry.example.com/shop/image-{i:02}");
    json!({"names": [format!("{name}@sha256:{i:064x}"), format!("{name}:v1.0.{i}")], "sizeBytes": 48_000_000 + i})
}

/// Returns the fields of a value in the format of `managedFields`. Items of lists are identified by their `name` or
/// `type`.
fn fields(value: &Value) -> Value {
    let named = |item: &Value| {
        let name = [&item["name"], &item["type"]].into_iter().find(|name| name.is_string())?;
        Some((format!("k:{}", json!({ "name": name })), fields(item)))
    };
    let own = [(".".to_owned(), json!({}))].into_iter();
    match value {
        Value::Object(inner) => {
            own.chain(inner.iter().map(|(name, value)| (format!("f:{name}"), fields(value)))).collect()
        }
        Value::Array(items) => own.chain(items.iter().filter_map(named)).collect(),
        _ => json!({}),
    }
}
