//! Trace files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
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
    pub(crate) write_order: Option<String>,
    pub result: Value,
    /// The writes. Each has a path under `create`, `update` or `delete`, and a `value` unless it is a deletion.
    pub writes: Vec<Value>,
    /// Everything under `/calico/ipam/v2/` after the step.
    pub after: BTreeMap<String, Value>,
}

/// Lists the project's trace files. `root` is the root of the checkout.
pub fn traces(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(root.join("tests/traces")).context("tests/traces")?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    Ok(files)
}

impl Trace {
    /// Reads a trace file.
    pub fn read(path: &Path) -> Result<Self> {
        let bad = || format!("{} cannot be read as a trace", path.display());
        let text = std::fs::read(path).with_context(bad)?;
        let trace: Self = serde_json::from_slice(&text).with_context(bad)?;
        let format = trace.format;
        ensure!(
            format == FORMAT,
            "{}: its format is {format}, but only {FORMAT} is known",
            bad()
        );
        let mut writes = trace.steps.iter().flat_map(|step| &step.writes);
        ensure!(
            writes.all(|write| !kind_and_path(write).1.is_empty()),
            "{}: a write names no key",
            bad()
        );
        Ok(trace)
    }

    /// True if steps run programs: the plugin, or the drop-in for calicoctl.
    pub fn runs_programs(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step.op.as_str(), "cni" | "calicoctl"))
    }
}

impl Step {
    /// The written paths with their new values; `None` for deletions.
    pub(crate) fn written(&self) -> impl Iterator<Item = (&str, Option<&Value>)> {
        self.writes
            .iter()
            .map(|write| (kind_and_path(write).1, write.get("value")))
    }

    /// True if the writes may come in any order.
    pub fn any_order(&self) -> bool {
        self.write_order.as_deref() == Some("any")
    }
}

/// The kind of a write (`create`, `update` or `delete`) and its path.
pub(crate) fn kind_and_path(write: &Value) -> (&str, &str) {
    let mut kinds = ["create", "update", "delete"].into_iter();
    kinds
        .find_map(|kind| Some((kind, write.get(kind)?.as_str()?)))
        .unwrap_or_default()
}
