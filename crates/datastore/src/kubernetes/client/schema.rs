//! Checks which fields the installed schemas have. The API server drops all other fields (facts 2.10).

use calipam_files::objects::Accept;
use serde_json::Value;

use super::KubeClient;

/// The path in an IPAMBlock to the field that marks an address in cooldown. `""` stands for any item in a list.
const RELEASED_AT: [&str; 4] = ["spec", "attributes", "", "releasedAt"];

/// True if blocks keep the time at which an address was released; false if the schema cannot be read. If the server
/// dropped the field, an anonymous allocation that never ends could remain (facts 2.10).
///
/// Reads the OpenAPI document of Calico's group, which every authenticated user may read, unlike the definitions of
/// the kinds.
pub(crate) async fn keeps_cooldown(client: &KubeClient) -> bool {
    let flavour = client.api().flavour;
    let path = format!("/openapi/v3/apis/{}/{}", flavour.group(), flavour.version());
    let document = client
        .get_whole(&path, Accept::Json, "the schema of blocks")
        .await;
    let Ok(Some((body, _))) = document else {
        return false;
    };
    serde_json::from_slice(&body).is_ok_and(|document| blocks_keep(&document, &RELEASED_AT))
}

/// True if the schema of IPAMBlock in an OpenAPI document keeps the field at `path`.
fn blocks_keep(document: &Value, path: &[&str]) -> bool {
    let Some(schemas) = document["components"]["schemas"].as_object() else {
        return false;
    };
    schemas
        .values()
        .any(|schema| is_schema_of_blocks(schema) && keeps(schema, path))
}

/// True for a schema whose list of kinds contains IPAMBlock.
fn is_schema_of_blocks(schema: &Value) -> bool {
    let Some(kinds) = schema["x-kubernetes-group-version-kind"].as_array() else {
        return false;
    };
    kinds.iter().any(|kind| kind["kind"] == "IPAMBlock")
}

/// True if an API server stores the field at `path` of objects with this schema, instead of dropping it. An empty name in
/// the path stands for the items of a list.
fn keeps(schema: &Value, path: &[&str]) -> bool {
    let Some((name, inner_path)) = path.split_first() else {
        return true;
    };
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return true;
    }
    let inner = if name.is_empty() {
        schema.get("items")
    } else {
        schema["properties"].get(name)
    };
    inner.is_some_and(|inner| keeps(inner, inner_path))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(attribute: Value) -> Value {
        let spec = json!({"properties": {"attributes": {"items": attribute}}});
        json!({"components": {"schemas": {
            "list": {"x-kubernetes-group-version-kind": [{"kind": "IPAMBlockList"}]},
            "block": {
                "properties": {"spec": spec},
                "x-kubernetes-group-version-kind": [{"group": "crd.projectcalico.org", "kind": "IPAMBlock"}],
            },
        }}})
    }

    #[test]
    fn fields_are_kept_if_the_schema_names_them_or_keeps_all() {
        let old = json!({"properties": {"handle_id": {}}});
        let new = json!({"properties": {"handle_id": {}, "releasedAt": {"type": "string"}}});
        let open = json!({"x-kubernetes-preserve-unknown-fields": true});
        assert!(!blocks_keep(&document(old), &RELEASED_AT));
        assert!(blocks_keep(&document(new), &RELEASED_AT));
        assert!(blocks_keep(&document(open), &RELEASED_AT));
        for strange in [
            json!(null),
            json!([]),
            json!({"components": {"schemas": {"IPAMBlock": {}}}}),
        ] {
            assert!(!blocks_keep(&strange, &RELEASED_AT), "{strange}");
        }
    }
}
