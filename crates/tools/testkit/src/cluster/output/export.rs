//! Writes clusters to files in calipam's export format, without using calipam's own writer.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use serde_json::value::RawValue;

use crate::cluster::{Cluster, ClusterSpec, SizedCluster};

/// The sources that exist in etcd, by their names in the header.
const READ: [&str; 11] = [
    "blocks",
    "affinities",
    "handles",
    "pools",
    "reservations",
    "nodes",
    "endpoints",
    "clusterInformation",
    "kubeControllersConfiguration",
    "ipamConfig",
    "ipamConfiguration",
];

/// Resources that a check reads.
const RESOURCES: [&str; 7] = [
    "ippools/",
    "ipreservations/",
    "nodes/",
    "workloadendpoints/",
    "clusterinformations/",
    "kubecontrollersconfigurations/",
    "ipamconfigurations/",
];

impl Cluster {
    pub fn write_export(&self, path: &Path) -> io::Result<()> {
        write_file(path, self.spec(), |visit| self.for_each_entry(visit))
    }

    /// The text of the export.
    pub fn export(&self) -> Vec<u8> {
        let mut text = Vec::new();
        write(&mut text, self.spec(), |visit| self.for_each_entry(visit)).expect("memory takes all");
        text
    }
}

impl SizedCluster {
    /// Writes an export. The entries are not sorted by key.
    pub fn write_export(&self, path: &Path) -> io::Result<()> {
        write_file(path, self.head.spec(), |visit| self.for_each_entry(visit))
    }
}

/// A visitor that receives each key and value.
type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]);

fn write_file(path: &Path, spec: &ClusterSpec, entries: impl FnOnce(Visit<'_>)) -> io::Result<()> {
    let mut output = BufWriter::with_capacity(1 << 20, File::create(path)?);
    write(&mut output, spec, entries)?;
    output.flush()
}

fn write(output: &mut impl Write, spec: &ClusterSpec, entries: impl FnOnce(Visit<'_>)) -> io::Result<()> {
    let mut coverage: serde_json::Map<String, _> =
        READ.iter().map(|source| ((*source).to_owned(), json!("read"))).collect();
    for source in ["pods", "services", "machines"] {
        coverage.insert(source.to_owned(), json!("skipped: no kubeconfig"));
    }
    let header = json!({"format": "calipam-export", "version": 1, "datastore": "etcd",
        "location": "https://10.0.0.5:2379", "revision": "48250", "takenAt": spec.now.to_string(),
        "guid": "0f0e1d2c3b4a59687786951423324150", "coverage": coverage});
    writeln!(output, "{header}")?;
    let mut count: u64 = 0;
    let mut result = Ok(());
    entries(&mut |key, value| {
        if result.is_ok() && is_exported(key) {
            count += 1;
            result = write_entry(output, key, value, 40_000 + count);
        }
    });
    result?;
    writeln!(output, r#"{{"entries":{count}}}"#)
}

/// True for keys that a check reads.
fn is_exported(key: &[u8]) -> bool {
    let resource = key.strip_prefix(b"/calico/resources/v3/projectcalico.org/");
    let Some(resource) = resource else { return key.starts_with(b"/calico/ipam/v2/") };
    RESOURCES.iter().any(|plural| resource.starts_with(plural.as_bytes()))
}

fn write_entry(output: &mut impl Write, key: &[u8], value: &[u8], revision: u64) -> io::Result<()> {
    match std::str::from_utf8(key) {
        Ok(key) => write!(output, r#"{{"key":{},"#, json!(key))?,
        Err(_) => write!(output, r#"{{"keyBytes":"{}","#, STANDARD.encode(key))?,
    }
    write!(output, r#""revision":"{revision}","#)?;
    match std::str::from_utf8(value) {
        Ok(text) if is_plain_json(text) => writeln!(output, r#""value":{text}}}"#),
        _ => writeln!(output, r#""bytes":"{}"}}"#, STANDARD.encode(value)),
    }
}

/// True for JSON on one line, except `null`, which could be taken for an absent value.
fn is_plain_json(text: &str) -> bool {
    let is_line = !text.contains(['\n', '\r']) && text.trim() == text && text != "null";
    is_line && serde_json::from_str::<&RawValue>(text).is_ok()
}
