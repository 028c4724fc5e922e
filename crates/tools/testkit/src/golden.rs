//! Golden states: states in which Calico's own CNI plugins were called, each with what they did.
//! `crates/check/tests/golden/README.md` says how they were recorded.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A state, and the call of Calico's plugins in it.
#[derive(Debug, Deserialize)]
pub struct Golden {
    /// The seed of the state, which names it in messages.
    pub seed: u64,
    /// The time of the call.
    pub at: Timestamp,
    /// The CNI configuration.
    pub conf: Value,
    /// The pod that is added, as `namespace/name`.
    pub pod: String,
    /// The objects in Kubernetes.
    pub objects: Vec<Value>,
    /// The keys and values in etcd; none with the Kubernetes datastore.
    #[serde(default)]
    pub entries: Map<String, Value>,
    pub calico: Called,
}

/// The outcome of ADD.
#[derive(Debug, Deserialize)]
pub struct Called {
    pub ips: Vec<IpAddr>,
    /// The message if the call failed.
    pub error: Option<String>,
    /// The outcome of a second ADD after the first one failed.
    pub again: Option<Box<Called>>,
}

impl Golden {
    pub fn is_on_etcd(&self) -> bool {
        !self.entries.is_empty()
    }

    /// The namespace and the name of the pod.
    ///
    /// # Panics
    /// If the name of the pod has no slash.
    pub fn pod_name(&self) -> (&str, &str) {
        self.pod.split_once('/').expect("a namespace and a name")
    }
}

/// Reads all golden states.
///
/// # Errors
/// If a file cannot be read, or has other content than states.
pub fn golden_states() -> Result<Vec<Golden>> {
    let mut states = Vec::new();
    for file in files()? {
        let packed = std::fs::File::open(&file).with_context(|| file.display().to_string())?;
        let lines = zstd::decode_all(packed)?;
        for line in std::str::from_utf8(&lines)?.lines() {
            let state = serde_json::from_str(line).with_context(|| file.display().to_string())?;
            states.push(state);
        }
    }
    Ok(states)
}

/// Returns the files with golden states, sorted by name.
fn files() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../check/tests/golden");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "zst") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
