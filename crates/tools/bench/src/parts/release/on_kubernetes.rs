//! Kubernetes with the generated cluster of the benchmark of checks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::kubernetes::{names, seed};
use calipam_testkit::kube::{Connection, Flavour, install};
use calipam_testkit::servers::KubeApiserver;
use etcd_client::{Txn, TxnOp};
use serde_json::{Value, json};

use super::{Row, command};
use crate::Failed;

/// Number of connections of the floor; more do not make it faster.
const CONNECTIONS: usize = 32;
/// Most keys of one transaction, by etcd's default.
const KEYS: usize = 128;
/// Time limit until the API server has seen all deletions.
const CACHES: Duration = Duration::from_secs(900);

/// Method, path and body.
type Request = (&'static str, String, String);

/// Leaks every tenth address of a cluster, and releases them.
pub(super) fn measure(program: &str, pods: usize, folder: &Path) -> Result<Row, Failed> {
    let server = KubeApiserver::start()?;
    install(&server, Flavour::Classic)?;
    let seeded = seed::seed(&server, pods)?;
    let leaked = leak(&server, seeded.pods)?;
    let seed::Seeded { pods, nodes, pod_bytes: (json, _), .. } = seeded;
    eprintln!("{leaked} of {pods} addresses of pods of {json} bytes on {nodes} nodes are leaked");
    wait_for_caches(&server, pods - leaked)?;
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
    server.etcd().with_client(async |mut client| {
        for part in keys.chunks(KEYS) {
            let deletions: Vec<TxnOp> = part.iter().map(|key| TxnOp::delete(key.as_str(), None)).collect();
            client.txn(Txn::new().and_then(deletions)).await?;
        }
        Ok(())
    })?;
    Ok(keys.len())
}

/// Waits until the API server has this number of pods in its caches.
fn wait_for_caches(server: &KubeApiserver, pods: usize) -> Result<(), Failed> {
    let begin = Instant::now();
    loop {
        let pods_there = items(server, "/api/v1/pods").map(|items| items.len());
        let handles_there = list(server, "ipamhandles");
        match (pods_there, handles_there) {
            (Ok(there), Ok(_)) if there == pods => return Ok(()),
            (_, Err(error)) | (Err(error), _) if begin.elapsed() > CACHES => return Err(error),
            (Ok(there), _) if begin.elapsed() > CACHES => return Err(format!("{there} pods").into()),
            _ => thread::sleep(Duration::from_secs(1)),
        }
    }
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
    let ended: Result<(), String> = thread::scope(|scope| {
        let run = |connection| scope.spawn(|| send_all(connection, &work));
        let threads: Vec<_> = connections.into_iter().map(run).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a sender does not panic"))
    });
    ended?;
    Ok(begin.elapsed().as_secs_f64())
}

fn send_all(mut connection: Connection, work: &Mutex<Vec<Vec<Request>>>) -> Result<(), String> {
    loop {
        let Some(requests) = work.lock().map_err(|e| e.to_string())?.pop() else { return Ok(()) };
        for (method, path, body) in requests {
            let response = connection.request(method, &path, &body).map_err(|e| e.to_string())?;
            if response.status != 200 {
                return Err(format!("{method} {path}: {:.200}", response.body));
            }
        }
    }
}
