//! The states that pods go through on a real API server.

use jiff::Timestamp;
use serde_json::Value;

use super::store::Target;
use super::users::{Ending, Users};
use crate::cluster::{ClusterSpec, Holder, pod_name};
use crate::kube::{Flavour, Kinds, lease, seed};
use crate::runtime::RUNTIME;
use crate::servers::KubeApiserver;

/// The phase, address and annotation of a pod, and whether it is being deleted.
fn state(server: &KubeApiserver, holder: &Holder) -> Option<[String; 4]> {
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}",
        holder.name.namespace, holder.name.pod
    );
    let response = server.request("GET", &path, "").unwrap();
    if response.status != 200 {
        return None;
    }
    let pod: Value = serde_json::from_str(&response.body).unwrap();
    let annotation = &pod["metadata"]["annotations"]["cni.projectcalico.org/podIP"];
    let shown = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    let deleting = (!pod["metadata"]["deletionTimestamp"].is_null()).to_string();
    Some([
        shown(&pod["status"]["phase"]),
        shown(&pod["status"]["podIP"]),
        shown(annotation),
        deleting,
    ])
}

#[test]
fn pods_end() {
    let (server, spec) = (
        lease(Kinds::Calico(Flavour::Classic)).unwrap(),
        ClusterSpec::new(8).v4_only(),
    );
    seed(&server, Flavour::Classic, &spec, 1).unwrap();
    let target = Target::Kubernetes(&server, Flavour::Classic);
    let mut users = RUNTIME.block_on(Users::connect(target, spec)).unwrap();
    let endings = [
        (
            Ending::Deleted,
            "f",
            Some(["Running", "10.244.1.7", "", "true"]),
            None,
        ),
        (
            Ending::Evicted,
            "f",
            Some(["Failed", "10.244.1.7", "", "false"]),
            Some("Failed"),
        ),
        (
            Ending::Finished,
            "f",
            Some(["Running", "10.244.1.7", "", "false"]),
            Some("Succeeded"),
        ),
        (
            Ending::Finished,
            "0",
            Some(["Succeeded", "10.244.1.7", "", "false"]),
            Some("Succeeded"),
        ),
        (Ending::Lost, "f", None, None),
    ];
    for (number, (ending, container, withdrawn, ended)) in (0..).zip(endings) {
        let (name, node) = (pod_name(number), "node-1".to_owned());
        let holder = Holder {
            name,
            node,
            container: container.repeat(64),
            since: Timestamp::now(),
        };
        users.announce(&holder).unwrap();
        assert_eq!(
            state(&server, &holder).unwrap(),
            ["Pending", "none", "none", "false"]
        );
        RUNTIME
            .block_on(users.publish(&holder, "10.244.1.7".parse().unwrap()))
            .unwrap();
        assert_eq!(
            state(&server, &holder).unwrap(),
            ["Running", "10.244.1.7", "10.244.1.7/32", "false"]
        );
        RUNTIME.block_on(users.withdraw(&holder, ending)).unwrap();
        let expected = withdrawn.map(|texts| texts.map(str::to_owned));
        assert_eq!(state(&server, &holder), expected, "{ending:?}");
        users.clean_up(&holder, ending).unwrap();
        assert_eq!(
            state(&server, &holder).map(|[phase, ..]| phase).as_deref(),
            ended,
            "{ending:?}"
        );
    }
}
