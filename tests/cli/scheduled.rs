//! Scheduled checks: the files of `docs/kubernetes/` and `docs/systemd/`.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use calipam_testkit::kube::{Flavour, Kinds, create, lease};
use calipam_testkit::servers::KubeApiserver;
use serde::Deserialize;
use serde_json::{Value, json};

use super::kube_cluster::KubeCluster;
use super::program::{EXAMPLE, Run, Words, calipam, command, items, root, scratch};

const MANIFESTS: [&str; 5] = [
    "namespace.yaml",
    "rbac.yaml",
    "cronjob.yaml",
    "metrics.yaml",
    "archive.yaml",
];

pub(super) fn text(path: &str) -> String {
    fs::read_to_string(root().join("docs").join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Parses YAML documents.
pub(super) fn parsed(text: &str) -> Vec<Value> {
    let document = |of| Value::deserialize(of).unwrap_or_else(|error| panic!("{error}: {text}"));
    serde_yaml::Deserializer::from_str(text).map(document).collect()
}

/// Reads the documents of a file of `docs/kubernetes/`.
pub(super) fn documents(name: &str) -> Vec<Value> {
    parsed(&text(&format!("kubernetes/{name}")))
}

/// Returns the objects in [`MANIFESTS`], all of which have kinds that are built into Kubernetes.
fn objects() -> Vec<Value> {
    MANIFESTS.iter().flat_map(|name| documents(name)).collect()
}

fn of_kind(kind: &str) -> Value {
    objects()
        .into_iter()
        .find(|object| object["kind"] == kind)
        .expect(kind)
}

/// Returns the pod of a job.
fn job_pod(job: &Value) -> &Value {
    &job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
}

/// Returns the arguments of the only container of a pod.
fn arguments(pod: &Value) -> Vec<String> {
    serde_json::from_value(pod["containers"][0]["args"].clone()).unwrap()
}

/// The manifests of the plugin's installer.
const PLUGIN: [&str; 3] = ["cni/namespace.yaml", "cni/rbac.yaml", "cni/daemonset.yaml"];
/// The manifest of `calipam serve`. It replaces both the job and the deployment that serves the job's metrics.
const SERVE: &str = "serve.yaml";
/// The network policy, both for `serve` and for the job with its metrics.
const POLICY: &str = "networkpolicy.yaml";

/// Returns the API path for creating an object.
fn collection(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let api = if version == "v1" { "api" } else { "apis" };
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let plural = kind
        .strip_suffix('y')
        .map_or(format!("{kind}s"), |begin| format!("{begin}ies"));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{api}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/{api}/{version}/{plural}"),
    }
}

/// Creates objects of manifests.
pub(super) fn create_all<'o>(server: &KubeApiserver, objects: impl IntoIterator<Item = &'o Value>) {
    for object in objects {
        create(server, &collection(object), std::slice::from_ref(object)).unwrap();
    }
}

/// The objects of the kustomizations are accepted too (`manifests.rs`). The namespaces enforce their security level only
/// for pods, so the templates of workloads are created as pods.
#[test]
fn a_real_api_server_accepts_the_pods_of_the_manifests() {
    let server = lease(Kinds::Kubernetes).unwrap();
    // The result of a dry run, with unknown fields as errors.
    let dry_run = |object: &Value| {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(object));
        let answer = server.request("POST", &path, &object.to_string()).unwrap();
        (answer.status, answer.body)
    };
    let accepts = |object: &Value| {
        let (status, body) = dry_run(object);
        assert_eq!(status, 201, "{object}: {body}");
    };
    let installer = PLUGIN.map(documents).concat();
    let kinds: Vec<&str> = installer
        .iter()
        .map(|object| object["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "Namespace",
            "ServiceAccount",
            "ClusterRole",
            "ClusterRoleBinding",
            "DaemonSet"
        ]
    );
    create_all(&server, [&of_kind("Namespace"), &installer[0], &installer[1]]);
    let serve = documents(SERVE);
    assert_eq!(serve.len(), 4);
    serve.iter().chain(&documents(POLICY)).for_each(accepts);

    let pod = |template: &Value, namespace: &str| {
        let mut pod = template.clone();
        (pod["apiVersion"], pod["kind"]) = ("v1".into(), "Pod".into());
        (pod["metadata"]["name"], pod["metadata"]["namespace"]) = ("one".into(), namespace.into());
        pod
    };
    let job = pod(
        &of_kind("CronJob")["spec"]["jobTemplate"]["spec"]["template"],
        "calipam",
    );
    accepts(&job);
    for workload in [&of_kind("Deployment"), &serve[2]] {
        assert_eq!(workload["kind"], "Deployment");
        accepts(&pod(&workload["spec"]["template"], "calipam"));
    }
    // The plugin's installer writes to its node. Only its own namespace allows that.
    let template = &installer[4]["spec"]["template"];
    accepts(&pod(template, "calipam-cni"));
    assert_eq!(
        dry_run(&pod(template, "calipam")).0,
        403,
        "the other namespace does not"
    );

    // Both checks can fail: for an unknown field, and for a pod with more privileges.
    let mut unknown = of_kind("CronJob");
    unknown["spec"]["scedule"] = "* * * * *".into();
    assert_eq!(dry_run(&unknown).0, 400);
    let mut root = job.clone();
    root["spec"]["securityContext"]["runAsNonRoot"] = false.into();
    assert_eq!(dry_run(&root).0, 403);
    let mut namespace = of_kind("Namespace");
    namespace["metadata"]["name"] = "No Name".into();
    assert_eq!(dry_run(&namespace).0, 422);
}

