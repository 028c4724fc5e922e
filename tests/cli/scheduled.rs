//! Scheduled checks: the files of `docs/kubernetes/` and `docs/systemd/`.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use calipam_testkit::kube::{Flavour, Kinds, create, lease};
use calipam_testkit::servers::KubeApiserver;
use serde::Deserialize;
use serde_json::{Value, json};

use super::kube_cluster::KubeCluster;
use super::program::{EXAMPLE, Run, calipam, command, root, scratch};

const MANIFESTS: [&str; 5] = ["namespace.yaml", "rbac.yaml", "cronjob.yaml", "metrics.yaml", "archive.yaml"];

pub(super) fn text(path: &str) -> String {
    fs::read_to_string(root().join("docs").join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Reads the documents of a file of `docs/kubernetes/`.
pub(super) fn documents(name: &str) -> Vec<Value> {
    let text = text(&format!("kubernetes/{name}"));
    serde_yaml::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).unwrap_or_else(|e| panic!("{name}: {e}")))
        .collect()
}

/// Returns the objects in [`MANIFESTS`], all of which have kinds that are built into Kubernetes.
fn objects() -> Vec<Value> {
    MANIFESTS.iter().flat_map(|name| documents(name)).collect()
}

fn of_kind(kind: &str) -> Value {
    objects().into_iter().find(|object| object["kind"] == kind).expect(kind)
}

/// The manifests of the plugin's installer.
pub(super) const PLUGIN: [&str; 3] = ["cni/namespace.yaml", "cni/rbac.yaml", "cni/daemonset.yaml"];
/// The manifest of `calipam serve`. It replaces both the job and the deployment that serves the job's metrics.
const SERVE: &str = "serve.yaml";
/// The network policy, both for `serve` and for the job with its metrics.
const POLICY: &str = "networkpolicy.yaml";

/// Returns the API path for creating an object.
pub(super) fn collection(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("calipam");
    let of_core = format!("/api/v1/namespaces/{namespace}");
    match object["kind"].as_str().unwrap() {
        "Namespace" => "/api/v1/namespaces".into(),
        "ServiceAccount" => format!("{of_core}/serviceaccounts"),
        "ConfigMap" => format!("{of_core}/configmaps"),
        "PersistentVolumeClaim" => format!("{of_core}/persistentvolumeclaims"),
        "Service" => format!("{of_core}/services"),
        "Pod" => format!("{of_core}/pods"),
        "CronJob" => "/apis/batch/v1/namespaces/calipam/cronjobs".into(),
        "DaemonSet" => format!("/apis/apps/v1/namespaces/{namespace}/daemonsets"),
        "Deployment" => "/apis/apps/v1/namespaces/calipam/deployments".into(),
        "NetworkPolicy" => "/apis/networking.k8s.io/v1/namespaces/calipam/networkpolicies".into(),
        "Role" => "/apis/rbac.authorization.k8s.io/v1/namespaces/calipam/roles".into(),
        "RoleBinding" => "/apis/rbac.authorization.k8s.io/v1/namespaces/calipam/rolebindings".into(),
        "ClusterRole" => "/apis/rbac.authorization.k8s.io/v1/clusterroles".into(),
        "ClusterRoleBinding" => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".into(),
        kind => panic!("{kind} is not in this list"),
    }
}

/// Returns the server's response to the creation of an object in a dry run, with unknown fields as errors.
fn dry_run(server: &KubeApiserver, object: &Value) -> (u16, String) {
    let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(object));
    let answer = server.request("POST", &path, &object.to_string()).unwrap();
    (answer.status, answer.body)
}

