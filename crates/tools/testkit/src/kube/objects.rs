//! Objects on a test's API server.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::servers::KubeApiserver;

/// Creates objects through the API, as Calico does. `path` is the path of all objects of the kind in their namespace.
///
/// # Panics
/// Panics if the server refuses an object.
pub fn create(server: &KubeApiserver, path: &str, objects: &[Value]) -> Result<()> {
    for object in objects {
        let response = server.request("POST", path, &object.to_string())?;
        assert_eq!(response.status, 201, "{path}: {}\n{object}", response.body);
    }
    Ok(())
}

/// Writes objects to the server's etcd under a `prefix` such as `/registry/pods/`. Use this for many objects, or for
/// states that only controllers can bring about. Objects keep their names, namespaces and UIDs.
///
/// The last object is written alone, as an API server writes every object. The server considers its cache current once
/// the first object of the newest revision has arrived, and would omit the rest of that revision from lists.
pub fn create_in_etcd(server: &KubeApiserver, prefix: &str, objects: &[Value]) -> Result<()> {
    let entry = |object: &Value| {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let key = match metadata["namespace"].as_str() {
            Some(namespace) => format!("{prefix}{namespace}/{name}"),
            None => format!("{prefix}{name}"),
        };
        (key, object.to_string().into_bytes())
    };
    let entries: Vec<_> = objects.iter().map(entry).collect();
    let (most, last) = entries.split_at(entries.len().saturating_sub(1));
    server.etcd().put_all(most)?;
    server.etcd().put_all(last)
}

/// Creates the service account `name`, which has no rights yet, in the namespace `default`. Returns a token for the
/// account.
pub fn service_account_token(server: &KubeApiserver, name: &str) -> Result<String> {
    let path = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    create(server, path, &[account])?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let response = server.request("POST", &format!("{path}/{name}/token"), &request.to_string())?;
    let answer: Value = serde_json::from_str(&response.body)?;
    let token = answer["status"]["token"].as_str().with_context(|| format!("no token: {}", response.body))?;
    Ok(token.to_owned())
}
