//! Kubernetes with the generated cluster of the benchmark of checks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::kube::{Connection, Flavour};
use calipam_testkit::servers::KubeApiserver;
use serde_json::{Value, json};

use super::{Row, command};
use crate::kubernetes::{names, seed};
use crate::parts::kubernetes::seeded;
use crate::{Failed, leak};

/// Number of connections of the floor; more do not make it faster.
const CONNECTIONS: usize = 32;
/// Time limit until the API server has seen all deletions.
const CACHES: Duration = Duration::from_secs(900);

/// Method, path and body.
type Request = (&'static str, String, String);

/// Leaks every tenth address of a cluster, and releases them.
pub(super) fn measure(program: &str, pods: usize, folder: &Path) -> Result<Row, Failed> {
    let (server, seed::Seeded { pods, .. }) = seeded(pods)?;
    let leaked = leak(&server, pods)?;
    eprintln!("{leaked} addresses are leaked");
    wait_for_pods(&server, pods - leaked)?;
    let kubeconfig = server.kubeconfig().display().to_string();
    let connection = ["--datastore", "kubernetes", "--kubeconfig", &kubeconfig].map(str::to_owned);
    let journal = folder.join("run.journal");
    let released = command::release(program, &connection, &journal)?;
    let (blocks, handles) = (list(&server, "ipamblocks")?, list(&server, "ipamhandles")?);
    command::undo(program, &connection, &journal)?;
    let floor = floor(&server, &blocks, &handles)?;
    Ok(Row::new("kubernetes", pods as u64, leaked, &released, floor))
}

/// Deletes every tenth pod from the server's etcd; returns their number.
fn leak(server: &KubeApiserver, pods: usize) -> Result<usize, Failed> {
    let key = |p: usize| format!("/registry/pods/{}/{}", names::namespace(p), names::pod(p));
    let keys: Vec<String> = (0..pods).step_by(10).map(key).collect();
    server.etcd().with_client(async |client| leak::delete(client.kv_client(), &keys).await)?;
    Ok(keys.len())
}

/// Waits until the API server has this number of pods in its caches.
fn wait_for_pods(server: &KubeApiserver, pods: usize) -> Result<(), Failed> {
    let begin = Instant::now();
    while !items(server, "/api/v1/pods").is_ok_and(|items| items.len() == pods)
        || list(server, "ipamhandles").is_err()
    {
        if begin.elapsed() > CACHES {
            return Err("the API server has not seen all deletions".into());
        }
        thread::sleep(Duration::from_secs(1));
    }
    Ok(())
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

/// The time, in seconds, that the API server needs for the same writes: blocks are put, handles are marked and deleted,
/// without reads.
fn floor(
    server: &KubeApiserver,
    blocks: &BTreeMap<String, Value>,
    handles: &BTreeMap<String, Value>,
) -> Result<f64, Failed> {
    let mut work: Vec<Vec<Request>> = Vec::new();
    for (name, mut now) in list(server, "ipamblocks")? {
        let Some(after) =
            blocks.get(&name).filter(|after| after["spec"]["allocations"] != now["spec"]["allocations"])
        else {
            continue;
        };
        now["spec"] = after["spec"].clone();
        let path = format!("{}/{name}", Flavour::Classic.path("ipamblocks"));
        work.push(vec![("PUT", path, now.to_string())]);
    }
    for (name, mut now) in
        list(server, "ipamhandles")?.into_iter().filter(|(name, _)| !handles.contains_key(name))
    {
        now["spec"]["deleted"] = true.into();
        let path = format!("{}/{name}", Flavour::Classic.path("ipamhandles"));
        let options = json!({"preconditions": {"uid": now["metadata"]["uid"]}});
        let put = ("PUT", path.clone(), now.to_string());
        work.push(vec![put, ("DELETE", path, options.to_string())]);
    }
    let connections = (0..CONNECTIONS).map(|_| Connection::open(server)).collect::<Result<Vec<_>, _>>()?;
    let work = Mutex::new(work);
    let begin = Instant::now();
    let ended: Result<(), Failed> = thread::scope(|scope| {
        let run = |connection| scope.spawn(|| send_all(connection, &work));
        let threads: Vec<_> = connections.into_iter().map(run).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a sender does not panic"))
    });
    ended?;
    Ok(begin.elapsed().as_secs_f64())
}

fn send_all(mut connection: Connection, work: &Mutex<Vec<Vec<Request>>>) -> Result<(), Failed> {
    loop {
        let Some(requests) = work.lock().map_err(|e| e.to_string())?.pop() else { return Ok(()) };
        for (method, path, body) in requests {
            let response = connection.request(method, &path, &body)?;
            if response.status != 200 {
                return Err(format!("{method} {path}: {:.200}", response.body).into());
            }
        }
    }
}
