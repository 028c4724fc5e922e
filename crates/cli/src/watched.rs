//! The last document that `--watch` has printed.

use std::sync::Mutex;

use calipam_model::parallel::lock;
use serde_json::{Map, Value};

use crate::format::Format;
use crate::render::document::{self, Document};

/// The last document, with which the next one is compared.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    /// The document without the fields that differ with every read.
    content: Option<Value>,
    /// The revision that was read last.
    revision: Option<i64>,
}

/// Removes the revision of a cluster's data, and returns it; `None` if there is none.
fn take_revision(cluster: &mut Map<String, Value>) -> Option<i64> {
    cluster.remove("revision")?.as_str()?.parse().ok()
}

impl Watched {
    /// Remembers this document as the last one that was printed, and returns the text to print before it: what
    /// separates it from the one before. `None` if both have the same content, and it is not to be printed.
    pub(crate) fn separator(&self, document: &impl Document, format: Format) -> Option<&'static str> {
        let mut content = document::value(document).unwrap_or_default();
        let mut last = lock(&self.0);
        // The time and the revision change even if nothing else does.
        if let Some(cluster) = content.get_mut("cluster").and_then(Value::as_object_mut) {
            cluster.remove("takenAt");
            last.revision = take_revision(cluster);
        }

        let Some(last_content) = last.content.replace(content) else {
            // Nothing was printed before the first document.
            return Some("");
        };
        if last.content.as_ref() == Some(&last_content) {
            return None;
        }
        match format {
            Format::Yaml => Some("---\n"),
            // A JSON document ends by itself.
            Format::Json => Some(""),
            _ => Some("\n"),
        }
    }

    /// Returns the revision of the last document; `None` if it has none.
    pub(crate) fn revision(&self) -> Option<i64> {
        lock(&self.0).revision
    }
}
