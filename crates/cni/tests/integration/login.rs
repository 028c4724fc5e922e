//! Credential plugins of a kubeconfig, which can hang.

use std::fs;
use std::path::Path;
use std::thread;

use serde_json::json;

use crate::runtime::{Runtime, wait};

/// The IDs of the processes that a script has noted and that are still there.
fn left(noted: &Path) -> Vec<String> {
    let text = fs::read_to_string(noted).unwrap();
    let is_running = |id: &str| {
        let state = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // A killed process without a parent can be a zombie.
        !state.is_empty() && !state.contains(") Z ")
    };
    text.lines()
        .filter(|id| is_running(id))
        .map(str::to_owned)
        .collect()
}

/// The client runs the plugin a second time if the first run fails.
#[test]
fn a_credential_plugin_that_hangs_ends_with_the_call() {
    thread::scope(|scope| {
        for command in ["ADD", "DEL", "CHECK", "STATUS"] {
            scope.spawn(move || {
                let mut runtime = Runtime::new(&json!({"datastore_type": "kubernetes"})).with("cniVersion", "1.1.0");
                let noted = runtime.folder().join("processes");
                let script = format!("echo $$ >> {}; sleep 600; true", noted.display());
                let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "users": [{"name": "u", "user": {"exec": {"interactiveMode": "Never", "command": "/bin/sh",
                        "apiVersion": "client.authentication.k8s.io/v1", "args": ["-c", script]}}}]});
                let path = runtime.folder().join("kubeconfig");
                fs::write(&path, kubeconfig.to_string()).unwrap();
                runtime.configuration["kubernetes"] = json!({"kubeconfig": path});

                let ended = wait(runtime.start(command, "c", "", runtime.configuration.to_string().as_bytes()));
                let (code, text) = ended.error();
                let expected = if command == "STATUS" { 50 } else { 11 };
                assert!(code == expected && text.contains("did not finish within"), "{command}: {code} {text}");
                assert_eq!(left(&noted), [""; 0], "{command}");
            });
        }
    });
}
