//! Releases on Kubernetes, with the same generated cluster as the benchmark of checks.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::KubeApiserver;
use serde_json::{Value, json};

use crate::{Failed, kubernetes};

/// Number of connections of the floor; more do not make it faster.
const CONNECTIONS: usize = 32;

/// The method, path and body of a request.
type Request = (&'static str, String, String);

/// Waits until the API server has this number of pods in its caches.
pub(super) fn wait_for_pods(server: &KubeApiserver, pods: usize) -> Result<(), Failed> {
    kubernetes::wait_for(|| {
        list(server, "ipamhandles")?;
        match items(server, "/api/v1/pods")?.len() {
            seen if seen == pods => Ok(()),
            seen => Err(format!("{seen} pods, not {pods}").into()),
        }
    })
}

fn items(server: &KubeApiserver, path: &str) -> Result<Vec<Value>, Failed> {
    let response = server.request("GET", path, "")?;
    if response.status != 200 {
        return Err(format!("{path}: {:.200}", response.body).into());
    }
    let mut list: Value = serde_json::from_str(&response.body)?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn list(server: &KubeApiserver, plural: &str) -> Result<BTreeMap<String, Value>, Failed> {
    let named = |item: Value| (item["metadata"]["name"].as_str().unwrap_or_default().to_owned(), item);
    Ok(items(server, &Flavour::Classic.path(plural))?.into_iter().map(named).collect())
}

/// The time in seconds that the API server needs for the writes of a release, after `undo` has reverted the release.
/// Blocks are replaced, and handles are marked and then deleted. Nothing is read.
pub(super) fn floor(
    server: &KubeApiserver,
    undo: impl FnOnce() -> Result<(), Failed>,
) -> Result<f64, Failed> {
    let (blocks, handles) = (list(server, "ipamblocks")?, list(server, "ipamhandles")?);
    undo()?;
    let mut work: Vec<Vec<Request>> = Vec::new();
    for (name, mut now) in list(server, "ipamblocks")? {
        let after = blocks.get(&name).map(|after| &after["spec"]);
        if let Some(after) = after.filter(|after| after["allocations"] != now["spec"]["allocations"]) {
            now["spec"] = after.clone();
            let path = format!("{}/{name}", Flavour::Classic.path("ipamblocks"));
            work.push(vec![("PUT", path, now.to_string())]);
        }
    }
    for (name, mut now) in list(server, "ipamhandles")? {
        if !handles.contains_key(&name) {
            now["spec"]["deleted"] = true.into();
            let path = format!("{}/{name}", Flavour::Classic.path("ipamhandles"));
            let options = json!({"preconditions": {"uid": now["metadata"]["uid"]}});
            let put = ("PUT", path.clone(), now.to_string());
            work.push(vec![put, ("DELETE", path, options.to_string())]);
        }
    }
    let work = Mutex::new(work);
    let begin = Instant::now();
    let ended: Result<(), Failed> = thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(|| send_all(server, &work))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a sender does not panic"))
    });
    ended?;
    Ok(begin.elapsed().as_secs_f64())
}

fn send_all(server: &KubeApiserver, work: &Mutex<Vec<Vec<Request>>>) -> Result<(), Failed> {
    loop {
        let Some(requests) = work.lock().map_err(|e| e.to_string())?.pop() else { return Ok(()) };
        for (method, path, body) in requests {
            let response = server.request(method, &path, &body)?;
            if response.status != 200 {
                return Err(format!("{method} {path}: {:.200}", response.body).into());
            }
        }
    }
}