#[test]
fn a_real_api_server_accepts_the_manifests_and_their_pods() {
    let server = lease(Kinds::Kubernetes).unwrap();
    let mut namespace = of_kind("Namespace");
    assert_eq!(dry_run(&server, &namespace).0, 201);
    create(&server, &collection(&namespace), &[namespace.clone()]).unwrap();
    let others: Vec<Value> = objects().into_iter().filter(|object| object["kind"] != "Namespace").collect();
    assert_eq!(others.len(), 13);
    let serve = documents(SERVE);
    assert_eq!(serve.len(), 4);
    for object in others.iter().chain(&serve).chain(&documents(POLICY)) {
        let (status, body) = dry_run(&server, object);
        assert_eq!(status, 201, "{object}: {body}");
    }

    // The namespace enforces the security level only for pods, so the templates of workloads are created as pods.
    let pods = [
        &of_kind("CronJob")["spec"]["jobTemplate"]["spec"]["template"],
        &of_kind("Deployment")["spec"]["template"],
        &serve.iter().find(|object| object["kind"] == "Deployment").unwrap()["spec"]["template"],
    ]
    .map(|template| {
        let mut pod = template.clone();
        (pod["apiVersion"], pod["kind"]) = ("v1".into(), "Pod".into());
        pod["metadata"]["name"] = "one".into();
        pod
    });
    for pod in &pods {
        let (status, body) = dry_run(&server, pod);
        assert_eq!(status, 201, "{body}");
    }

    // The plugin's installer writes to its node. Only its own namespace allows that.
    let installer = PLUGIN.map(documents).concat();
    let kinds: Vec<&str> = installer.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet"]);
    create(&server, &collection(&installer[0]), &installer[..1]).unwrap();
    for object in &installer[1..] {
        let (status, body) = dry_run(&server, object);
        assert_eq!(status, 201, "{object}: {body}");
    }
    let mut pod = installer[4]["spec"]["template"].clone();
    (pod["apiVersion"], pod["kind"]) = ("v1".into(), "Pod".into());
    (pod["metadata"]["name"], pod["metadata"]["namespace"]) = ("one".into(), "calipam-cni".into());
    create(&server, &collection(&installer[1]), &installer[1..2]).unwrap();
    let (status, body) = dry_run(&server, &pod);
    assert_eq!(status, 201, "{body}");
    pod["metadata"]["namespace"] = "calipam".into();
    assert_eq!(dry_run(&server, &pod).0, 403, "the other namespace does not");

    // Both checks can fail: for an unknown field, and for a pod with more privileges.
    let mut unknown = of_kind("CronJob");
    unknown["spec"]["scedule"] = "* * * * *".into();
    assert_eq!(dry_run(&server, &unknown).0, 400);
    let mut root = pods[0].clone();
    root["spec"]["securityContext"]["runAsNonRoot"] = false.into();
    assert_eq!(dry_run(&server, &root).0, 403);
    namespace["metadata"]["name"] = "No Name".into();
    assert_eq!(dry_run(&server, &namespace).0, 422);
}

