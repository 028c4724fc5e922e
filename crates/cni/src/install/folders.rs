//! The folders of CNI plugins and their configuration in Kubernetes distributions.

use std::path::{Path, PathBuf};

use super::problem::{Problem, Result};

/// The folders of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folders {
    pub distribution: &'static str,
    pub plugins: &'static str,
    pub configuration: &'static str,
}

const fn folders(distribution: &'static str, plugins: &'static str, configuration: &'static str) -> Folders {
    Folders {
        distribution,
        plugins,
        configuration,
    }
}

/// All folders that are searched. `docs/cni.md` has the same table.
pub const KNOWN: [Folders; 6] = [
    folders(
        "kubeadm, RKE2, k0s, Flatcar, Talos, EKS, AKS",
        "/opt/cni/bin",
        "/etc/cni/net.d",
    ),
    folders(
        "k3s",
        "/var/lib/rancher/k3s/data/cni",
        "/var/lib/rancher/k3s/agent/etc/cni/net.d",
    ),
    folders(
        "k3s before 1.31",
        "/var/lib/rancher/k3s/data/current/bin",
        "/var/lib/rancher/k3s/agent/etc/cni/net.d",
    ),
    folders(
        "MicroK8s",
        "/var/snap/microk8s/current/opt/cni/bin",
        "/var/snap/microk8s/current/args/cni-network",
    ),
    folders("OpenShift", "/var/lib/cni/bin", "/var/run/multus/cni/net.d"),
    folders("GKE", "/home/kubernetes/bin", "/etc/cni/net.d"),
];

/// Finds the folder in which Calico has installed its plugin. Returns it with the folder of the CNI configuration that
/// belongs to it. `root` is where the machine's file system is mounted.
///
/// # Errors
/// If no known folder contains Calico's plugin, or more than one.
pub(super) fn detect(root: &Path) -> Result<(PathBuf, PathBuf)> {
    let below = |folder: &str| root.join(folder.trim_start_matches('/'));
    let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
    for known in KNOWN {
        // Compares real paths, since one k3s folder can be a link to another. Fails for a folder that does not exist.
        let Ok(plugins) = below(known.plugins).canonicalize() else {
            continue;
        };
        let is_new = found.iter().all(|(other, _)| *other != plugins);
        if is_new && plugins.join("calico-ipam").exists() {
            found.push((plugins, below(known.configuration)));
        }
    }

    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => {
            let searched = KNOWN.map(|known| known.plugins).join(", ");
            let problem = Problem::new(format!("no calico-ipam on this machine; looked in {searched}"));
            Err(problem.hint("if the CNI plugins are elsewhere, name the folder with --bin-dir"))
        }
        several => {
            let folders: Vec<String> = several
                .iter()
                .map(|(plugins, _)| plugins.display().to_string())
                .collect();
            let problem = Problem::new(format!(
                "several folders contain calico-ipam: {}",
                folders.join(", ")
            ));
            Err(problem.hint("name the folder from which the container runtime runs plugins with --bin-dir"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn put(root: &Path, folder: &str) {
        let folder = root.join(folder.trim_start_matches('/'));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("calico-ipam"), "").unwrap();
    }

    #[test]
    fn the_folder_with_calicos_plugin_is_found() {
        for known in KNOWN {
            let root = tempfile::tempdir().unwrap();
            // Other folders exist without Calico's plugin.
            fs::create_dir_all(root.path().join("opt/cni/bin")).unwrap();
            put(root.path(), known.plugins);
            let (plugins, configuration) = detect(root.path()).unwrap();
            assert!(
                plugins.ends_with(known.plugins.trim_start_matches('/')),
                "{plugins:?}"
            );
            assert!(
                configuration.ends_with(known.configuration.trim_start_matches('/')),
                "{configuration:?}"
            );
        }
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cni.md");
        let page = fs::read_to_string(page).unwrap();
        for Folders {
            distribution,
            plugins,
            configuration,
        } in KNOWN
        {
            let row = format!("| {distribution} | `{plugins}` | `{configuration}` |");
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn none_and_several_are_errors_that_name_the_option() {
        let root = tempfile::tempdir().unwrap();
        let none = detect(root.path()).unwrap_err().to_string();
        assert!(
            none.contains("looked in /opt/cni/bin, ") && none.contains("--bin-dir"),
            "{none}"
        );
        put(root.path(), "/opt/cni/bin");
        put(root.path(), "/var/lib/cni/bin");
        let several = detect(root.path()).unwrap_err().to_string();
        assert!(
            several.contains("/opt/cni/bin, ") && several.contains("--bin-dir"),
            "{several}"
        );
    }
}