/// The manifests refer only to objects in other manifests.
#[test]
fn the_manifests_fit_together() {
    let account = of_kind("ServiceAccount");
    let job = of_kind("CronJob");
    let pod = job_pod(&job);
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
    let subject = &of_kind("ClusterRoleBinding")["subjects"][0];
    assert_eq!(
        (&subject["name"], &subject["namespace"]),
        (&account["metadata"]["name"], &"calipam".into())
    );

    let served = &of_kind("Deployment")["spec"]["template"];
    let claim = &of_kind("PersistentVolumeClaim")["metadata"]["name"];
    for volumes in [&pod["volumes"], &served["spec"]["volumes"]] {
        assert_eq!(&volumes[0]["persistentVolumeClaim"]["claimName"], claim);
    }
    assert_eq!(
        pod["volumes"][1]["configMap"]["name"],
        of_kind("ConfigMap")["metadata"]["name"]
    );
    let near =
        &pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"];
    let service = of_kind("Service");
    let [monitor, rules] = &documents("prometheus.yaml")[..] else {
        panic!("two objects")
    };
    for selected in [monitor, rules] {
        assert_eq!(
            selected["metadata"]["labels"],
            json!({"release": "kube-prometheus-stack"})
        );
    }
    assert_eq!(served["metadata"]["labels"], near["matchLabels"]);
    assert_eq!(served["metadata"]["labels"], service["spec"]["selector"]);
    assert_eq!(
        service["metadata"]["labels"],
        monitor["spec"]["selector"]["matchLabels"]
    );
    assert_eq!(
        service["spec"]["ports"][0]["name"],
        monitor["spec"]["endpoints"][0]["port"]
    );
    assert_eq!(
        pod["securityContext"]["runAsUser"], 65532,
        "the user of the image"
    );
    assert!(
        pod["containers"][0].get("command").is_none(),
        "the entry point is the program"
    );
    let image = &documents("kustomization.yaml")[0]["images"][0]["name"];
    assert_eq!(
        pod["containers"][0]["image"],
        format!("{}:latest", image.as_str().unwrap())
    );
    assert_eq!(documents("kustomization.yaml")[0]["resources"], json!(MANIFESTS));
}

