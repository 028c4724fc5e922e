//! What single calls cost, one after the other: all that a simulation is told of this machine.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::reality::{VERSION, call};
use crate::Failed;
use crate::cluster::{CAUGHT_UP, Cluster};

/// Calls of each kind.
const CALLS: usize = 15;

/// What single calls take.
pub struct Costs {
    /// As `--latency` takes it.
    pub latency: String,
    /// An ADD in a block of the node.
    pub add: Duration,
}

/// Times single calls of a node.
///
/// Starting is VERSION, which reads nothing. STATUS is that, connecting and one reading. ADD in a block of the node has a
/// reading and three requests more, of which two are writes. What STATUS takes beyond starting is divided between connecting
/// and reading by what a second reading on an open connection takes.
pub fn costs(plugin: &Path, cluster: &Cluster, node: &str) -> Result<Costs, Failed> {
    let locks = tempfile::tempdir()?;
    let lock = locks.path().join("ipam.lock").display().to_string();
    let configuration = cluster.configuration(VERSION, node, &lock).to_string();
    let time = |command: &str, container: &str| call(plugin, command, container, &configuration);

    // The node claims its block, and gets its labels on Kubernetes.
    time("ADD", "calibrate")?;
    let start = median(|_| time("VERSION", "calibrate"))?;
    let status = median(|_| time("STATUS", "calibrate"))?;
    let add = median(|number| {
        let container = format!("calibrate{number}");
        thread::sleep(CAUGHT_UP);
        let taken = time("ADD", &container)?;
        time("DEL", &container)?;
        Ok(taken)
    })?;
    time("DEL", "calibrate")?;

    let read = median(|_| read(cluster))?;
    let connect = status.saturating_sub(start + read);
    // Two writes, and readings: two on etcd; three on Kubernetes, the namespace among them.
    let reads = match cluster {
        Cluster::Etcd(_) => 2,
        Cluster::Kubernetes(_) => 3,
    };
    let write = add.saturating_sub(start + connect + read * reads) / 2;
    let micros = |time: Duration| time.as_micros();
    let latency = format!(
        "start={}us,connect={}us,read={}us,write={}us,jitter=100",
        micros(start),
        micros(connect),
        micros(read),
        micros(write)
    );
    Ok(Costs { latency, add })
}

/// The median of some calls.
fn median(mut one: impl FnMut(usize) -> Result<Duration, Failed>) -> Result<Duration, Failed> {
    let mut times: Vec<Duration> = (0..CALLS).map(&mut one).collect::<Result<_, _>>()?;
    times.sort();
    Ok(times[CALLS / 2])
}

/// Reads something on a connection that is open.
fn read(cluster: &Cluster) -> Result<Duration, Failed> {
    match cluster {
        Cluster::Etcd(etcd) => Ok(etcd.with_client(async |mut client| {
            client.get("/calico/ipam/v2/config", None).await?;
            let begin = Instant::now();
            client.get("/calico/ipam/v2/config", None).await?;
            Ok::<_, etcd_client::Error>(begin.elapsed())
        })?),
        Cluster::Kubernetes(server) => {
            let begin = Instant::now();
            server.request("GET", "/api/v1/namespaces/default", "")?;
            Ok(begin.elapsed())
        }
    }
}
