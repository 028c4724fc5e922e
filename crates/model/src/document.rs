//! Pools and the allocator's configuration as they are stored. An edit changes some JSON fields, and keeps all others.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::DecodeError;
use crate::resource::METADATA;

/// A JSON object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Document(Map<String, Value>);

impl Document {
    pub fn parse(json: &[u8]) -> Result<Self, DecodeError> {
        serde_json::from_slice(json).map(Self).map_err(DecodeError::from)
    }

    pub fn from_fields(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    pub fn spec(&self) -> Option<&Map<String, Value>> {
        self.0.get("spec")?.as_object()
    }

    fn metadata(&self) -> Option<&Map<String, Value>> {
        self.0.get("metadata")?.as_object()
    }

    /// True if the resource has a deletion timestamp.
    pub fn is_being_deleted(&self) -> bool {
        self.metadata()
            .is_some_and(|metadata| metadata.contains_key("deletionTimestamp"))
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.metadata()?.get("labels")?.get(name)?.as_str()
    }

    /// The finalizers that keep a deleted resource from disappearing.
    pub fn finalizers(&self) -> Vec<&str> {
        let finalizers = self
            .metadata()
            .and_then(|metadata| metadata.get("finalizers")?.as_array());
        let Some(finalizers) = finalizers else {
            return Vec::new();
        };
        finalizers.iter().filter_map(Value::as_str).collect()
    }

    /// Creates a resource with the labels, annotations and `spec` of this one, but another name and the given `spec`
    /// fields. It does not have a UID or creation time yet.
    pub fn child(&self, name: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        let mut child = self.clone();
        child.0.remove("status");

        let mut metadata = Map::from_iter([("name".to_owned(), name.into())]);
        for field in KEPT_BY_CHILDREN {
            if let Some(value) = self.metadata().and_then(|metadata| metadata.get(field)) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        drop_identity(&mut metadata);
        child.0.insert("metadata".into(), metadata.into());

        let mut spec = self.spec().cloned().unwrap_or_default();
        spec.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        child.0.insert("spec".into(), spec.into());
        child
    }

    /// Sets `disabled` in a pool's `spec`.
    pub fn set_disabled(&mut self, disabled: bool) {
        if let Some(Value::Object(spec)) = self.0.get_mut("spec") {
            spec.insert("disabled".into(), disabled.into());
        }
    }

    /// Sets an annotation, or removes it if `value` is `None`. Either way, its copy in Calico's metadata annotation is
    /// removed.
    pub fn annotate(&mut self, name: &str, value: Option<String>) {
        let Some(Value::Object(metadata)) = self.0.get_mut("metadata") else {
            return;
        };
        let annotations = metadata.entry("annotations").or_insert_with(|| Map::new().into());
        let Value::Object(annotations) = annotations else {
            return;
        };
        annotations.remove(name);
        if let Some(mut calico_metadata) = calico_metadata(annotations)
            && let Some(Value::Object(copies)) = calico_metadata.get_mut("annotations")
        {
            copies.remove(name);
            annotations.insert(METADATA.into(), Value::Object(calico_metadata).to_string().into());
        }

        if let Some(value) = value {
            annotations.insert(name.to_owned(), value.into());
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }

    /// Sets UID and creation time, as Calico's client does when it creates a resource in etcd.
    pub fn identify(&mut self, uid: &str, created: &str) {
        if let Some(Value::Object(metadata)) = self.0.get_mut("metadata") {
            metadata.insert("uid".into(), uid.into());
            metadata.insert("creationTimestamp".into(), created.into());
        }
    }

    /// Sets a field of the object itself. Like Calico, omits a value that is false or zero (facts 1.6).
    pub(crate) fn set_field(&mut self, name: &str, value: Value) {
        let is_omitted = value == Value::Bool(false) || value.as_i64() == Some(0);
        if is_omitted {
            self.0.remove(name);
        } else {
            self.0.insert(name.into(), value);
        }
    }
}

/// The parts of a parent's metadata that its children keep. Their copies in Calico's metadata annotation are kept as
/// well.
const KEPT_BY_CHILDREN: [&str; 2] = ["labels", "annotations"];

/// Removes the parent's identity from the annotations, including the last configuration that kubectl applied.
fn drop_identity(metadata: &mut Map<String, Value>) {
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
        return;
    };
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    if let Some(mut calico_metadata) = calico_metadata(annotations) {
        calico_metadata.retain(|field, _| KEPT_BY_CHILDREN.contains(&field.as_str()));
        annotations.insert(METADATA.into(), Value::Object(calico_metadata).to_string().into());
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// Reads the annotation with Calico's own metadata; `None` if it is missing or not a JSON object.
fn calico_metadata(annotations: &Map<String, Value>) -> Option<Map<String, Value>> {
    let text = annotations.get(METADATA)?.as_str()?;
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_child_has_what_the_parent_has_but_its_identity() {
        let parent = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "IPPool",
            "metadata": {"name": "p", "uid": "U", "creationTimestamp": "T", "resourceVersion": "7",
                "labels": {"zone": "a"}, "finalizers": ["f"],
                "annotations": {METADATA: r#"{"uid":"U","creationTimestamp":"T","labels":{"x":"y"}}"#,
                    "kubectl.kubernetes.io/last-applied-configuration": "{}", "own": "1"}},
            "spec": {"cidr": "10.0.0.0/24", "blockSize": 26, "future": [1]},
            "status": {"conditions": []},
        });
        let parent = Document::parse(parent.to_string().as_bytes()).unwrap();
        let child = parent.child("c", [("cidr", "10.0.0.0/25".into())]);
        let expected = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "IPPool",
            "metadata": {"name": "c", "labels": {"zone": "a"},
                "annotations": {METADATA: r#"{"labels":{"x":"y"}}"#, "own": "1"}},
            "spec": {"cidr": "10.0.0.0/25", "blockSize": 26, "future": [1]},
        });
        assert_eq!(Value::Object(child.0), expected);
    }

    #[test]
    fn an_annotation_is_taken_away_wherever_calico_keeps_it() {
        let kept = r#"{"annotations":{"own":"1","x":"2"}}"#;
        let pool = json!({"metadata": {"annotations": {METADATA: kept, "own": "1"}}});
        let mut pool = Document::parse(pool.to_string().as_bytes()).unwrap();
        let annotations = |pool: &Document| pool.fields()["metadata"].get("annotations").cloned();
        pool.annotate("own", Some("3".into()));
        let own = json!({METADATA: r#"{"annotations":{"x":"2"}}"#, "own": "3"});
        assert_eq!(annotations(&pool), Some(own));
        pool.annotate("own", None);
        assert_eq!(
            annotations(&pool),
            Some(json!({METADATA: r#"{"annotations":{"x":"2"}}"#}))
        );

        let mut plain = Document::parse(br#"{"metadata":{"name":"p"}}"#).unwrap();
        plain.annotate("own", Some("3".into()));
        assert_eq!(annotations(&plain), Some(json!({"own": "3"})));
        plain.annotate("own", None);
        assert_eq!(annotations(&plain), None);
    }
}