/// `serve.yaml` replaces the manifests of the job and of its metrics. It has the same account, accepted findings,
/// labels and port name, so that prometheus.yaml selects it. Its paths and port are those of the program.
#[test]
fn the_server_takes_the_place_of_job_and_metrics() {
    // Both variants use only the port that the policy allows.
    let policy = &documents(POLICY)[0]["spec"];
    assert_eq!(
        (&policy["podSelector"], &policy["policyTypes"]),
        (&json!({}), &json!(["Ingress"]))
    );
    let [account, accepted, deployment, service] = &documents(SERVE)[..] else {
        panic!("{SERVE}")
    };
    assert_eq!(
        (account, &accepted["data"]),
        (&of_kind("ServiceAccount"), &of_kind("ConfigMap")["data"])
    );
    let pod = &deployment["spec"]["template"];
    assert_eq!(pod["spec"]["serviceAccountName"], account["metadata"]["name"]);
    assert_eq!(pod["metadata"]["labels"], service["spec"]["selector"]);
    assert_eq!(
        service["metadata"]["labels"],
        of_kind("Service")["metadata"]["labels"]
    );
    assert_eq!(
        service["spec"]["ports"][0]["name"],
        of_kind("Service")["spec"]["ports"][0]["name"]
    );
    let container = &pod["spec"]["containers"][0];
    let args = arguments(&pod["spec"]);
    for container in [
        container,
        &of_kind("Deployment")["spec"]["template"]["spec"]["containers"][0],
    ] {
        assert_eq!(items(&container["ports"]).len(), 1);
        assert_eq!(
            policy["ingress"][0]["ports"],
            json!([{ "port": container["ports"][0]["name"] }])
        );
    }
    let port = container["ports"][0]["containerPort"].to_string();
    assert!(
        args.iter().any(|arg| *arg == format!("--listen=[::]:{port}")),
        "{args:?}"
    );
    for probe in ["readinessProbe", "livenessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap();
        calipam("serve --help").prints(&format!("\n  {path} "));
    }
    // With an unknown option, the program would end before it reads this file.
    let mut words: Vec<String> = args
        .into_iter()
        .filter(|arg| !arg.starts_with("--ignore"))
        .collect();
    words.push("--ignore=/no/such/file".to_owned());
    calipam(&words).failed(3, "cannot read /no/such/file");
}

/// Runs a documented command line on `datastore`. Its files are in a folder of the test.
fn run_in(folder: &Path, datastore: &str, words: &[String]) -> Run {
    let here = folder.display().to_string();
    let places = ["/reports", "/etc/calipam", "/var/lib/calipam", "/archive/exports"];
    let moved = |word: &String| {
        places
            .iter()
            .fold(word.clone(), |word, place| word.replace(place, &here))
    };
    let words = words
        .iter()
        .filter(|word| !word.starts_with("--datastore"))
        .map(moved);
    let words = words.map(|word| if word == "30s" { "0s".into() } else { word });
    calipam(
        &words
            .chain(["--datastore".into(), datastore.into()])
            .collect::<Vec<_>>(),
    )
}

#[test]
fn the_job_and_the_service_write_their_reports() {
    let ignore = of_kind("ConfigMap")["data"]["ignore"]
        .as_str()
        .unwrap()
        .to_owned();
    let job = arguments(job_pod(&of_kind("CronJob")));
    let unit = text("systemd/calipam-check.service").replace("\\\n", " ");
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/calipam "))
        .unwrap();

    // The job fails only if the check fails; the service also fails with findings.
    for (words, code) in [(job, 0), (start.words(), 1)] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ignore"), &ignore).unwrap();
        run_in(folder.path(), EXAMPLE, &words).exits(code).says_nothing();
        let written = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(written("calipam.prom").contains("\ncalipam_up 1\n"));
        let report: Value = serde_json::from_str(&written("report.json")).unwrap();
        assert_eq!(report["kind"], "CheckReport");
        assert!(written("report.html").starts_with("<!DOCTYPE html>"));

        let dead = run_in(folder.path(), "/no/such/cluster", &words);
        assert!(dead.code >= 2 && dead.stderr.starts_with("error: "), "{dead:?}");
        assert!(written("calipam.prom").contains("\ncalipam_up 0\n"));
        assert_eq!(
            serde_json::from_str::<Value>(&written("report.json")).unwrap(),
            report
        );
    }
}

/// Runs both ways of keeping an archive, the job and the crontab line. Each runs twice, as on two days.
#[test]
fn the_archive_is_kept_by_a_job_and_by_cron() {
    let job = arguments(job_pod(&documents("archive.yaml")[1]));
    let crontab = text("systemd/crontab");
    let line = crontab
        .lines()
        .find_map(|line| line.split("$(calipam ").nth(1))
        .unwrap();
    for (words, place) in [
        (job, ""),
        (line.split(" 2>&1)").next().unwrap().words(), "archive"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            run_in(folder.path(), EXAMPLE, &words)
                .succeeded()
                .prints_nothing()
                .says_nothing();
        }
        let archive = folder.path().join(place);
        calipam(&format!(
            "history --archive {} --ip 10.244.10.6",
            archive.display()
        ))
        .succeeded()
        .prints("1 export from ");
    }
}

