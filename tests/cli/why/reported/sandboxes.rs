//! Pods whose earlier sandbox still holds their address, or whose annotations are blank.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::lists::{CREATED, Lists, pool};
use super::{Case, Place, SANDBOX};

/// Annotations of a pod whose sandbox was torn down, as they are named in [`Lists::block`] for a pod at an ordinal.
pub(super) fn torn_down(more: Value) -> Value {
    let mut annotations = json!({"cni.projectcalico.org/podIP": "", "cni.projectcalico.org/podIPs": "",
        "cni.projectcalico.org/containerID": SANDBOX});
    annotations
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    annotations
}

/// After a reboot, the kubelet says that the pod runs, and that it has no sandbox.
pub(super) fn rebooted(pod: &mut Value) {
    pod["status"] = json!({"phase": "Running", "conditions": [
        {"type": "PodReadyToStartContainers", "status": "False"}, {"type": "Ready", "status": "False"}]});
}

pub(super) fn ready() -> Value {
    json!([{"type": "PodReadyToStartContainers", "status": "True"}, {"type": "Ready", "status": "True"}])
}

/// A pod that names its address waits for a new sandbox, and its earlier sandbox still holds the address.
fn of_earlier_sandbox() -> Lists {
    let fixed = pool("90.0.0.0/24", json!({"nodeSelector": "!all()"}));
    let pools = [("default", pool("10.42.0.0/16", json!({}))), ("fixed", fixed)];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("10.42.0.0/26", "n1", 1);
    lists.owned_block("90.0.0.0/26", "n1", &[(1, "tenant/web", SANDBOX)]);
    let asks = json!({"cni.projectcalico.org/ipAddrs": r#"["90.0.0.1"]"#});
    lists.pod("tenant/web", "n1", torn_down(asks), CREATED, None);
    lists.edit_pod("tenant/web", rebooted);
    lists
}

pub(super) fn fixed_address_of_an_earlier_sandbox() -> Case {
    Case {
        name: "fixed address of an earlier sandbox",
        lists: of_earlier_sandbox(),
        findings: &[
            "error leaked-address 90.0.0.1",
            "error pod-without-address tenant/web",
        ],
        answers: &[
            (
                "explain --pod tenant/web",
                1,
                "tenant/web gets no IPv4 address on n1: 90.0.0.1 is still recorded for an earlier container",
            ),
            ("explain --pod tenant/web", 1, "`calipam release --ip 90.0.0.1"),
            (
                "release --ip 90.0.0.1 --dry-run",
                0,
                "tenant/web, whose sandbox was torn down",
            ),
        ],
        also_on: &[Place::Kubernetes],
    }
}

/// As long as the pod's annotation names the address, the plugin releases it before it asks for it.
pub(super) fn fixed_address_that_the_plugin_releases() -> Case {
    let mut lists = of_earlier_sandbox();
    lists.edit_pod("tenant/web", |pod| {
        pod["metadata"]["annotations"]["cni.projectcalico.org/podIP"] = "90.0.0.1/32".into();
        pod["metadata"]["annotations"]["cni.projectcalico.org/podIPs"] = "90.0.0.1/32".into();
    });
    Case {
        name: "fixed address that the plugin releases",
        lists,
        findings: &[],
        answers: &[(
            "explain --pod tenant/web",
            0,
            "IPAM can assign 90.0.0.1 to tenant/web on n1",
        )],
        also_on: &[],
    }
}

/// The DEL of an earlier pod of the same name blanked the annotations of pods that run.
pub(super) fn blank_annotations_of_running_pods() -> Case {
    let mut lists = Lists::of_pool("default", "172.30.0.0/16", json!({}));
    lists.owned_block(
        "172.30.1.0/26",
        "n1",
        &[(21, "db/leaving", "83076b"), (22, "db/runs", SANDBOX)],
    );
    for (name, address) in [("db/leaving", "172.30.1.21"), ("db/runs", "172.30.1.22")] {
        lists.pod(name, "n1", json!({}), CREATED, Some(address));
        lists.edit_pod(name, |pod| {
            pod["metadata"]["annotations"] = torn_down(json!({}));
            pod["status"]["conditions"] = ready();
        });
    }
    lists.edit_pod("db/leaving", |pod| {
        pod["metadata"]["annotations"]["cni.projectcalico.org/containerID"] = "83076b".into();
        pod["metadata"]["deletionTimestamp"] = format!("{:.0}", Timestamp::now()).into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    });
    Case {
        name: "blank annotations of running pods",
        lists,
        findings: &[],
        answers: &[
            (
                "explain --pod db/leaving",
                0,
                "it keeps 172.30.1.21 on n1 until its containers have ended",
            ),
            (
                "explain --pod db/runs",
                0,
                "db/runs has 172.30.1.22 on n1; Calico's annotation with it is blank",
            ),
            ("release --leaked --dry-run", 0, "Nothing to do"),
        ],
        also_on: &[Place::Kubernetes],
    }
}

/// A restored backup lost the record of a pod's address, and another pod got an address that is in use.
pub(super) fn addresses_without_a_record_of_their_own() -> Case {
    let mut lists = Lists::of_pool("default", "172.30.0.0/16", json!({}));
    lists.owned_block("172.30.1.0/26", "n1", &[(22, "db/first", SANDBOX)]);
    for (name, address) in [
        ("db/first", "172.30.1.22"),
        ("db/second", "172.30.1.22"),
        ("db/lost", "172.30.1.23"),
    ] {
        lists.pod(name, "n1", json!({}), CREATED, Some(address));
    }
    Case {
        name: "addresses without a record of their own",
        lists,
        findings: &[
            "critical duplicate-address 172.30.1.22",
            "critical unallocated-in-use 172.30.1.23",
        ],
        answers: &[
            (
                "explain --pod db/lost",
                0,
                "db/lost has 172.30.1.23 on n1; 172.30.1.23 is used by db/lost (n1), but free in 172.30.1.0/26",
            ),
            (
                "explain --pod db/second",
                0,
                "db/second has 172.30.1.22 on n1; 172.30.1.22 is used by db/first (n1) and db/second (n1)",
            ),
            (
                "explain --pod db/lost",
                0,
                "see what a rebuild would change: `calipam rebuild",
            ),
        ],
        also_on: &[],
    }
}
