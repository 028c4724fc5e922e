//! Lists of object names without content, as a table or as metadata.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use calipam_files::objects::ListMeta;
use serde::Deserialize;
use serde_json::json;

use super::object::{Metadata, Object};

/// The token of a list page that starts at a name. Servers create tokens only for pages that follow another page, but
/// since Kubernetes 1.11, they also accept this one.
pub(crate) fn token_from(name: &str) -> String {
    // -1 stands for the newest state, as in the tokens that servers send after a list's revision was compacted.
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": -1, "start": name}).to_string())
}

#[derive(Default, Deserialize)]
pub(crate) struct Page {
    #[serde(default)]
    metadata: ListMeta,
    rows: Option<Vec<Row>>,
    /// The objects, unless they are in `rows`. Servers write `null` if there are none.
    items: Option<Vec<Object>>,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<serde_json::Value>,
}

impl Row {
    /// The metadata that a row has: the object's name, in the first cell.
    fn metadata(self) -> Option<Metadata> {
        let name = self.cells.first()?.as_str()?.to_owned();
        Some(Metadata {
            name,
            ..Metadata::default()
        })
    }
}

impl Page {
    /// The token of the next page; empty on the last one.
    pub(crate) fn next(&self) -> String {
        self.metadata.next.clone()
    }

    /// The objects' metadata. Objects in a table have no versions.
    pub(crate) fn all(self) -> impl Iterator<Item = Metadata> {
        let rows = self.rows.into_iter().flatten().filter_map(Row::metadata);
        let items = self.items.into_iter().flatten().map(|item| item.metadata);
        rows.chain(items)
    }

    pub(crate) fn names(self) -> impl Iterator<Item = String> {
        self.all().map(|metadata| metadata.name)
    }
}
