//! Writes clusters to files, as `kubectl get … -o json` prints objects of several kinds.

use std::path::Path;
use std::{fs, io};

use serde_json::{Value, json};

use super::{KubeCluster, KubeObject};

/// The first `resourceVersion`.
const FIRST_VERSION: usize = 1000;
/// Kinds without `metadata.generation`.
const WITHOUT_GENERATION: [&str; 2] = ["nodes", "services"];

impl KubeCluster {
    /// The list of all objects, including the fields that the server adds: version and generation.
    pub fn list(&self) -> Value {
        let items: Vec<Value> = self.versioned().map(|(_, json)| json).collect();
        json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}})
    }

    fn versioned(&self) -> impl Iterator<Item = (&KubeObject, Value)> {
        self.objects.iter().enumerate().map(|(place, object)| {
            let mut json = object.json.clone();
            json["metadata"]["resourceVersion"] = (FIRST_VERSION + place).to_string().into();
            if !WITHOUT_GENERATION.contains(&object.plural) {
                json["metadata"]["generation"] = 1.into();
            }
            (object, json)
        })
    }

    /// The list of one kind, as the API server prints it. Items have no kind. The list also exists for a kind without
    /// objects.
    fn list_of(&self, plural: &str, kind: &str, api_version: &str) -> String {
        let own = self.versioned().filter(|(object, _)| object.plural == plural);
        let items: Vec<Value> = own
            .map(|(_, mut json)| {
                let fields = json.as_object_mut().expect("an object");
                fields.retain(|name, _| name != "kind" && name != "apiVersion");
                json
            })
            .collect();
        let version = FIRST_VERSION + self.objects.len();
        format!(
            r#"{{"kind":"{kind}List","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{version}"}},"items":{}}}"#,
            Value::from(items)
        )
    }

    /// Writes one list per kind to a folder, as `kubectl get --raw` prints them.
    pub fn write_lists(&self, folder: &Path) -> io::Result<()> {
        for (plural, kind, version) in self.flavour.kinds() {
            let list = self.list_of(plural, kind, &version);
            fs::write(folder.join(format!("{plural}.json")), list)?;
        }
        Ok(())
    }
}
