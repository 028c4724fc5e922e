//! `migrate` on a real API server, in both API groups, and `--evict` with budgets and batches. The tests play the role
//! of controllers and nodes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use calipam_testkit::kube::{Flavour, create, create_in_etcd};
use serde_json::{Value, json};

use super::kubernetes::{KubeSite, Objects, in_each_group};
use super::migrate::{NEW, OLD, cluster};
use super::site::{AT_ONCE, journal_of};
use super::split::add_pool;
use crate::cli::program::Run;
use crate::cli::pty::{Terminal, interrupt};

fn on_kubernetes(flavour: Flavour) {
    let site = KubeSite::of(&cluster(), flavour);
    add_pool(&site, flavour);
    // Assigns and releases an address, which leaves an empty block with its affinity.
    for arguments in [
        &["assign", "--node", "node-1", "--count", "1", "--pool", "p", "--handle", "h", "--yes"][..],
        &["release", "--handle", "h", "--yes", "--grace", "0", "--settle", "0"],
    ] {
        site.run(arguments).succeeded();
    }
    let count_in_old_pool = |objects: &Objects| {
        objects
            .values()
            .filter(|object| object["spec"]["cidr"].as_str().is_some_and(|cidr| cidr.starts_with("10.7.")))
            .count()
    };
    assert_eq!(count_in_old_pool(&site.objects()), 2);

    // Migrates through a temporary pool and back. Only the API server stores which phase is next.
    let step = |arguments: &[&str], leg: &str, phase: &str| {
        let run = site.run(&[&["migrate", "--yes", "-o", "json"], &AT_ONCE[..], arguments].concat());
        let document = run.json();
        let found = (run.code, &document["detour"]["leg"], &document["phase"]);
        assert_eq!(found, (0, &json!(leg), &json!(phase)), "{run:?}");
        run
    };
    let begin = ["--from", "p", "--block-size", "29", "--via", "10.8.0.0/28", "--apply"];
    let mut runs = vec![step(&begin, "there", "create")];
    let temporary = site.list("ippools")["p-10-8-0-0-28"].clone();
    let (size, metadata) = (&temporary["spec"]["blockSize"], &temporary["metadata"]);
    assert_eq!((size, &metadata["labels"]["zone"]), (&json!(30), &json!("a")));
    let successor = r#"{"blockSize":29,"cidr":"10.7.0.0/29","name":"p"}"#;
    assert_eq!(metadata["annotations"]["calipam.io/temporary-for"], successor);
    runs.extend(["disable", "clean-up", "delete"].map(|phase| step(&["--apply"], "there", phase)));
    assert_eq!(count_in_old_pool(&site.objects()), 0);
    assert!(!site.list("ippools").contains_key("p"));
    // Calico's client moves the annotations of other programs into an annotation of its own.
    if flavour == Flavour::Classic {
        let mut object = site.list("ippools")["p-10-8-0-0-28"].clone();
        let kept = json!({"annotations": {"calipam.io/temporary-for": successor}}).to_string();
        object["metadata"]["annotations"] = json!({"projectcalico.org/metadata": kept});
        let path = format!("{}/p-10-8-0-0-28", flavour.path("ippools"));
        assert_eq!(site.server.request("PUT", &path, &object.to_string()).unwrap().status, 200);
    }
    runs.extend(["create", "disable", "delete"].map(|phase| step(&["--apply"], "back", phase)));
    let pools = site.list("ippools");
    let new = &pools["p"];
    assert_eq!((&new["spec"]["blockSize"], &new["metadata"]["labels"]["zone"]), (&json!(29), &json!("a")));
    assert!(!new["metadata"]["annotations"].to_string().contains("temporary-for"), "{new}");
    assert!(!pools.contains_key("p-10-8-0-0-28"));

    for run in runs.iter().rev().take(6) {
        site.run(&["undo", &journal_of(run), "--yes"]).succeeded();
    }
    assert_eq!(count_in_old_pool(&site.objects()), 2);
    let old = &site.list("ippools")["p"];
    assert_eq!((&old["spec"]["blockSize"], old["spec"]["disabled"] == true), (&json!(30), false), "{old}");
}

in_each_group!(on_kubernetes: on_kubernetes_classic, on_kubernetes_native);

