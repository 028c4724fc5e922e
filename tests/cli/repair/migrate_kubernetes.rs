//! `migrate` on a real API server, in both API groups, and `--evict` with budgets and batches. The tests play the role
//! of controllers and nodes.

use std::sync::atomic::{AtomicBool, Ordering};

use calipam_testkit::kube::{create, create_in_etcd};

use super::kubernetes::{KubeSite, in_each_group};
use super::migrate::{NEW, OLD, cluster};
use super::site::*;
use super::split::add_pool;
use crate::cli::kube_cluster::pod;

fn on_kubernetes(flavour: Flavour) {
    let site = KubeSite::of(&cluster(), flavour);
    // An undo leaves the last enabled pool.
    let apply = ["migrate", "--from", OLD, "--apply", "--yes"];
    let created = site
        .run_at_once(&apply, &["--to-cidr", "10.99.0.0/16"])
        .succeeded();
    let disabled = site.run_at_once(&apply, &[]).succeeded();
    site.undo(&journal_of(&created))
        .exits(1)
        .prints("no pool of its family would be enabled");
    assert!(site.list("ippools").contains_key(NEW));
    for run in [disabled, created] {
        site.undo(&journal_of(&run)).succeeded();
    }

    add_pool(&site, flavour);
    // Assigns and releases an address, which leaves an empty block with its affinity.
    for arguments in [
        &[
            "assign", "--node", "node-1", "--count", "1", "--pool", "p", "--handle", "h", "--yes",
        ][..],
        &[
            "release", "--handle", "h", "--yes", "--grace", "0", "--settle", "0",
        ],
    ] {
        site.run(arguments).succeeded();
    }
    let is_in_old_pool = |object: &&Value| {
        object["spec"]["cidr"]
            .as_str()
            .is_some_and(|cidr| cidr.starts_with("10.7."))
    };
    let count_in_old_pool = || site.objects().values().filter(is_in_old_pool).count();
    assert_eq!(count_in_old_pool(), 2);

    // Migrates through a temporary pool and back. Only the API server stores which phase is next.
    let step = |arguments: &[&str], leg: &str, phase: &str| {
        let run = site.run_at_once(&["migrate", "--yes", "-o", "json"], arguments);
        let document = run.json();
        let found = (run.code, &document["detour"]["leg"], &document["phase"]);
        assert_eq!(found, (0, &json!(leg), &json!(phase)), "{run:?}");
        run
    };
    let begin = [
        "--from",
        "p",
        "--block-size",
        "29",
        "--via",
        "10.8.0.0/28",
        "--apply",
    ];
    let mut runs = vec![step(&begin, "there", "create")];
    let temporary = site.list("ippools")["p-10-8-0-0-28"].clone();
    let (size, metadata) = (&temporary["spec"]["blockSize"], &temporary["metadata"]);
    assert_eq!((size, &metadata["labels"]["zone"]), (&json!(30), &json!("a")));
    let successor = r#"{"blockSize":29,"cidr":"10.7.0.0/29","name":"p"}"#;
    assert_eq!(metadata["annotations"]["calipam.io/temporary-for"], successor);
    runs.extend(["disable", "clean-up", "delete"].map(|phase| step(&["--apply"], "there", phase)));
    assert_eq!(count_in_old_pool(), 0);
    assert!(!site.list("ippools").contains_key("p"));
    // Calico's client moves the annotations of other programs into an annotation of its own.
    if flavour == Flavour::Classic {
        let mut object = site.list("ippools")["p-10-8-0-0-28"].clone();
        let kept = json!({"annotations": {"calipam.io/temporary-for": successor}}).to_string();
        object["metadata"]["annotations"] = json!({"projectcalico.org/metadata": kept});
        site.replace("ippools", &object);
    }
    runs.extend(["create", "disable", "delete"].map(|phase| step(&["--apply"], "back", phase)));
    let pools = site.list("ippools");
    let new = &pools["p"];
    assert_eq!(
        (&new["spec"]["blockSize"], &new["metadata"]["labels"]["zone"]),
        (&json!(29), &json!("a"))
    );
    assert!(
        !new["metadata"]["annotations"]
            .to_string()
            .contains("temporary-for"),
        "{new}"
    );
    assert!(!pools.contains_key("p-10-8-0-0-28"));

    for run in runs.iter().rev().take(6) {
        site.undo(&journal_of(run)).succeeded();
    }
    assert_eq!(count_in_old_pool(), 2);
    let old = &site.list("ippools")["p"];
    assert_eq!(
        (&old["spec"]["blockSize"], old["spec"]["disabled"] == true),
        (&json!(30), false),
        "{old}"
    );
}

