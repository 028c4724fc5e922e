//! Measures the costs of single calls, one after another. A simulation has no other information about this machine.

use std::thread;
use std::time::{Duration, Instant};

use calipam_simulate::answer::Times;
use calipam_simulate::{Latency, Micros};
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::{KubeApiserver, processor_seconds};

use super::reality::Caller;
use super::{Begin, PODS};
use crate::Failed;
use crate::cluster::{CAUGHT_UP, Cluster};
use crate::measured::median;
use crate::requests;

/// Number of calls of each kind. Each call that claims a block needs its own node.
pub(super) const CALLS: u32 = 50;
/// The costs of a datastore that takes no time.
const NOTHING: &str = "start=0,connect=0,read=0,write=0,refresh=0,object=0,kib=0,decode=0,jitter=0,\
                       reads-per-second=0,writes-per-second=0";
/// An interval so long that no call waits for another.
const FAR_APART: Duration = Duration::from_mins(2);

/// Duration for which the idle servers are measured.
const IDLE: Duration = Duration::from_secs(5);

/// The costs of single calls.
pub(super) struct Costs {
    /// The value for `--latency`.
    pub latency: String,
    /// The time of an ADD in a block of the node.
    pub add: Duration,
}

/// Times single calls on nodes that have no block yet.
///
/// An ADD that claims a block and an ADD in an existing block consist of the same parts, such as reads and writes, but
/// in different numbers. These numbers are determined with simulations in which only one part takes time. The extra
/// time of a claiming ADD is the cost of its extra writes. The rest of the time, without reads and writes, is the cost
/// of starting (measured with VERSION, which reads nothing) and of connecting. The variation between ADDs in an
/// existing block is attributed to connecting as well, since on this machine, the times of processes vary, and those of
/// single requests hardly do. The processor time per request in a burst is measured with a burst on other nodes.
pub(super) fn costs(
    caller: &Caller,
    cluster: &Cluster,
    begin: &Begin,
    [nodes, for_a_burst]: [&[String]; 2],
) -> Result<Costs, Failed> {
    let locks = tempfile::tempdir()?;
    let call = |command: &str, node: &str, container: &str| {
        let lock = locks.path().join(node).join("ipam.lock");
        let configuration = cluster.configuration(node, &lock).to_string();
        caller.call(command, container, &configuration)
    };
    let time = |command: &str, node: &str, container: &str| {
        thread::sleep(CAUGHT_UP);
        call(command, node, container)
    };
    let work = Work::begin(cluster)?;
    let (mut starts, mut claims, mut adds, mut reads) = (vec![], vec![], vec![], vec![]);
    for node in nodes {
        starts.push(time("VERSION", node, node)?);
        claims.push(time("ADD", node, node)?);
        adds.push(time("ADD", node, &format!("{node}-again"))?);
        reads.push(read(cluster)?);
        time("DEL", node, node)?;
        time("DEL", node, &format!("{node}-again"))?;
    }
    let throughput = match caller {
        Caller::Process(_) => work.throughput(cluster)?,
        // Many concurrent calls take less processor time than the same calls one by one. A burst on other nodes shows
        // how much.
        Caller::Thread => in_a_burst(cluster, for_a_burst, &call)?,
    };
    adds.sort();
    let [start, claim, add, read] = [starts, claims, adds.clone(), reads].map(median);

    let reads_of = Simulated::with(begin, "read=1s")?;
    let writes_of = Simulated::with(begin, "write=1s")?;
    let refresh = calipam_simulate::Costs::assumed(cluster.form().datastore).refresh.0;
    let waits_of = Simulated::with(begin, &format!("refresh={refresh}us"))?;

    let (more_reads, more_writes) = (reads_of.more().as_secs_f64(), writes_of.more().as_secs_f64());
    let longer = claim.saturating_sub(add + waits_of.more());
    let write = longer.saturating_sub(read.mul_f64(more_reads)).div_f64(more_writes);
    let of_requests = read.mul_f64(reads_of.add.as_secs_f64()) + write.mul_f64(writes_of.add.as_secs_f64());
    let others = start + waits_of.add + of_requests;
    let connects: Vec<_> =
        adds.iter().map(|add| Micros(add.saturating_sub(others).as_micros() as u64)).collect();
    let connect = Latency::measured(&connects).ok_or("no calls")?.text();
    let latency = format!(
        "start={}us,connect={connect},read={}us,write={}us,refresh={refresh}us,jitter=100{}{}",
        start.as_micros(),
        read.as_micros(),
        write.as_micros(),
        throughput,
        of_objects(cluster, read)?,
    );
    Ok(Costs { latency, add })
}

