//! Writes clusters to files in calipam's export format, without using calipam's own writer.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use serde_json::value::RawValue;

use crate::cluster::Cluster;

/// The sources that exist in etcd, by their names in the header, and the prefixes of their keys.
const READ: [(&str, &str); 11] = [
    ("blocks", IPAM),
    ("affinities", IPAM),
    ("handles", IPAM),
    ("ipamConfig", IPAM),
    ("pools", "/calico/resources/v3/projectcalico.org/ippools/"),
    (
        "reservations",
        "/calico/resources/v3/projectcalico.org/ipreservations/",
    ),
    ("nodes", "/calico/resources/v3/projectcalico.org/nodes/"),
    (
        "endpoints",
        "/calico/resources/v3/projectcalico.org/workloadendpoints/",
    ),
    (
        "clusterInformation",
        "/calico/resources/v3/projectcalico.org/clusterinformations/",
    ),
    (
        "kubeControllersConfiguration",
        "/calico/resources/v3/projectcalico.org/kubecontrollersconfigurations/",
    ),
    (
        "ipamConfiguration",
        "/calico/resources/v3/projectcalico.org/ipamconfigurations/",
    ),
];

const IPAM: &str = "/calico/ipam/v2/";

impl Cluster {
    pub fn write_export(&self, path: &Path) -> io::Result<()> {
        let mut output = BufWriter::with_capacity(1 << 20, File::create(path)?);
        self.write_lines(&mut output)?;
        output.flush()
    }

    /// The text of the export.
    pub fn export(&self) -> Vec<u8> {
        let mut text = Vec::new();
        self.write_lines(&mut text).expect("memory takes all");
        text
    }

    fn write_lines(&self, output: &mut impl Write) -> io::Result<()> {
        let mut coverage: serde_json::Map<String, _> = READ
            .iter()
            .map(|(source, _)| ((*source).to_owned(), json!("read")))
            .collect();
        for source in ["pods", "services", "machines"] {
            coverage.insert(source.to_owned(), json!("skipped: no kubeconfig"));
        }
        let header = json!({"format": "calipam-export", "version": 1, "datastore": "etcd",
            "location": "https://10.0.0.5:2379", "revision": "48250", "takenAt": self.spec.now.to_string(),
            "guid": "0f0e1d2c3b4a59687786951423324150", "coverage": coverage});
        writeln!(output, "{header}")?;
        let mut count: u64 = 0;
        let mut result = Ok(());
        self.for_each_entry(|key, value| {
            if result.is_ok() && is_exported(key) {
                count += 1;
                result = write_entry(output, key, value, 40_000 + count);
            }
        });
        result?;
        writeln!(output, r#"{{"entries":{count}}}"#)
    }
}

/// True for keys that a check reads.
fn is_exported(key: &[u8]) -> bool {
    READ.iter().any(|(_, prefix)| key.starts_with(prefix.as_bytes()))
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