fn the_last_pool_stays(flavour: Flavour) {
    let site = KubeSite::of(&cluster(), flavour);
    let migrate = |arguments: &[&str]| {
        site.run(&[&["migrate", "--from", OLD, "--yes"], &AT_ONCE[..], arguments].concat()).succeeded()
    };
    let created = migrate(&["--to-cidr", "10.99.0.0/16", "--apply"]);
    migrate(&["--apply"]);
    let undo = site.run(&["undo", &journal_of(&created), "--yes"]);
    assert!(undo.code == 1 && undo.stdout.contains("no pool of its family would be enabled"), "{undo:?}");
    assert!(site.list("ippools").contains_key(NEW));
}

in_each_group!(the_last_pool_stays: the_last_pool_stays_classic, the_last_pool_stays_native);

/// Creates a pod with an address in Calico's annotations. A pod requests the pool `p` unless it belongs to a
/// Deployment.
fn web(number: usize, controller: &str, address: &str, ready: bool) -> Value {
    let uid = format!("00000000-0000-4000-8000-{number:012}");
    let owner = json!({"apiVersion": "apps/v1", "kind": controller, "name": "web-5d9", "uid": uid, "controller": true});
    let owners = if controller.is_empty() { json!([]) } else { json!([owner]) };
    let mut annotations = json!({"cni.projectcalico.org/podIP": format!("{address}/32")});
    if controller != "ReplicaSet" {
        annotations["cni.projectcalico.org/ipv4pools"] = r#"["p"]"#.into();
    }
    let condition = if ready { "True" } else { "False" };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("web-{number}"), "namespace": "default", "uid": uid, "creationTimestamp": "2026-05-01T10:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "5d9"}, "ownerReferences": owners,
            "annotations": annotations},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": condition, "lastTransitionTime": "2026-05-01T10:00:20Z"}]},
    })
}

/// Creates pods in the disabled pool `p`: `web-0` to `web-3` of a Deployment, a bare one, and one of a StatefulSet.
fn with_pods() -> KubeSite {
    let site = KubeSite::of(&cluster(), Flavour::Classic);
    add_pool(&site, Flavour::Classic);
    let mut pods: Vec<Value> =
        (0..4).map(|number| web(number, "ReplicaSet", &format!("10.7.0.{number}"), true)).collect();
    pods.push(web(4, "", "10.7.0.4", true));
    pods.push(web(5, "StatefulSet", "10.7.0.5", true));
    create_in_etcd(&site.server, "/registry/pods/", &pods).unwrap();
    site.run(
        &[&["migrate", "--from", "p", "--to", OLD, "--apply", "--yes", "--force"], &AT_ONCE[..]].concat(),
    )
    .succeeded();
    site
}

/// Adds a budget for all pods, which allows no eviction.
fn add_budget(site: &KubeSite) {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}}});
    create(&site.server, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", &[budget]).unwrap();
}

fn pods_of(site: &KubeSite) -> Vec<Value> {
    let response = site.server.request("GET", "/api/v1/namespaces/default/pods", "").unwrap();
    serde_json::from_str::<Value>(&response.body).unwrap()["items"].as_array().unwrap().clone()
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
                let is_of_deployment =
                    |pod: &&Value| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet";
                let running = pods.iter().filter(is_of_deployment);
                let running = running.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).count();
                least = least.min(running);
                let missing =
                    (running..4).map(|place| web(next + place, "ReplicaSet", &new(next + place), true));
                create_in_etcd(&site.server, "/registry/pods/", &missing.collect::<Vec<_>>()).unwrap();
                next += 4;
                // Plays the role of the node, which ends deleted pods.
                for pod in pods.iter().filter(|pod| !pod["metadata"]["deletionTimestamp"].is_null()) {
                    let path = format!(
                        "/api/v1/namespaces/default/pods/{}",
                        pod["metadata"]["name"].as_str().unwrap()
                    );
                    site.server.request("DELETE", &path, r#"{"gracePeriodSeconds":0}"#).unwrap();
                }
                thread::sleep(Duration::from_millis(100));
            }
            least
        });
        let evict = ["migrate", "--apply", "--from", "p", "--yes", "--evict"];
        let run = site.run(&[&evict, &AT_ONCE[..], arguments].concat());
        done.store(true, Ordering::SeqCst);
        (run, controller.join().unwrap())
    })
}

