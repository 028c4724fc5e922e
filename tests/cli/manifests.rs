//! Applies `docs/kubernetes` with `kubectl apply -k` and Helm, on a real API server with Calico's objects in either
//! group.

use std::path::Path;
use std::time::{Duration, Instant};

use calipam_testkit::kube::{Flavour, create};
use calipam_testkit::servers::{KubeApiserver, Tool, find, helm};
use serde_json::{Value, json};

use super::kube_cluster::KubeCluster;
use super::program::{Run, Words, command, scratch};
use super::scheduled::{documents, parsed};

const FLAVOURS: [Flavour; 2] = [Flavour::Classic, Flavour::Native];
/// The time limit for a new policy or binding to take effect.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs kubectl as an administrator.
fn kube(server: &KubeApiserver, arguments: &str) -> Run {
    let mut kubectl = command(find(Tool::Kubectl).unwrap());
    kubectl
        .arg("--kubeconfig")
        .arg(server.kubeconfig())
        .args(arguments.words());
    kubectl.env("KUBECACHEDIR", server.kubeconfig().with_file_name("cache"));
    Run::of(kubectl)
}

/// Runs a check of the cluster as a service account.
fn check_as(cluster: &KubeCluster, account: &str) -> Run {
    cluster.run(&format!("check --settle 0 --as system:serviceaccount:{account}"))
}

/// Waits until the account may check, since new permissions take a moment.
#[track_caller]
fn assert_checks(cluster: &KubeCluster, account: &str) {
    let end = Instant::now() + PATIENCE;
    loop {
        let run = check_as(cluster, account);
        if run.code != 3 || Instant::now() > end {
            return drop(run.succeeded());
        }
    }
}

#[test]
fn kustomizations_and_output_of_helm_are_accepted_and_their_account_may_check() {
    let (_folder, path) = scratch("rendered.yaml");
    for flavour in FLAVOURS {
        let cluster = KubeCluster::start(flavour);
        for (folder, objects) in [("docs/kubernetes", 14), ("docs/kubernetes/cni", 5)] {
            // A dry run does not store the namespace, which the other objects need.
            kube(&cluster.server, &format!("apply -f {folder}/namespace.yaml")).succeeded();
            let dry = kube(&cluster.server, &format!("apply -k {folder} --dry-run=server")).succeeded();
            assert_eq!(dry.stdout.lines().count(), objects, "{dry:?}");
            assert!(
                dry.stdout.lines().all(|line| line.ends_with("(server dry run)")),
                "{dry:?}"
            );
        }
        assert_eq!(
            check_as(&cluster, "calipam:calipam").code,
            3,
            "nothing is bound yet"
        );
        kube(&cluster.server, "apply -f docs/kubernetes/rbac.yaml").succeeded();
        assert_checks(&cluster, "calipam:calipam");

        let Some(helm) = helm() else { continue };
        cluster.add_namespace("watching");
        let apply = |chart: &str, settings: &[&str], option: &str| {
            std::fs::write(&path, rendered(&helm, chart, "watching", settings)).unwrap();
            kube(&cluster.server, &format!("apply -f {} {option}", path.display())).succeeded();
        };
        apply("calipam", &[], "--dry-run=server");
        apply("calipam", &["serve=true", "archive=false"], "--dry-run=server");
        apply("calipam-cni", &["seLinuxOptions.type=spc_t"], "--dry-run=server");
        apply("calipam", &["serve=true"], "");
        assert_checks(&cluster, "watching:calipam");
    }
}

/// Renders a chart with Helm.
fn rendered(helm: &Path, chart: &str, namespace: &str, settings: &[&str]) -> String {
    let mut helm = command(helm);
    helm.args([
        "template",
        chart,
        &format!("docs/kubernetes/charts/{chart}"),
        "--namespace",
        namespace,
    ]);
    Run::of(helm.args(settings.iter().flat_map(|setting| ["--set", setting])))
        .succeeded()
        .stdout
}

/// Parses the YAML objects in `text`, and sorts them by kind and name.
fn objects(text: &str) -> Vec<Value> {
    sorted(
        parsed(text)
            .into_iter()
            .filter(|object| !object.is_null())
            .collect(),
    )
}

fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(|object| (object["kind"].to_string(), object["metadata"]["name"].to_string()));
    objects
}

