//! Authentication at the API server with credential plugins and identity providers of a kubeconfig.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use calipam_testkit::kube::{Flavour, Kinds, Lease, create, lease, service_account_token};
use calipam_testkit::servers::KubeApiserver;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use super::program::{Run, calipam, file, prepare, started};

fn server() -> Lease {
    lease(Kinds::Calico(Flavour::Classic)).unwrap()
}

/// Runs a check with a kubeconfig that has these credentials.
fn check_as(server: &KubeApiserver, folder: &Path, user: Value) -> Run {
    let text = fs::read_to_string(server.kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_yaml::from_str(&text).unwrap();
    kubeconfig["users"][0]["user"] = user;
    let path = folder.join("kubeconfig");
    fs::write(&path, kubeconfig.to_string()).unwrap();
    calipam(&format!(
        "check --settle 0 --datastore kubernetes --kubeconfig {}",
        path.display()
    ))
}

/// Creates the credentials of a plugin that runs a script.
fn plugin(folder: &Path, script: &str) -> Value {
    let path = folder.join("get-token");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": path, "args": ["--secret", "hunter2"],
        "env": [{"name": "PASSPHRASE", "value": "hunter2"}], "interactiveMode": "IfAvailable"}})
}

fn credential(status: Value) -> String {
    let credential =
        json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status});
    format!("echo '{credential}'")
}

/// Asserts a failed login: nothing on stdout, exit code 3, an error with a hint, and no secret.
#[track_caller]
fn assert_failed(run: Run, expected: &str) {
    run.refused(3, expected)
        .says("\nhint: does `kubectl get nodes --kubeconfig ")
        .hides("hunter2");
}

#[test]
fn credential_plugins() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = |script: &str| check_as(&server, folder, plugin(folder, script));

    // The plugin receives its arguments, its environment, and the variable `KUBERNETES_EXEC_INFO`.
    let seen = "[ \"$1 $2 $PASSPHRASE\" = '--secret hunter2 hunter2' ] && [ -n \"$KUBERNETES_EXEC_INFO\" ] || exit 9";
    let token = credential(json!({"token": server.token()}));
    run(&format!("{seen}\n{token}")).succeeded().prints("No findings");
    // An expired token is renewed by another run of the plugin.
    let soon = credential(json!({"token": server.token(), "expirationTimestamp": "2026-01-01T00:00:00Z"}));
    run(&soon).succeeded();

    // What the plugin says is shown.
    let told = "your session has expired\nerror: ";
    let failed = run("echo 'your session has expired' >&2; exit 7").says_first(told);
    assert_failed(failed, "get-token failed with exit status: 7");
    assert_failed(
        run("echo hunter2"),
        "the credential plugin's output cannot be decoded",
    );
    let wrong = run(&credential(json!({"token": "hunter2"})));
    assert_failed(wrong, "the server does not accept the credentials (401)");
    let nowhere = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/get-token",
        "args": ["hunter2"], "interactiveMode": "Never"}});
    let nowhere = check_as(&server, folder, nowhere);
    assert_failed(nowhere, "the credential plugin cannot be started: No such file");
}

/// After half a minute, a message names the plugin, even with `--quiet`. Ctrl-C, which is sent to the whole process
/// group, ends the program and the plugin. So does SIGTERM, which is sent only to the program.
#[test]
fn a_credential_plugin_that_hangs_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": plugin(folder.path(), "sleep 600; true")}]});
    let (_folder, path) = file("kubeconfig", kubeconfig.to_string());
    let check = format!("check --quiet --datastore kubernetes --kubeconfig {path}");
    let start = || started(prepare(&check).process_group(0));
    let ends = [
        (Signal::INT, kill_process_group as fn(_, _) -> _),
        (Signal::TERM, kill_process),
    ];
    for (mut child, (signal, end)) in [start(), start()].into_iter().zip(ends) {
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = said.next().unwrap().unwrap();
        assert!(
            first.contains("waiting for the kubeconfig's credential plugin "),
            "{first}"
        );
        assert!(first.contains("get-token"), "{first}");
        end(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        // The output has ended, so every process has closed the pipe.
        let rest: Vec<String> = said.map(Result::unwrap).collect();
        assert_eq!(rest, ["error: interrupted"]);
    }
}

/// A token file may end with a line break, and overrides a token in the kubeconfig, as in client-go. A token that is
/// not valid in a header is an error.
#[test]
fn tokens_also_of_identity_providers() {
    let server = server();
    let (folder, file) = file("token", format!("{}\n", server.token()));
    let run = |user: Value| check_as(&server, folder.path(), user);
    for user in [
        json!({"tokenFile": file}),
        json!({"tokenFile": file, "token": "hunter2"}),
    ] {
        run(user).succeeded();
    }
    for token in ["hunter2\nhunter2", "hunter\u{7}2"] {
        run(json!({"token": token}))
            .failed(2, "cannot use the token: it has a line break")
            .hides("hunter");
    }

    // With an identity provider, the kubeconfig contains its token, which the API server checks like any other token.
    let token = service_account_token(&server, "operator").unwrap();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "default"}]});
    create(
        &server,
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        &[binding],
    )
    .unwrap();
    let of = |config: Value| json!({"auth-provider": {"name": "oidc", "config": config}});
    let run = |config: Value| check_as(&server, folder.path(), of(config));
    run(json!({"id-token": token})).succeeded();

    let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let expired = format!(
        "{}.{}.hunter2",
        part(json!({"alg": "RS256"})),
        part(json!({"exp": 1_700_000_000}))
    );
    assert_failed(run(json!({"id-token": expired})), "ID token expired");
    let provider = json!({"id-token": expired, "refresh-token": "hunter2", "client-id": "calipam",
        "idp-issuer-url": "https://127.0.0.1:1"});
    assert_failed(run(provider), "ID token expired");
}