/// The manifests refer only to objects in other manifests.
#[test]
fn the_manifests_fit_together() {
    let account = of_kind("ServiceAccount");
    let pod = &of_kind("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
    let subject = &of_kind("ClusterRoleBinding")["subjects"][0];
    assert_eq!((&subject["name"], &subject["namespace"]), (&account["metadata"]["name"], &"calipam".into()));

    let served = &of_kind("Deployment")["spec"]["template"];
    let claim = &of_kind("PersistentVolumeClaim")["metadata"]["name"];
    for volumes in [&pod["volumes"], &served["spec"]["volumes"]] {
        assert_eq!(&volumes[0]["persistentVolumeClaim"]["claimName"], claim);
    }
    assert_eq!(pod["volumes"][1]["configMap"]["name"], of_kind("ConfigMap")["metadata"]["name"]);
    let near =
        &pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"];
    let service = of_kind("Service");
    let [monitor, rules] = &documents("prometheus.yaml")[..] else { panic!("two objects") };
    for selected in [monitor, rules] {
        assert_eq!(selected["metadata"]["labels"], json!({"release": "kube-prometheus-stack"}));
    }
    assert_eq!(served["metadata"]["labels"], near["matchLabels"]);
    assert_eq!(served["metadata"]["labels"], service["spec"]["selector"]);
    assert_eq!(service["metadata"]["labels"], monitor["spec"]["selector"]["matchLabels"]);
    assert_eq!(service["spec"]["ports"][0]["name"], monitor["spec"]["endpoints"][0]["port"]);
    assert_eq!(pod["securityContext"]["runAsUser"], 65532, "the user of the image");
    assert!(pod["containers"][0].get("command").is_none(), "the entry point is the program");
    let image = &documents("kustomization.yaml")[0]["images"][0]["name"];
    assert_eq!(pod["containers"][0]["image"], format!("{}:latest", image.as_str().unwrap()));
    assert_eq!(documents("kustomization.yaml")[0]["resources"], json!(MANIFESTS));
}

/// `serve.yaml` replaces the manifests of the job and of its metrics. It has the same account, accepted findings,
/// labels and port name, so that prometheus.yaml selects it. Its paths and port are those of the program.
#[test]
fn the_server_takes_the_place_of_job_and_metrics() {
    // Both variants use only the port that the policy allows.
    let policy = &documents(POLICY)[0]["spec"];
    assert_eq!((&policy["podSelector"], &policy["policyTypes"]), (&json!({}), &json!(["Ingress"])));
    let [account, accepted, deployment, service] = &documents(SERVE)[..] else { panic!("{SERVE}") };
    assert_eq!((account, &accepted["data"]), (&of_kind("ServiceAccount"), &of_kind("ConfigMap")["data"]));
    let pod = &deployment["spec"]["template"];
    assert_eq!(pod["spec"]["serviceAccountName"], account["metadata"]["name"]);
    assert_eq!(pod["metadata"]["labels"], service["spec"]["selector"]);
    assert_eq!(service["metadata"]["labels"], of_kind("Service")["metadata"]["labels"]);
    assert_eq!(service["spec"]["ports"][0]["name"], of_kind("Service")["spec"]["ports"][0]["name"]);
    let container = &pod["spec"]["containers"][0];
    let args: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    for container in [container, &of_kind("Deployment")["spec"]["template"]["spec"]["containers"][0]] {
        assert_eq!(container["ports"].as_array().unwrap().len(), 1);
        assert_eq!(policy["ingress"][0]["ports"], json!([{ "port": container["ports"][0]["name"] }]));
    }
    let port = container["ports"][0]["containerPort"].to_string();
    assert!(args.iter().any(|arg| *arg == format!("--listen=[::]:{port}")), "{args:?}");
    let help = calipam(&["serve", "--help"]).stdout;
    for probe in ["readinessProbe", "livenessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap();
        assert!(help.contains(&format!("\n  {path} ")), "{path} in {help}");
    }
    // With an unknown option, the program would end before it reads this file.
    let mut words: Vec<String> = args.iter().filter(|arg| !arg.starts_with("--ignore")).cloned().collect();
    words.extend(["--ignore=/no/such/file".to_owned()]);
    calipam(&words.iter().map(String::as_str).collect::<Vec<_>>()).failed(3, "cannot read /no/such/file");
}

/// Runs a documented command line on `datastore`. Its files are in a folder of the test.
fn run_in(folder: &Path, datastore: &str, words: &[String]) -> Run {
    let here = folder.display().to_string();
    let moved: Vec<String> = words
        .iter()
        .filter(|word| !word.starts_with("--datastore"))
        .map(|word| {
            ["/reports", "/etc/calipam", "/var/lib/calipam"]
                .iter()
                .fold(word.clone(), |word, place| word.replace(place, &here))
        })
        .map(|word| if word == "30s" { "0s".into() } else { word })
        .chain(["--datastore".into(), datastore.into()])
        .collect();
    calipam(&moved.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn the_job_and_the_service_write_their_reports() {
    let ignore = of_kind("ConfigMap")["data"]["ignore"].as_str().unwrap().to_owned();
    let args =
        &of_kind("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"];
    let job: Vec<String> = serde_json::from_value(args.clone()).unwrap();
    let unit = text("systemd/calipam-check.service").replace("\\\n", " ");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/calipam ")).unwrap();
    let service: Vec<String> = start.split_whitespace().map(str::to_owned).collect();

    // The job fails only if the check fails; the service also fails with findings.
    for (words, code) in [(job, 0), (service, 1)] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ignore"), &ignore).unwrap();
        let run = run_in(folder.path(), EXAMPLE, &words);
        assert_eq!((run.code, run.stderr.as_str()), (code, ""), "{run:?}");
        let written = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(written("calipam.prom").contains("\ncalipam_up 1\n"));
        let report: Value = serde_json::from_str(&written("report.json")).unwrap();
        assert_eq!(report["kind"], "CheckReport");
        assert!(written("report.html").starts_with("<!DOCTYPE html>"));

        let dead = run_in(folder.path(), "/no/such/cluster", &words);
        assert!(dead.code >= 2 && dead.stderr.starts_with("error: "), "{dead:?}");
        assert!(written("calipam.prom").contains("\ncalipam_up 0\n"));
        assert_eq!(serde_json::from_str::<Value>(&written("report.json")).unwrap(), report);
    }
}

/// Runs both ways of keeping an archive, the job and the crontab line. Each runs twice, as on two days.
#[test]
fn the_archive_is_kept_by_a_job_and_by_cron() {
    let job = &documents("archive.yaml")[1];
    let args = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"];
    let job: Vec<String> = serde_json::from_value(args.clone()).unwrap();
    let crontab = text("systemd/crontab");
    let line = crontab.lines().find_map(|line| line.split("$(calipam export ").nth(1)).unwrap();
    let line = line.split(" 2>&1)").next().unwrap();
    let cron = std::iter::once("export").chain(line.split_whitespace()).map(str::to_owned).collect();
    for words in [job, cron] {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("archive").display().to_string();
        let moved: Vec<String> = words
            .iter()
            .filter(|word| !word.starts_with("--datastore"))
            .map(|word| word.replace("/var/lib/calipam/archive", &here).replace("/archive/exports", &here))
            .chain(["--datastore".into(), EXAMPLE.into()])
            .collect();
        let moved: Vec<&str> = moved.iter().map(String::as_str).collect();
        for _ in 0..2 {
            let run = calipam(&moved);
            let expected = (0, "exit code: 0\n--- stdout\n--- stderr\n");
            assert_eq!((run.code, run.transcript().as_str()), expected, "{run:?}");
        }
        calipam(&["history", "--archive", &here, "--ip", "10.244.10.6"]).succeeded().prints("1 export from ");
    }
}

/// Runs the line of `docs/systemd/crontab` as cron does: with /bin/sh, without a terminal, and with few variables.
fn cron(folder: &Path, datastore: &str) -> Run {
    let crontab = text("systemd/crontab");
    let line = crontab.lines().find_map(|line| line.strip_prefix("*/15 * * * * ")).unwrap();
    assert!(!line.contains('%'), "cron takes it for the end of the line");
    let ignore = folder.join("ignore");
    fs::write(&ignore, "# nothing\n").unwrap();
    let line = line
        .replace("calipam check", &format!("{} check --datastore {datastore}", crate::cli::PROGRAM))
        .replace("/etc/calipam/ignore", ignore.to_str().unwrap())
        .replace("/var/lib/calipam", folder.to_str().unwrap())
        .replace("--confirm 30s", "--confirm 0s");
    let output = command("/bin/sh").args(["-c", &line]).stdin(Stdio::null()).output();
    Run::ended(output.unwrap())
}

#[test]
fn cron_mails_only_failures_with_their_reason() {
    let (folder, healthy) = scratch("healthy.jsonl");
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_node("node-1", json!({}));
    cluster.add_block("10.0.0.0/26", "node-1", &[]);
    cluster.run(&["export", healthy.to_str().unwrap()]).succeeded();

    let run = cron(folder.path(), healthy.to_str().unwrap());
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));

    fs::remove_file(folder.path().join("last.json")).unwrap();
    let run = cron(folder.path(), EXAMPLE);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
    assert!(run.stdout.contains("\ncritical  duplicate-address "), "{run:?}");
    assert!(run.stdout.contains("\n34 findings: 2 critical, "), "{run:?}");
    assert!(!run.stdout.contains('\u{1b}') && !run.stdout.contains("hint: "), "{run:?}");

    let run = cron(folder.path(), EXAMPLE);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""), "nothing is new");

    let run = cron(folder.path(), "/no/such/cluster").exits(3).prints_nothing();
    assert!(run.stderr.starts_with("error: /no/such/cluster: No such file or directory"), "{run:?}");

    // An unreachable etcd.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("etcd --etcd-endpoints http://{}", taken.local_addr().unwrap());
    drop(taken);
    let run = cron(folder.path(), &dead).exits(3).prints_nothing();
    assert!(run.stderr.starts_with("error: cannot use etcd: ") && run.stderr.contains("\nhint: "), "{run:?}");
}