/// Measures [`Work::throughput`] while all pods of these nodes are assigned their addresses at the same time.
fn in_a_burst(
    cluster: &Cluster,
    nodes: &[String],
    call: &(impl Fn(&str, &str, &str) -> Result<Duration, Failed> + Sync),
) -> Result<String, Failed> {
    let work = Work::begin(cluster)?;
    let pods = nodes.iter().flat_map(|node| (0..PODS).map(move |pod| (node, format!("{node}-{pod}"))));
    let add = |(node, container): (&String, String)| call("ADD", node, &container).map(drop);
    thread::scope(|scope| {
        let calls: Vec<_> = pods.map(|pod| scope.spawn(|| add(pod))).collect();
        calls.into_iter().try_for_each(|call| call.join().map_err(|_| "a call panicked")?)
    })?;
    work.throughput(cluster)
}

/// The starting values from which the work of the servers and of this process is computed.
struct Work {
    seconds: f64,
    /// Seconds of processor time that the idle servers use per second.
    idle: f64,
    requests: requests::Requests,
    begin: Instant,
}

impl Work {
    fn begin(cluster: &Cluster) -> Result<Self, Failed> {
        let before = cluster.processor_seconds();
        thread::sleep(IDLE);
        let idle = (cluster.processor_seconds() - before) / IDLE.as_secs_f64();
        let requests = requests::done(cluster)?;
        Ok(Self { seconds: seconds(cluster), idle, requests, begin: Instant::now() })
    }

    /// The requests per second that the machine can serve, derived from the processor time of the requests since the
    /// start. The cost of a write relative to a read is the one that simulations assume by default.
    fn throughput(self, cluster: &Cluster) -> Result<String, Failed> {
        let idle = self.idle * self.begin.elapsed().as_secs_f64();
        let used = seconds(cluster) - self.seconds - idle;
        let requests = requests::done(cluster)?.since(&self.requests);
        let assumed = calipam_simulate::Costs::assumed(cluster.form().datastore);
        let threads = thread::available_parallelism()?.get() as f64;
        let times = assumed.reads_per_second as f64 / assumed.writes_per_second as f64;
        let as_reads = requests.done.saturating_sub(requests.writes) as f64 + requests.writes as f64 * times;
        let reads = threads * as_reads / used;
        Ok(format!(",threads={threads},reads-per-second={reads:.0},writes-per-second={:.0}", reads / times))
    }
}

/// The processor time so far of the servers and of this process, whose threads compete with them for processors. The
/// time of plugin processes counts as part of their start.
pub(super) fn seconds(cluster: &Cluster) -> f64 {
    cluster.processor_seconds() + processor_seconds(std::process::id())
}

/// The times of ADDs on a single node in a simulation in which only one part takes time.
struct Simulated {
    /// The time of an ADD that claims a block.
    claim: Duration,
    /// The time of an ADD in a block of the node.
    add: Duration,
}

impl Simulated {
    fn with(begin: &Begin, cost: &str) -> Result<Self, Failed> {
        let run = begin.predict(1, &format!("{NOTHING},{cost}"), FAR_APART)?;
        let median = |times: &Times| Duration::from_micros(times.median.0);
        Ok(Self { claim: median(&run.adds.time_with_list), add: median(&run.adds.time_in_own_block) })
    }

    fn more(&self) -> Duration {
        self.claim.saturating_sub(self.add)
    }
}

/// Times a read on an open connection.
fn read(cluster: &Cluster) -> Result<Duration, Failed> {
    match cluster {
        Cluster::Etcd(etcd) => Ok(etcd.with_client(async |mut client| {
            client.get("/calico/ipam/v2/config", None).await?;
            let begin = Instant::now();
            client.get("/calico/ipam/v2/config", None).await?;
            Ok::<_, etcd_client::Error>(begin.elapsed())
        })?),
        Cluster::Kubernetes(server) => Ok(ask(server, "/api/v1/namespaces/default")?.0),
    }
}

/// Times a request to an API server on an open connection. Also returns the response.
fn ask(server: &KubeApiserver, path: &str) -> Result<(Duration, String), Failed> {
    server.request("GET", path, "")?;
    let begin = Instant::now();
    let answer = server.request("GET", path, "")?;
    Ok((begin.elapsed(), answer.body))
}

/// The time per object in a list of an API server, in the format of `--latency`. It is measured with the affinities
/// that the calls have left. For etcd, the assumed time is used, since its lists are short here.
fn of_objects(cluster: &Cluster, read: Duration) -> Result<String, Failed> {
    let Cluster::Kubernetes(server) = cluster else { return Ok(String::new()) };
    let path = Flavour::Classic.path("blockaffinities");
    let asked = (0..11).map(|_| ask(server, &path)).collect::<Result<Vec<_>, _>>()?;
    let answer = &asked[0].1;
    let list: serde_json::Value = serde_json::from_str(answer)?;
    let objects = list["items"].as_array().map_or(0, Vec::len).max(1);
    let kib = Duration::from_nanos(calipam_simulate::Costs::assumed(cluster.form().datastore).kib_nanos);
    let of_list = median(asked.iter().map(|(took, _)| *took))
        .saturating_sub(read + kib.mul_f64(answer.len() as f64 / 1024.0));
    Ok(format!(",object={}us", (of_list / u32::try_from(objects)?).as_micros()))
}
