//! Trace files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

/// The supported version of the file format.
const FORMAT: u64 = 1;

/// A recorded run.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    format: u64,
    /// The name of the recorded scenario.
    pub scenario: String,
    /// All values under `/calico` before the first step.
    pub initial: BTreeMap<String, Value>,
    pub steps: Vec<Step>,
}

/// One operation and its effects.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The kind of operation, such as `auto`.
    pub op: String,
    pub input: Map<String, Value>,
    /// True if Calico was free to choose, so that another choice is also right.
    #[serde(default)]
    pub choice: bool,
    /// `any` if the order of the writes varies from run to run.
    #[serde(default)]
    write_order: Option<String>,
    pub result: Value,
    /// The writes. Each has a path under `create`, `update` or `delete`, and a `value` unless it is a deletion.
    pub writes: Vec<Map<String, Value>>,
    /// Everything under `/calico/ipam/v2/` after the step.
    pub after: BTreeMap<String, Value>,
}

/// Lists the project's trace files. `root` is the root of the checkout.
pub fn traces(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(root.join("tests/traces"))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    Ok(files)
}

impl Trace {
    /// Reads a trace file.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let error = |reason: String| TraceError { path: path.to_owned(), reason };
        let text = std::fs::read(path).map_err(|e| error(e.to_string()))?;
        let trace: Self = serde_json::from_slice(&text).map_err(|e| error(e.to_string()))?;
        match trace.format {
            FORMAT => Ok(trace),
            other => Err(error(format!("its format is {other}, but only {FORMAT} is known"))),
        }
    }

    /// True if steps run programs: the plugin, or the drop-in for calicoctl.
    pub fn runs_programs(&self) -> bool {
        self.steps.iter().any(Step::runs_program)
    }
}

impl Step {
    /// True if the step runs a program.
    pub fn runs_program(&self) -> bool {
        matches!(self.op.as_str(), "cni" | "calicoctl")
    }

    /// True if the writes may come in any order.
    pub fn any_order(&self) -> bool {
        self.write_order.as_deref() == Some("any")
    }
}

/// The error for a file that is not a valid trace.
#[derive(Debug)]
pub struct TraceError {
    path: PathBuf,
    reason: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be read as a trace: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for TraceError {}
