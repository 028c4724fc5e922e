//! The checks before this program replaces Calico's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use calipam_files::regular;
use calipam_model::config::{ClusterInformation, newest_known};
use calipam_model::words::joined;
use serde_json::Value;

use super::problem::{Problem, Result, cannot};
use crate::call::Call;
use crate::command::status;
use crate::config::Document;
use crate::protocol::{CniError, Command, Environment, Version};

/// Checks that an ADD on this node could succeed, and that the cluster's Calico version is supported. `configuration`
/// is the folder of the CNI configuration, and `anyway` the command line that skips these checks, for hints.
///
/// # Errors
/// If there is no configuration, the datastore does not answer or does not have the node, no pool serves the node, or
/// Calico's version is missing or not a supported one.
pub(super) async fn check(
    configuration: &Path,
    variables: &BTreeMap<String, String>,
    anyway: &str,
) -> Result<()> {
    let text = find_plugin_configuration(configuration)?;
    // STATUS checks the same as an ADD needs. Its connection then tells the version.
    let checked = async {
        let configuration = Document::read(&text, Some(Command::Status))?.configuration()?;
        let call = Call::new(configuration, Environment::default(), variables, Command::Status)?;
        let allocator = status::status(&call).await?;
        Ok(allocator.store().cluster_information().await)
    };
    let cluster = checked.await.map_err(|error: CniError| {
        Problem::new(format!(
            "this program cannot assign addresses on this node: {error}"
        ))
        .hint(&format!("Calico's plugin stays; `{anyway}` installs anyway"))
    })?;
    check_version(cluster.map_err(|error| Problem::new(error.to_string()))?, anyway)
}

/// Finds the configuration of the network that uses `calico-ipam`, and returns it in the form in which a runtime passes
/// it to the plugin.
fn find_plugin_configuration(folder: &Path) -> Result<Vec<u8>> {
    // Runtimes use the configuration whose file name sorts first.
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(cannot("read", folder))? {
        let Ok(entry) = entry else {
            continue;
        };
        let path = entry.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if matches!(ending, Some("conf" | "conflist" | "json")) {
            files.insert(path);
        }
    }

    // Runtimes pass over files that they cannot read, and so does this search.
    let mut unreadable = Vec::new();
    for path in files {
        match read_network(&path) {
            Ok(network) => {
                if let Some(plugin) = calico_plugin(network) {
                    return Ok(plugin.to_string().into_bytes());
                }
            }
            Err(reason) => unreadable.push(reason),
        }
    }
    Err(no_network(folder, &unreadable))
}

/// Reads a file as JSON.
///
/// # Errors
/// The reason that it is not JSON, with the file, line and column.
fn read_network(path: &Path) -> std::result::Result<Value, String> {
    let text = regular::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("{} is not JSON: {error}", path.display()))
}

/// The error if no network uses `calico-ipam`. The configuration may be in a file that cannot be read.
fn no_network(folder: &Path, unreadable: &[String]) -> Problem {
    let folder = folder.display();
    let message = format!("no network in {folder} takes its addresses from calico-ipam");
    if unreadable.is_empty() {
        return Problem::new(message).hint("name the folder of the CNI configuration with --conf-dir");
    }
    let hint = "correct the file, or restart the node's calico-node pod, which writes Calico's configuration again; \
                if that is elsewhere, name its folder with --conf-dir";
    Problem::new(format!("{message}: {}", joined(unreadable, "; "))).hint(hint)
}

/// Returns the configuration that a runtime passes to the plugin, from that of a network: the entry of the plugin, with
/// the network's name and a version. `None` if the network does not use `calico-ipam`.
fn calico_plugin(network: Value) -> Option<Value> {
    let plugins = match network["plugins"].as_array() {
        Some(plugins) => plugins.clone(),
        // The file is of a single plugin.
        None => vec![network.clone()],
    };
    let mut plugin = plugins
        .into_iter()
        .find(|plugin| plugin["ipam"]["type"] == "calico-ipam")?;
    plugin["name"] = network["name"].clone();
    plugin["cniVersion"] = Version::NEWEST.text().into();
    Some(plugin)
}

/// Refuses a Calico version that is not known to be supported. `anyway` is the command line that skips this check.
fn check_version(cluster: Option<ClusterInformation>, anyway: &str) -> Result<()> {
    let cluster = cluster.unwrap_or_default();
    let version = &cluster.calico_version;
    let problem = match cluster.is_known() {
        Some(true) => return Ok(()),
        Some(false) if cluster.is_newer_than_known() => {
            format!(
                "the cluster's Calico {version} is newer than this program supports (up to {})",
                newest_known()
            )
        }
        Some(false) => format!("the cluster's Calico {version} is older than this program supports"),
        None if version.is_empty() => "the cluster's Calico version is not recorded".to_owned(),
        None => format!(
            "the cluster's Calico version {version:?} is none that this program knows (up to {})",
            newest_known()
        ),
    };
    Err(Problem::new(problem).hint(&format!(
        "use a newer calipam, or install without checks on one node first: `{anyway}`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_known_version_is_replaced() {
        let judged = |calico_version: &str| {
            let calico_version = calico_version.to_owned();
            let cluster = ClusterInformation {
                calico_version,
                ..ClusterInformation::default()
            };
            check_version(Some(cluster), "calipam-cni install --no-check").is_ok()
        };
        for known in ["v3.32.1", "3.32.1", &newest_known(), "v3.32.0-0.dev-12-gabc"] {
            assert!(judged(known), "{known}");
        }
        let unknown = [
            "",
            "master",
            "release-v3.40",
            "V3.34.0",
            "v3.999.0",
            "vv3.32.1",
            "v3.32.x",
            "v3",
        ];
        for unknown in unknown {
            assert!(!judged(unknown), "{unknown}");
        }
        assert!(check_version(None, "calipam-cni install --no-check").is_err());
    }
}
