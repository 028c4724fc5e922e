//! Lists of object names without content, as a table or as metadata.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use calipam_model::snapshot::{ObjectVersion, Revision};
use serde::Deserialize;
use serde_json::json;

/// The token of a list page that starts at a name. Servers send tokens only after a page, but since version 1.11 they
/// understand this one, too.
pub(crate) fn token_from(name: &str) -> String {
    // -1 stands for the newest state, as in the tokens that servers send after a page was compacted.
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": -1, "start": name}).to_string())
}

#[derive(Default, Deserialize)]
pub(crate) struct Page {
    #[serde(default)]
    metadata: OfPage,
    rows: Option<Vec<Row>>,
    /// Servers write `null` if there are none.
    items: Option<Vec<Item>>,
}

#[derive(Default, Deserialize)]
struct OfPage {
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<serde_json::Value>,
}

/// The metadata of an object.
#[derive(Deserialize)]
pub(crate) struct Item {
    pub metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub name: String,
    uid: String,
    resource_version: String,
}

impl Page {
    /// The token of the next page.
    pub(crate) fn next(&self) -> Option<String> {
        self.metadata.next.clone().filter(|next| !next.is_empty())
    }

    /// The objects; in a table, they have no versions.
    pub(crate) fn all(self) -> impl Iterator<Item = Metadata> {
        let of_row = |row: Row| {
            let name = row.cells.into_iter().next()?.as_str()?.to_owned();
            Some(Metadata { name, ..Metadata::default() })
        };
        let rows = self.rows.into_iter().flatten().filter_map(of_row);
        rows.chain(self.items.into_iter().flatten().map(|item| item.metadata))
    }

    pub(crate) fn names(self) -> impl Iterator<Item = String> {
        self.all().map(|metadata| metadata.name)
    }
}

impl Metadata {
    pub(crate) fn revision(self) -> Revision {
        let Self { resource_version, uid, .. } = self;
        Revision::Kubernetes(Box::new(ObjectVersion { resource_version, uid, ..ObjectVersion::default() }))
    }
}