/// Runs the line of `docs/systemd/crontab` as cron does: with /bin/sh, without a terminal, and with few variables.
fn cron(folder: &Path, datastore: &str) -> Run {
    let crontab = text("systemd/crontab");
    let described = text("scheduled-checks.md");
    for line in crontab.lines().filter(|line| !line.starts_with('#')) {
        assert!(
            described.contains(&format!("\n{line}\n")),
            "the examples run another line than {line}"
        );
    }
    let line = crontab
        .lines()
        .find_map(|line| line.strip_prefix("*/15 * * * * "))
        .unwrap();
    let line = line
        .replace(
            "calipam check",
            &format!("{} check --datastore {datastore}", crate::cli::PROGRAM),
        )
        .replace("/var/lib/calipam", folder.to_str().unwrap())
        .replace("--confirm 30s", "--confirm 0s");
    Run::of(command("/bin/sh").args(["-c", &line]))
}

#[test]
fn cron_mails_only_failures_with_their_reason() {
    let (folder, healthy) = scratch("healthy.jsonl");
    let cluster = KubeCluster::with_nodes(Flavour::Classic, &["node-1"]);
    cluster.add_block("10.0.0.0/26", "node-1", &[]);
    cluster.run(&["export", healthy.to_str().unwrap()]).succeeded();

    cron(folder.path(), healthy.to_str().unwrap())
        .succeeded()
        .prints_nothing()
        .says_nothing();

    fs::remove_file(folder.path().join("last.json")).unwrap();
    cron(folder.path(), EXAMPLE)
        .exits(1)
        .says_nothing()
        .prints("\ncritical  duplicate-address ")
        .prints("\n34 findings: 2 critical, ")
        .omits("\u{1b}")
        .omits("hint: ");
    // Nothing is new.
    cron(folder.path(), EXAMPLE)
        .succeeded()
        .prints_nothing()
        .says_nothing();

    let run = cron(folder.path(), "/no/such/cluster").exits(3).prints_nothing();
    assert!(
        run.stderr
            .starts_with("error: /no/such/cluster: No such file or directory"),
        "{run:?}"
    );

    // An unreachable etcd.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("etcd --etcd-endpoints http://{}", taken.local_addr().unwrap());
    drop(taken);
    cron(folder.path(), &dead)
        .refused(3, "\nhint: ")
        .says_first("error: cannot use etcd: ");
}

#[test]
fn the_daemon_set_of_the_plugin_fits_its_installer() {
    let [account, role, binding] = &documents("cni/rbac.yaml")[..] else {
        panic!("three objects")
    };
    assert_eq!(
        role["rules"],
        json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}])
    );
    assert_eq!(binding["subjects"][0]["name"], account["metadata"]["name"]);
    let [set] = &documents("cni/daemonset.yaml")[..] else {
        panic!("one object")
    };
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
    assert_eq!(
        set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"],
        1
    );

    let container = &pod["containers"][0];
    let kustomization = &documents("cni/kustomization.yaml")[0];
    let image = kustomization["images"][0]["name"].as_str().unwrap();
    assert_eq!(container["image"], format!("{image}:latest"));
    assert_eq!(
        kustomization["resources"],
        json!(PLUGIN.map(|name| name.trim_start_matches("cni/")))
    );
    // Each folder in the arguments is mounted, and is the folder of the same path on the node.
    let args = arguments(pod);
    for (option, writes) in [("--bin-dir=", false), ("--conf-dir=", true)] {
        let folder = args.iter().find_map(|arg| arg.strip_prefix(option)).unwrap();
        let mount = items(&container["volumeMounts"])
            .iter()
            .find(|mount| mount["mountPath"] == folder)
            .unwrap();
        assert_eq!(mount.get("readOnly"), writes.then_some(&json!(true)));
        let volume = items(&pod["volumes"])
            .iter()
            .find(|volume| volume["name"] == mount["name"])
            .unwrap();
        assert!(
            folder.ends_with(volume["hostPath"]["path"].as_str().unwrap()),
            "{folder}"
        );
    }
    let port = container["ports"][0]["containerPort"].to_string();
    assert!(
        args.iter()
            .any(|arg| arg.starts_with("--listen=") && arg.ends_with(&format!(":{port}")))
    );
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/healthz");
}
