//! Completion by kubectl itself, against a real API server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::kubectl;
use serde_json::json;

use super::super::kube_cluster::KubeCluster;
use super::super::program::{Run, command};
use super::{link_all, scripts};

/// Runs kubectl with a folder of plugins in `PATH`, and a kubeconfig.
fn run(plugins: &Path, kubeconfig: &Path, words: &[&str]) -> Run {
    let path = format!("{}:{}", plugins.display(), std::env::var("PATH").unwrap_or_default());
    let mut program = command(kubectl().unwrap());
    program.args(words).env("PATH", path).env("HOME", plugins).env("KUBECONFIG", kubeconfig);
    Run::of(program.env("DATASTORE_TYPE", "kubernetes"))
}

/// Tests the links that `install-links` creates, and then the scripts that packages install.
#[test]
fn kubectl_suggests_what_its_cluster_holds() {
    let cluster = KubeCluster::start(Flavour::Classic);
    for node in ["node-a", "node-b", "worker"] {
        cluster.add_node(node, json!({}));
    }
    let kubeconfig = cluster.server.kubeconfig();
    let (links, scripts, all) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), scripts());
    link_all(links.path());
    link_all(scripts.path());
    for name in ["kubectl_complete-ipam", "kubectl_complete-calico"] {
        let path = scripts.path().join(name);
        fs::remove_file(&path).unwrap();
        fs::copy(all.path().join(name), &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for plugins in [links.path(), scripts.path()] {
        let asked = |words: &[&str]| {
            let run = run(plugins, &kubeconfig, &[&["__complete"], words].concat()).succeeded();
            run.stdout
        };
        for (words, suggested) in [
            (&["ipam", "check", "--node", "node-"][..], "node-a\nnode-b\n:36\n"),
            (&["ipam", "check", "--node=w"], "worker\n:36\n"),
            (&["calico", "ipam", "check", "--pool", ""], "default-ipv4-ippool\n:36\n"),
        ] {
            // On a busy machine, the cluster may answer too late for suggestions, so completion is repeated.
            let answers: Vec<String> =
                (0..10).map(|_| asked(words)).take_while(|it| it != suggested).collect();
            assert!(answers.len() < 10, "{words:?}: {answers:?}");
        }
        assert_eq!(asked(&["ipam", "check", "--ignore", ""]), ":0\n");
        assert!(asked(&["ipam", "explai"]).starts_with("explain\t"));
    }
}

#[test]
fn kubectl_runs_the_plugin_with_its_connection_options() {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_node("node-a", json!({}));
    let folder = tempfile::tempdir().unwrap();
    link_all(folder.path());
    let shown =
        run(folder.path(), &cluster.server.kubeconfig(), &["ipam", "show", "--nodes", "--context", "test"]);
    assert!(shown.code == 0 && shown.stdout.contains("node-a"), "{shown:?}");
    run(folder.path(), &cluster.server.kubeconfig(), &["ipam", "show", "--context", "nope"])
        .failed(2, "context \"nope\" does not exist");
}
