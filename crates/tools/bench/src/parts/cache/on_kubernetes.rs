//! On Kubernetes, with the generated cluster of the benchmark of checks.

use std::sync::Mutex;
use std::thread;

use calipam_testkit::kube::{Connection, Flavour};
use calipam_testkit::servers::KubeApiserver;
use serde_json::json;

use super::{CHANGED, Row};
use crate::kubernetes::names;
use crate::parts::kubernetes::{collect_garbage, seeded};

/// Connections that write; more of them make it no faster.
const CONNECTIONS: usize = 32;

/// Measures a cluster of so many pods.
pub(super) fn measure(program: &str, pods: u64) -> Result<Row, String> {
    let (server, seeded) = seeded(pods as usize)?;
    let kubeconfig = server.kubeconfig().display().to_string();
    let connection = ["--datastore", "kubernetes", "--kubeconfig", &kubeconfig];
    let (prepare, change) = (|| collect_garbage(&server), |run| change(&server, seeded.pods, run));
    super::measure(program, seeded.pods as u64, &connection, prepare, change)
}

/// Writes what one workload of a hundred writes when it changes, each time of other workloads: its pod, its handle and the
/// block of its address. Returns the number of objects. What they say stays, so that the cluster is healthy.
fn change(server: &KubeApiserver, pods: usize, run: usize) -> Result<usize, String> {
    let of_pod = |pod: usize| {
        let custom = |plural: &str, name: String| format!("{}/{name}", Flavour::Classic.path(plural));
        [
            format!("/api/v1/namespaces/{}/pods/{}", names::namespace(pod), names::pod(pod)),
            custom("ipamhandles", names::handle(pod)),
            custom("ipamblocks", names::block_object(pod / names::PODS)),
        ]
    };
    let paths: Vec<String> = (run..pods).step_by(CHANGED).flat_map(of_pod).collect();
    let (patch, number) =
        (json!({"metadata": {"annotations": {"bench": run.to_string()}}}).to_string(), paths.len());
    let connections = (0..CONNECTIONS).map(|_| Connection::open(server)).collect::<Result<Vec<_>, _>>();
    let waiting = Mutex::new(paths);
    let write = |mut connection: Connection| -> Result<(), String> {
        loop {
            let next = waiting.lock().map_err(|e| e.to_string())?.pop();
            let Some(path) = next else { return Ok(()) };
            let response = connection.request("PATCH", &path, &patch).map_err(|e| e.to_string())?;
            if response.status != 200 {
                return Err(format!("{path}: {:.200}", response.body));
            }
        }
    };
    thread::scope(|scope| {
        let connections = connections.map_err(|e| e.to_string())?;
        let write = &write;
        let running: Vec<_> =
            connections.into_iter().map(|connection| scope.spawn(move || write(connection))).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("a writer does not panic"))
    })?;
    Ok(number)
}