#[test]
fn a_chart_makes_the_manifests_unless_a_setting_says_otherwise() {
    let Some(helm) = helm() else { return };
    let manifests = |names: &[&str]| sorted(names.iter().flat_map(|name| documents(name)).collect());
    for (settings, names) in [
        (
            &[][..],
            &["rbac.yaml", "cronjob.yaml", "metrics.yaml", "archive.yaml"][..],
        ),
        (
            &["serve=true", "archive=false", "prometheus=true"],
            &["rbac.yaml", "serve.yaml", "prometheus.yaml"],
        ),
    ] {
        let expected = manifests(names);
        assert_eq!(
            objects(&rendered(&helm, "calipam", "calipam", settings)),
            expected,
            "{settings:?}"
        );
    }
    let plugin = objects(&rendered(&helm, "calipam-cni", "calipam-cni", &[]));
    assert_eq!(plugin, manifests(&["cni/rbac.yaml", "cni/daemonset.yaml"]));
    let set = [
        "binDir=/b",
        "confDir=/c",
        "image=i",
        "seLinuxOptions.type=spc_t",
        "nodeSelector.zone=z",
    ];
    let text = rendered(&helm, "calipam-cni", "other", &set);
    for word in [
        "path: /b\n",
        "path: /c\n",
        "--conf-dir=/c\n",
        "image: i\n",
        "type: spc_t\n",
        "zone: z\n",
    ] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
    assert!(
        !text.contains("namespace: calipam") && text.contains("namespace: other\n"),
        "{text}"
    );
}

/// Creates a token as the kubelet does, for the installer's pod on a node.
fn token_on(server: &KubeApiserver, node: &str) -> String {
    let namespace = "/api/v1/namespaces/calipam-cni";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("installer-{node}")},
        "spec": {"nodeName": node, "serviceAccountName": "calipam-cni", "hostNetwork": true,
            "containers": [{"name": "installer", "image": "i"}]}});
    create(server, &format!("{namespace}/pods"), &[pod]).unwrap();
    let bound = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": format!("installer-{node}")}}});
    let path = format!("{namespace}/serviceaccounts/calipam-cni/token");
    let answer = server.request("POST", &path, &bound.to_string()).unwrap();
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    answer["status"]["token"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
        .to_owned()
}

#[test]
fn the_policy_limits_the_installer_to_its_annotation_of_its_node() {
    let cluster = KubeCluster::start(Flavour::Classic);
    let server = &cluster.server;
    for node in ["a", "b"] {
        cluster.add_node(node, json!({"other": "1"}));
    }
    for name in ["namespace", "rbac", "own-node"] {
        kube(server, &format!("apply -f docs/kubernetes/cni/{name}.yaml")).succeeded();
    }
    let token = token_on(server, "a");
    let patch = |node: &str, change: Value| {
        let answer = server
            .request_as(
                &token,
                "PATCH",
                &format!("/api/v1/nodes/{node}"),
                &change.to_string(),
            )
            .unwrap();
        (answer.status, answer.body)
    };
    let annotate =
        |node, name: &str, value: Value| patch(node, json!({"metadata": {"annotations": {name: value}}}));
    let plugin = "calipam.io/cni-plugin";
    let end = Instant::now() + PATIENCE;
    loop {
        let [own, other] = ["a", "b"].map(|node| annotate(node, plugin, "x".into()));
        if (own.0, other.0) == (200, 422) {
            break;
        }
        assert!(Instant::now() < end, "{own:?} {other:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    for value in [json!("calipam 0.1.0"), Value::Null] {
        assert_eq!(annotate("a", plugin, value).0, 200);
    }
    for (status, said) in [
        annotate("b", plugin, "calipam 0.1.0".into()),
        annotate("a", "other", "2".into()),
        annotate("a", "other", Value::Null),
        annotate("a", "another", "1".into()),
        patch("a", json!({"spec": {"unschedulable": true}})),
        patch("a", json!({"metadata": {"labels": {"zone": "z"}}})),
        patch("a", json!({"metadata": {"finalizers": ["calipam.io/never"]}})),
    ] {
        assert!(
            status == 422 && said.contains("the installer of the plugin may change"),
            "{status}: {said}"
        );
    }
    // The policy does not affect administrators.
    kube(server, "annotate --overwrite node b other=2").succeeded();
}
