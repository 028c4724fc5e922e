//! Completion by kubectl itself, against a real API server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::{Tool, find};

use super::super::kube_cluster::KubeCluster;
use super::super::program::{Run, command};
use super::{link_all, scripts};

/// Runs kubectl with a folder of plugins in `PATH`, and a kubeconfig.
fn run(plugins: &Path, kubeconfig: &Path, line: &str) -> Run {
    let path = format!(
        "{}:{}",
        plugins.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut program = command(find(Tool::Kubectl).unwrap());
    program
        .args(line.split(' '))
        .env("PATH", path)
        .env("HOME", plugins)
        .env("KUBECONFIG", kubeconfig);
    Run::of(program.env("DATASTORE_TYPE", "kubernetes"))
}

/// Tests the links that `install-links` creates, and then the scripts that packages install.
#[test]
fn kubectl_suggests_what_its_cluster_holds_and_runs_the_plugin() {
    let cluster = KubeCluster::with_nodes(Flavour::Classic, &["node-a", "node-b", "worker"]);
    let kubeconfig = cluster.server.kubeconfig();
    let (links, scripts, all) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        scripts(),
    );
    link_all(links.path());
    link_all(scripts.path());
    for name in ["kubectl_complete-ipam", "kubectl_complete-calico"] {
        let path = scripts.path().join(name);
        fs::remove_file(&path).unwrap();
        fs::copy(all.path().join(name), &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for plugins in [links.path(), scripts.path()] {
        let asked = |line: &str| {
            run(plugins, &kubeconfig, &format!("__complete {line}"))
                .succeeded()
                .stdout
        };
        for (line, suggested) in [
            ("ipam check --node node-", "node-a\nnode-b\n:36\n"),
            ("ipam check --node=w", "worker\n:36\n"),
            ("calico ipam check --pool ", "default-ipv4-ippool\n:36\n"),
        ] {
            // On a busy machine, the cluster may answer too late for suggestions, so completion is repeated.
            let answers: Vec<String> = (0..10)
                .map(|_| asked(line))
                .take_while(|it| it != suggested)
                .collect();
            assert!(answers.len() < 10, "{line}: {answers:?}");
        }
        assert_eq!(asked("ipam check --ignore "), ":0\n");
        assert!(asked("ipam explai").starts_with("explain\t"));
    }
    // kubectl's connection options reach the plugin.
    let run = |line: &str| run(links.path(), &kubeconfig, line);
    run("ipam show --nodes --context test")
        .succeeded()
        .prints("node-a");
    run("ipam show --context nope").failed(2, "context \"nope\" does not exist");
}