in_each_group!(on_kubernetes: on_kubernetes_classic, on_kubernetes_native);

/// Creates a ready pod with an address in Calico's annotations. A pod requests the pool `p` unless it belongs to a
/// Deployment.
fn web(number: usize, controller: &str, address: &str) -> Value {
    let mut pod = pod("default", &format!("web-{number}"), "node-1", address, number);
    let metadata = &mut pod["metadata"];
    metadata["labels"] = json!({"app": "web", "pod-template-hash": "5d9"});
    metadata["annotations"] = json!({"cni.projectcalico.org/podIP": format!("{address}/32")});
    if controller != "ReplicaSet" {
        metadata["annotations"]["cni.projectcalico.org/ipv4pools"] = r#"["p"]"#.into();
    }
    if !controller.is_empty() {
        metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": controller, "name": "web-5d9",
            "uid": metadata["uid"], "controller": true}]);
    }
    pod["status"]["conditions"] =
        json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T10:00:20Z"}]);
    pod
}

/// Creates pods in the disabled pool `p`: `web-0` to `web-3` of a Deployment, a bare one, and one of a StatefulSet.
fn with_pods() -> KubeSite {
    let site = KubeSite::of(&cluster(), Flavour::Classic);
    add_pool(&site, Flavour::Classic);
    let controllers = [
        "ReplicaSet",
        "ReplicaSet",
        "ReplicaSet",
        "ReplicaSet",
        "",
        "StatefulSet",
    ];
    let pods = controllers.iter().enumerate();
    let pods = pods.map(|(number, controller)| web(number, controller, &format!("10.7.0.{number}")));
    store_pods(&site, &pods.collect::<Vec<_>>());
    disable_pool(&site);
    site
}

fn store_pods(site: &KubeSite, pods: &[Value]) {
    create_in_etcd(&site.server, "/registry/pods/", pods).unwrap();
}

/// Ends a pod at once, as its node does.
fn end_pod(site: &KubeSite, name: &str) {
    let path = format!("/api/v1/namespaces/default/pods/{name}");
    site.server
        .request("DELETE", &path, r#"{"gracePeriodSeconds":0}"#)
        .unwrap();
}

fn disable_pool(site: &KubeSite) {
    site.run_at_once(
        &[
            "migrate", "--from", "p", "--to", OLD, "--apply", "--yes", "--force",
        ],
        &[],
    )
    .succeeded();
}

const EVICT: [&str; 6] = ["migrate", "--apply", "--from", "p", "--yes", "--evict"];

/// Adds a budget for all pods, which allows no eviction.
fn add_budget(site: &KubeSite) {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}}});
    create(
        &site.server,
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        &[budget],
    )
    .unwrap();
}

fn pods_of(site: &KubeSite) -> Vec<Value> {
    let response = site
        .server
        .request("GET", "/api/v1/namespaces/default/pods", "")
        .unwrap();
    serde_json::from_str::<Value>(&response.body).unwrap()["items"]
        .as_array()
        .unwrap()
        .clone()
}