#[test]
fn pods_are_listed_with_their_controllers_and_their_ties_to_the_pool() {
    let site = with_pods();
    add_budget(&site);
    let run = site.run(&[&["migrate", "--from", "p", "--to", OLD, "-o", "json"], &AT_ONCE[..]].concat());
    let document = run.json();
    let workload = |kind: Option<&str>, name: &str, pods: usize, command: Option<&str>| {
        let mut workload = json!({"namespace": "default", "name": name, "pods": pods, "budgets": {"web": 0}});
        kind.into_iter().for_each(|kind| workload["kind"] = kind.into());
        command.into_iter().for_each(|command| workload["command"] = command.into());
        workload
    };
    let restart = "kubectl -n default rollout restart deployment/web";
    let again = "kubectl -n default rollout restart statefulset/web-5d9";
    let expected = [
        workload(None, "web-4", 1, None),
        workload(Some("Deployment"), "web", 4, Some(restart)),
        workload(Some("StatefulSet"), "web-5d9", 1, Some(again)),
    ];
    assert_eq!(document["workloads"], json!(expected), "{run:?}");
    let pin = |subject: &str| json!({"subject": subject, "annotation": "cni.projectcalico.org/ipv4pools", "value": "[\"p\"]"});
    assert_eq!(document["pins"], json!([pin("Pod default/web-4"), pin("StatefulSet default/web-5d9")]));
    assert_eq!(document["differences"][0]["setting"], "ipipMode");
    let eviction = json!({"pods": 4, "notMoved": 0, "batch": 1, "eachSeconds": 20, "totalSeconds": 80});
    assert_eq!(document["eviction"], eviction, "{run:?}");
}

#[test]
fn evicted_pods_come_back_before_the_next_eviction_and_other_pods_stay() {
    let site = with_pods();
    let (run, least) = evict(&site, |number| format!("10.244.9.{number}"), &["-o", "json"]);
    assert_eq!(run.code, 1, "two pods are left: {run:?}");
    assert!(run.stderr.contains("evicted 4 pods"), "{run:?}");
    assert!(run.stderr.contains("an annotation asks for the old pool or an address in it: 1 pod"), "{run:?}");
    assert!(least >= 3, "one at a time: {least}");
    let document = run.json();
    assert_eq!((&document["phase"], &document["left"]["inUse"]), (&json!("move"), &json!(2)));
    let users = [0, 1].map(|index| document["users"][index]["name"].as_str().unwrap());
    assert_eq!(users, ["default/web-4", "default/web-5"]);
}

