//! The writes of a release on Kubernetes.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use anyhow::{Result, ensure};
use calipam_model::parallel;
use calipam_testkit::kube::{Flavour, read};
use calipam_testkit::servers::KubeApiserver;
use serde_json::{Value, json};

use crate::measured::Measured;

/// Number of connections of the floor; more do not make it faster.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(32).expect("it is not zero");

/// The time in seconds that the API server needs for the writes of a release, after `undo` has reverted the release.
/// Blocks are replaced, and handles are marked and then deleted. Nothing is read.
pub(super) fn floor(server: &KubeApiserver, undo: impl FnOnce() -> Result<()>) -> Result<f64> {
    let (blocks, handles) = (list(server, "ipamblocks"), list(server, "ipamhandles"));
    undo()?;
    let mut work: Vec<Vec<(&str, String, String)>> = Vec::new();
    for (path, mut now) in list(server, "ipamblocks") {
        let after = blocks.get(&path).map(|after| &after["spec"]);
        if let Some(after) = after.filter(|after| after["allocations"] != now["spec"]["allocations"]) {
            now["spec"] = after.clone();
            work.push(vec![("PUT", path, now.to_string())]);
        }
    }
    for (path, mut now) in list(server, "ipamhandles") {
        if !handles.contains_key(&path) {
            now["spec"]["deleted"] = true.into();
            let options = json!({"preconditions": {"uid": now["metadata"]["uid"]}});
            let put = ("PUT", path.clone(), now.to_string());
            work.push(vec![put, ("DELETE", path, options.to_string())]);
        }
    }
    let sent = Measured::of(|| {
        let send = |place: usize| {
            work[place].iter().try_for_each(|(method, path, body)| {
                let response = server.request(method, path, body)?;
                ensure!(response.status == 200, "{method} {path}: {:.200}", response.body);
                Ok(())
            })
        };
        parallel::map(CONNECTIONS, work.len(), send).into_iter().collect::<Result<()>>()
    })?;
    Ok(sent.seconds)
}

/// All objects of a kind, by their paths.
fn list(server: &KubeApiserver, plural: &str) -> BTreeMap<String, Value> {
    let path = Flavour::Classic.path(plural);
    let Value::Array(items) = read(server, &path)["items"].take() else { return BTreeMap::new() };
    let named =
        |item: Value| (format!("{path}/{}", item["metadata"]["name"].as_str().unwrap_or_default()), item);
    items.into_iter().map(named).collect()
}