/// Evicts pods, and replaces each deleted pod of the Deployment by one whose address `new` returns. Returns the run and
/// the lowest number of pods at any time.
fn evict(site: &KubeSite, new: fn(usize) -> String, arguments: &[&str]) -> (Run, usize) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let controller = scope.spawn(|| {
            let (mut least, mut next) = (4, 10);
            while !done.load(Ordering::SeqCst) {
                let pods = pods_of(site);
                let is_ending = |pod: &&Value| !pod["metadata"]["deletionTimestamp"].is_null();
                let (ending, running): (Vec<_>, Vec<_>) = pods.iter().partition(is_ending);
                let is_of_deployment =
                    |pod: &&&Value| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet";
                let running = running.iter().filter(is_of_deployment).count();
                least = least.min(running);
                let missing = (next + running..next + 4).map(|place| web(place, "ReplicaSet", &new(place)));
                store_pods(site, &missing.collect::<Vec<_>>());
                next += 4;
                ending
                    .iter()
                    .for_each(|pod| end_pod(site, pod["metadata"]["name"].as_str().unwrap()));
                thread::sleep(Duration::from_millis(100));
            }
            least
        });
        let run = site.run_at_once(&EVICT, arguments);
        done.store(true, Ordering::SeqCst);
        (run, controller.join().unwrap())
    })
}

#[test]
fn pods_are_listed_with_their_controllers_and_stay_where_budgets_let_none_go() {
    let site = with_pods();
    add_budget(&site);
    let run = site.run_at_once(&["migrate", "--from", "p", "--to", OLD, "-o", "json"], &[]);
    let document = run.json();
    let workload = |kind: Option<&str>, name: &str, pods: usize, command: Option<&str>| {
        let mut workload = json!({"namespace": "default", "name": name, "pods": pods, "budgets": {"web": 0}});
        kind.into_iter().for_each(|kind| workload["kind"] = kind.into());
        command
            .into_iter()
            .for_each(|command| workload["command"] = command.into());
        workload
    };
    let restart = |what: &str| {
        let kubeconfig = site.server.kubeconfig();
        format!(
            "kubectl -n default rollout restart {what} --kubeconfig {}",
            kubeconfig.display()
        )
    };
    let expected = [
        workload(None, "web-4", 1, None),
        workload(Some("Deployment"), "web", 4, Some(&restart("deployment/web"))),
        workload(
            Some("StatefulSet"),
            "web-5d9",
            1,
            Some(&restart("statefulset/web-5d9")),
        ),
    ];
    assert_eq!(document["workloads"], json!(expected), "{run:?}");
    let pin = |subject: &str| json!({"subject": subject, "annotation": "cni.projectcalico.org/ipv4pools", "value": "[\"p\"]"});
    assert_eq!(
        document["pins"],
        json!([pin("Pod default/web-4"), pin("StatefulSet default/web-5d9")])
    );
    assert_eq!(document["differences"][0]["setting"], "ipipMode");
    let eviction = json!({"pods": 4, "notMoved": 0, "batch": 1, "eachSeconds": 20, "totalSeconds": 80});
    assert_eq!(document["eviction"], eviction, "{run:?}");

    // The budget lets no pod go.
    let (run, least) = evict(
        &site,
        |number| format!("10.244.9.{number}"),
        &["--patience", "2s"],
    );
    assert_eq!(least, 4, "{run:?}");
    run.failed(1, "for 2s, no eviction was allowed; pods left: 4");
    let mut command = site.command(&[&EVICT, &AT_ONCE[..]].concat());
    command.env("TERM", "xterm-256color");
    Terminal::new(120)
        .converse(&mut command, "evicting: 0 of 4 pods", |_, it| interrupt(it))
        .exits(130)
        .shows("interrupted: 0 pods evicted, 4 left")
        .shows("the same command continues: ");
    assert_eq!(pods_of(&site).len(), 6);
}

#[test]
fn evicted_pods_come_back_before_the_next_eviction_and_other_pods_stay() {
    let site = with_pods();
    let (run, least) = evict(&site, |number| format!("10.244.9.{number}"), &["-o", "json"]);
    // Two pods are left.
    let run = run.failed(1, "evicted 4 pods");
    let run = run.says("an annotation asks for the old pool or an address in it: 1 pod");
    assert!(least >= 3, "one at a time: {least}");
    let document = run.json();
    assert_eq!(
        (&document["phase"], &document["left"]["inUse"]),
        (&json!("move"), &json!(2))
    );
    let users = [0, 1].map(|index| document["users"][index]["name"].as_str().unwrap());
    assert_eq!(users, ["default/web-4", "default/web-5"]);
}