#[test]
fn an_eviction_after_which_nothing_is_left_succeeds() {
    let site = with_pods();
    for pod in ["web-4", "web-5"] {
        let path = format!("/api/v1/namespaces/default/pods/{pod}");
        site.server.request("DELETE", &path, r#"{"gracePeriodSeconds":0}"#).unwrap();
    }
    let (run, _) = evict(&site, |number| format!("10.244.9.{number}"), &["-o", "json"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_ne!(run.json()["phase"], "move");
}

#[test]
fn eviction_stops_when_a_new_pod_has_an_address_of_the_old_pool() {
    let site = with_pods();
    let (run, _) = evict(&site, |number| format!("10.7.0.{}", 6 + number % 2), &[]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("got an address from the old pool again"), "{run:?}");
    let old =
        pods_of(&site).iter().filter(|pod| pod["metadata"]["name"].as_str().unwrap().len() == 5).count();
    assert_eq!(old, 5, "one of four was evicted, and the two others are there");
}

#[test]
fn eviction_stops_where_budgets_let_no_pod_go() {
    let site = with_pods();
    add_budget(&site);
    let (run, least) = evict(&site, |number| format!("10.244.9.{number}"), &["--patience", "2s"]);
    assert_eq!((run.code, least), (1, 4), "{run:?}");
    assert!(run.stderr.contains("for 2s, no eviction was allowed; pods left: 4"), "{run:?}");
}

/// The node of the pod is down, so the pod never ends.
#[test]
fn eviction_does_not_wait_forever_for_a_pod_that_does_not_end() {
    let site = with_pods();
    let mut pods = (0..4).map(|number| web(number, "ReplicaSet", &format!("10.7.0.{number}"), true));
    let mut ending = pods.next().unwrap();
    ending["metadata"]["deletionTimestamp"] = "2026-05-01T11:00:00Z".into();
    ending["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    create_in_etcd(&site.server, "/registry/pods/", &[ending]).unwrap();
    for pod in pods {
        let path = format!("/api/v1/namespaces/default/pods/{}", pod["metadata"]["name"].as_str().unwrap());
        site.server.request("DELETE", &path, r#"{"gracePeriodSeconds":0}"#).unwrap();
    }
    let evict = ["migrate", "--apply", "--from", "p", "--yes", "--evict", "--patience", "2s"];
    let run = site.run(&[&evict, &AT_ONCE[..]].concat()).exits(1);
    let wanted = "evicted pods have not ended after 2s: 1, such as default/web-0";
    assert!(run.stderr.contains(wanted) && run.stderr.contains("hint: is their node down?"), "{run:?}");
}

#[test]
fn an_eviction_shows_how_far_it_is_and_ctrl_c_ends_it() {
    let site = with_pods();
    add_budget(&site);
    let evict = ["migrate", "--apply", "--from", "p", "--yes", "--evict"];
    let mut command = site.command_by(site.server.kubeconfig(), &[&evict, &AT_ONCE[..]].concat());
    command.env("TERM", "xterm-256color");
    Terminal::new(120).converse(&mut command, "evicting: 0 of 4 pods", |_, it| interrupt(it)).exits(130);
    assert_eq!(pods_of(&site).len(), 6, "the budget let none go");
}

/// Creates the pod of a virtual machine.
fn launcher(machine: &str, number: usize, address: &str, phase: &str) -> Value {
    let mut pod = web(number, "VirtualMachineInstance", address, phase == "Running");
    pod["metadata"]["name"] = format!("virt-launcher-{machine}-{number}").into();
    pod["metadata"]["ownerReferences"][0]["name"] = machine.into();
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove("cni.projectcalico.org/ipv4pools");
    pod["status"]["phase"] = phase.into();
    pod
}

/// Before Calico 3.32, a live migration changes the address of a machine. The test plays the role of KubeVirt.
#[test]
fn machines_are_migrated_live_where_that_gives_them_another_address() {
    let site = KubeSite::of(&cluster(), Flavour::Classic);
    add_pool(&site, Flavour::Classic);
    let store = |pods: &[Value]| create_in_etcd(&site.server, "/registry/pods/", pods).unwrap();
    store(&[launcher("db", 0, "10.7.0.0", "Running"), launcher("fixed", 1, "10.7.0.1", "Running")]);
    let disable = ["migrate", "--from", "p", "--to", OLD, "--apply", "--yes", "--force"];
    assert_eq!(site.run(&[&disable[..], &AT_ONCE[..]].concat()).code, 0);
    let evict =
        [&["migrate", "--apply", "--from", "p", "--yes", "--evict", "--patience", "60s"], &AT_ONCE[..]]
            .concat();
    let run = site.run(&evict);
    assert!(run.code == 1 && run.stderr.contains("evicted 0 pods"), "they keep their addresses: {run:?}");

    let mut information = site.list("clusterinformations").remove("default").unwrap();
    information["spec"]["calicoVersion"] = "v3.31.3".into();
    let path = format!("{}/default", Flavour::Classic.path("clusterinformations"));
    assert_eq!(site.server.request("PUT", &path, &information.to_string()).unwrap().status, 200);
    refuse_to_migrate(&site, "fixed");
    let migrations = || {
        let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations";
        let answer = site.server.request("GET", path, "").unwrap();
        serde_json::from_str::<Value>(&answer.body).unwrap()["items"].as_array().unwrap().clone()
    };
    let run = thread::scope(|scope| {
        let run = scope.spawn(|| site.run(&evict));
        while migrations().is_empty() && !run.is_finished() {
            thread::sleep(Duration::from_millis(50));
        }
        store(&[launcher("db", 2, "10.244.9.2", "Running"), launcher("db", 0, "10.7.0.0", "Succeeded")]);
        run.join().unwrap()
    })
    .failed(1, "evicted 1 pod");
    assert!(run.stderr.contains("KubeVirt does not migrate the virtual machine default/fixed: "), "{run:?}");
    let asked: Vec<Value> =
        migrations().iter().map(|migration| migration["spec"]["vmiName"].clone()).collect();
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
        ("validatingadmissionpolicies", of_kind("ValidatingAdmissionPolicy", policy)),
        ("validatingadmissionpolicybindings", of_kind("ValidatingAdmissionPolicyBinding", binding)),
    ] {
        create(&site.server, &format!("/apis/admissionregistration.k8s.io/v1/{plural}"), &[object]).unwrap();
    }
    // Waits until the API server enforces the policy.
    let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations?dryRun=All";
    let migration = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "trial"}, "spec": {"vmiName": machine}});
    while site.server.request("POST", path, &migration.to_string()).unwrap().status == 201 {
        thread::sleep(Duration::from_millis(100));
    }
}
