//! Objects on a test's API server.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::servers::KubeApiserver;

/// An object with a version, a kind and a name.
pub(crate) fn named(mut object: Value, api_version: &str, kind: &str, name: &str) -> Value {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object["metadata"]["name"] = name.into();
    object
}

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

/// The object or list under a path; `None` if there is none.
///
/// # Panics
/// Panics if the server does not answer, or refuses.
pub fn find(server: &KubeApiserver, path: &str) -> Option<Value> {
    let response = server.request("GET", path, "").expect("an answer");
    assert!([200, 404].contains(&response.status), "{path}: {}", response.body);
    let object = || serde_json::from_str(&response.body).expect("JSON");
    (response.status == 200).then(object)
}

/// The object or list under a path.
///
/// # Panics
/// Panics if there is none.
pub fn read(server: &KubeApiserver, path: &str) -> Value {
    find(server, path).unwrap_or_else(|| panic!("there is no {path}"))
}

/// Reads an object, and writes it with a change.
///
/// # Panics
/// Panics if there is none, or if the server refuses the change.
pub fn edit(server: &KubeApiserver, path: &str, edit: impl FnOnce(&mut Value)) {
    let mut object = read(server, path);
    edit(&mut object);
    let response = server
        .request("PUT", path, &object.to_string())
        .expect("an answer");
    assert_eq!(response.status, 200, "{path}: {}", response.body);
}

/// Deletes an object at once, without the grace period of a pod.
///
/// # Panics
/// Panics if there is none.
pub fn delete(server: &KubeApiserver, path: &str) {
    let response = server
        .request("DELETE", path, r#"{"gracePeriodSeconds":0}"#)
        .expect("an answer");
    assert_eq!(response.status, 200, "{path}: {}", response.body);
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
    create(server, path, &[named(json!({}), "v1", "ServiceAccount", name)])?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let response = server.request("POST", &format!("{path}/{name}/token"), &request.to_string())?;
    let answer: Value = serde_json::from_str(&response.body)?;
    let token = answer["status"]["token"]
        .as_str()
        .with_context(|| format!("no token: {}", response.body))?;
    Ok(token.to_owned())
}