#[test]
fn an_eviction_after_which_nothing_is_left_succeeds() {
    let site = with_pods();
    ["web-4", "web-5"].iter().for_each(|pod| end_pod(&site, pod));
    let (run, _) = evict(&site, |number| format!("10.244.9.{number}"), &["-o", "json"]);
    assert_ne!(run.succeeded().json()["phase"], "move");
}

#[test]
fn eviction_stops_when_a_new_pod_has_an_address_of_the_old_pool() {
    let site = with_pods();
    let (run, _) = evict(&site, |number| format!("10.7.0.{}", 6 + number % 2), &[]);
    run.failed(1, "got an address from the old pool again");
    let is_old = |pod: &&Value| pod["metadata"]["name"].as_str().unwrap().len() == 5;
    assert_eq!(
        pods_of(&site).iter().filter(is_old).count(),
        5,
        "one of four was evicted, and the two others are there"
    );
}

/// An eviction moves neither pods that no controller recreates nor tunnels. Hints name only what helps with what is left.
#[test]
fn bare_pods_and_tunnels_are_told_how_to_move() {
    let site = KubeSite::of(&cluster(), Flavour::Classic);
    let apply = ["migrate", "--from", OLD, "--apply", "--yes"];
    site.run_at_once(&apply, &["--to-cidr", "10.99.0.0/16"])
        .succeeded();
    site.run_at_once(&apply, &[]).succeeded();
    let evict = || site.run_at_once(&apply, &["--evict"]);
    let restart =
        "restart calico-node on node-1, node-2 and node-3, so that their tunnels get other addresses";
    let run = evict()
        .exits(1)
        .says("hint: delete 3 pods that no controller recreates")
        .says(restart);
    assert!(
        !run.stderr.contains("with `calipam migrate --apply"),
        "nothing can be evicted: {run:?}"
    );

    let all = site.server.request("GET", "/api/v1/pods", "").unwrap();
    let all: Value = serde_json::from_str(&all.body).unwrap();
    for pod in all["items"].as_array().unwrap() {
        let [namespace, name] = ["namespace", "name"].map(|name| pod["metadata"][name].as_str().unwrap());
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        site.server
            .request("DELETE", &path, r#"{"gracePeriodSeconds":0}"#)
            .unwrap();
    }
    let run = evict().exits(1).says(restart);
    assert!(
        !run.stderr.contains("delete 3 pods") && !run.stderr.contains("evict its pods"),
        "{run:?}"
    );

    // calico-node writes the new addresses of its tunnels.
    for number in 1..=3 {
        let path = format!("/api/v1/nodes/node-{number}");
        let node = site.server.request("GET", &path, "").unwrap();
        let mut node: Value = serde_json::from_str(&node.body).unwrap();
        for (name, value) in node["metadata"]["annotations"].as_object_mut().unwrap() {
            if name.starts_with("projectcalico.org/IPv4") && name.ends_with("TunnelAddr") {
                *value = format!("10.99.{number}.1").into();
            } else if name == "projectcalico.org/IPv4WireguardInterfaceAddr" {
                *value = format!("10.99.{number}.2").into();
            }
        }
        assert_eq!(
            site.server
                .request("PUT", &path, &node.to_string())
                .unwrap()
                .status,
            200
        );
    }
    let document = site
        .run_at_once(&["migrate", "--from", OLD, "-o", "json"], &[])
        .json();
    assert_eq!(document["phase"], "clean-up", "{document}");
}

/// The node of the pod is down, so the pod never ends.
#[test]
fn eviction_does_not_wait_forever_for_a_pod_that_does_not_end() {
    let site = with_pods();
    let mut ending = web(0, "ReplicaSet", "10.7.0.0");
    ending["metadata"]["deletionTimestamp"] = "2026-05-01T11:00:00Z".into();
    ending["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    store_pods(&site, &[ending]);
    ["web-1", "web-2", "web-3"]
        .iter()
        .for_each(|pod| end_pod(&site, pod));
    site.run_at_once(&EVICT, &["--patience", "2s"])
        .failed(
            1,
            "evicted pods have not ended after 2s: 1, such as default/web-0",
        )
        .says("hint: is their node down?");
}

/// Creates the pod of a virtual machine.
fn launcher(machine: &str, number: usize, address: &str, phase: &str) -> Value {
    let mut pod = web(number, "VirtualMachineInstance", address);
    pod["metadata"]["name"] = format!("virt-launcher-{machine}-{number}").into();
    pod["metadata"]["ownerReferences"][0]["name"] = machine.into();
    pod["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove("cni.projectcalico.org/ipv4pools");
    pod["status"]["phase"] = phase.into();
    if phase != "Running" {
        pod["status"]["conditions"][0]["status"] = "False".into();
    }
    pod
}

/// Before Calico 3.32, a live migration changes the address of a machine. The test plays the role of KubeVirt.
#[test]
fn machines_are_migrated_live_where_that_gives_them_another_address() {
    let site = KubeSite::of(&cluster(), Flavour::Classic);
    add_pool(&site, Flavour::Classic);
    store_pods(
        &site,
        &[
            launcher("db", 0, "10.7.0.0", "Running"),
            launcher("fixed", 1, "10.7.0.1", "Running"),
        ],
    );
    disable_pool(&site);
    let evict = || site.run_at_once(&EVICT, &["--patience", "60s"]);
    // They keep their addresses.
    evict().failed(1, "evicted 0 pods");

    let mut information = site.list("clusterinformations").remove("default").unwrap();
    information["spec"]["calicoVersion"] = "v3.31.3".into();
    site.replace("clusterinformations", &information);
    refuse_to_migrate(&site, "fixed");
    let migrations = || {
        let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations";
        let answer = site.server.request("GET", path, "").unwrap();
        serde_json::from_str::<Value>(&answer.body).unwrap()["items"]
            .as_array()
            .unwrap()
            .clone()
    };
    let run = thread::scope(|scope| {
        let run = scope.spawn(evict);
        while migrations().is_empty() && !run.is_finished() {
            thread::sleep(Duration::from_millis(50));
        }
        store_pods(
            &site,
            &[
                launcher("db", 2, "10.244.9.2", "Running"),
                launcher("db", 0, "10.7.0.0", "Succeeded"),
            ],
        );
        run.join().unwrap()
    });
    run.failed(1, "evicted 1 pod")
        .says("KubeVirt does not migrate the virtual machine default/fixed: ");
    let asked: Vec<Value> = migrations()
        .iter()
        .map(|migration| migration["spec"]["vmiName"].clone())
        .collect();
    assert_eq!(asked, ["db"]);
}

/// Makes the API server refuse to migrate a machine, as KubeVirt's webhook does for a machine with a local disk.
fn refuse_to_migrate(site: &KubeSite, machine: &str) {
    let expression = format!("object.spec.vmiName != '{machine}'");
    let rule = json!({"apiGroups": ["kubevirt.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["virtualmachineinstancemigrations"]});
    let of_kind = |kind: &str, spec: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": "machines"}, "spec": spec})
    };
    let policy = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": "cannot migrate VMI: its disk is not shared"}]});
    let binding = json!({"policyName": "machines", "validationActions": ["Deny"]});
    for (plural, object) in [
        (
            "validatingadmissionpolicies",
            of_kind("ValidatingAdmissionPolicy", policy),
        ),
        (
            "validatingadmissionpolicybindings",
            of_kind("ValidatingAdmissionPolicyBinding", binding),
        ),
    ] {
        create(
            &site.server,
            &format!("/apis/admissionregistration.k8s.io/v1/{plural}"),
            &[object],
        )
        .unwrap();
    }
    // Waits until the API server enforces the policy.
    let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations?dryRun=All";
    let migration = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "trial"}, "spec": {"vmiName": machine}});
    while site
        .server
        .request("POST", path, &migration.to_string())
        .unwrap()
        .status
        == 201
    {
        thread::sleep(Duration::from_millis(100));
    }
}
