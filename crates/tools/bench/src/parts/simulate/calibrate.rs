//! Measures the costs of single calls, one after another. A simulation has no other information about this machine.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use calipam_simulate::{Latency, Micros};
use calipam_testkit::kube::{self, Flavour};
use calipam_testkit::servers::processor_seconds;

use super::{Begin, arrive};
use crate::cluster::Cluster;
use crate::measured::{Measured, median};
use crate::plugin::Plugin;

/// Number of calls of each kind. Each call that claims a block needs its own node.
pub(super) const CALLS: usize = 50;
/// The costs of a datastore that takes no time.
const NOTHING: &str = "start=0,connect=0,read=0,write=0,refresh=0,object=0,kib=0,decode=0,jitter=0,\
                       reads-per-second=0,writes-per-second=0";
/// An interval so long that no call waits for another.
const FAR_APART: Duration = Duration::from_mins(2);

/// Duration for which the idle servers are measured.
const IDLE: Duration = Duration::from_secs(5);

/// Times single calls on nodes that have no block yet. Returns the value for `--latency`, and the time of an ADD in a
/// block of the node.
///
/// An ADD that claims a block and an ADD in an existing block consist of the same parts, such as reads and writes, but
/// in different numbers. These numbers are determined with simulations in which only one part takes time. The extra
/// time of a claiming ADD is the cost of its extra writes. The rest of the time, without reads and writes, is the cost
/// of starting (measured with VERSION, which reads nothing) and of connecting. The variation between ADDs in an
/// existing block is attributed to connecting as well, since on this machine, the times of processes vary, and those of
/// single requests hardly do. The processor time per request in a burst is measured with a burst on other nodes.
pub(super) fn costs(
    plugin: &Plugin,
    cluster: &Cluster,
    begin: &Begin,
    [nodes, for_a_burst]: [&[String]; 2],
) -> Result<(String, f64)> {
    let mut starts = vec![];
    let mut claims = vec![];
    let mut adds = vec![];
    let mut reads = vec![];
    let single_calls = || {
        for node in nodes {
            let again = format!("{node}-again");
            let time = |command, container| {
                thread::sleep(cluster.pause());
                anyhow::Ok(plugin.call(command, node, container)?.seconds)
            };
            starts.push(time("VERSION", node)?);
            claims.push(time("ADD", node)?);
            adds.push(time("ADD", &again)?);
            reads.push(read(cluster)?);
            time("DEL", node)?;
            time("DEL", &again)?;
        }
        Ok(())
    };
    let mut throughput = throughput(cluster, begin, plugin.on_threads, single_calls)?;
    if plugin.on_threads {
        // Many concurrent calls take less processor time than the same calls one by one. A burst on other nodes shows
        // how much.
        let burst = || arrive(plugin, for_a_burst, Duration::ZERO).map(drop);
        throughput = self::throughput(cluster, begin, true, burst)?;
    }
    let [start, claim, add, read] = [starts, claims, adds.clone(), reads].map(median);

    let refresh = begin.assumed().refresh.0;
    // The time of an ADD in a block of the node, and how much longer one takes that claims a block, on a single node if
    // only one part takes time.
    let simulated = |cost: &str| {
        let run = begin.predict(&nodes[..1], &format!("{NOTHING},{cost}"), FAR_APART)?;
        let times = [&run.adds.time_in_own_block, &run.adds.time_with_list];
        let [add, claim] = times.map(|times| times.median.0 as f64 / 1e6);
        anyhow::Ok((add, claim - add))
    };
    let (reads_of_add, more_reads) = simulated("read=1s")?;
    let (writes_of_add, more_writes) = simulated("write=1s")?;
    let (waits_of_add, more_waits) = simulated(&format!("refresh={refresh}us"))?;

    let write = (claim - add - more_waits - read * more_reads).max(0.0) / more_writes;
    let others = start + waits_of_add + read * reads_of_add + write * writes_of_add;
    let mut connects: Vec<_> = adds.iter().map(|add| micros(add - others)).collect();
    connects.sort();
    let connect = Latency::measured(&connects).context("no calls")?.text();
    let [start, of_read, write] = [start, read, write].map(|seconds| micros(seconds).0);
    let latency = format!(
        "start={start}us,connect={connect},read={of_read}us,write={write}us,refresh={refresh}us,jitter=100{throughput}{}",
        of_objects(cluster, begin, read)?,
    );
    Ok((latency, add))
}

fn micros(seconds: f64) -> Micros {
    Micros((seconds.max(0.0) * 1e6) as u64)
}

/// The requests per second that the machine can serve, derived from the processor time that the requests of `work` take
/// the servers, and this process if the plugin runs on its threads, which compete with the servers for processors. The
/// time of plugin processes counts as part of their start. The cost of a write relative to a read is the one that
/// simulations assume by default.
fn throughput(
    cluster: &Cluster,
    begin: &Begin,
    on_threads: bool,
    work: impl FnOnce() -> Result<()>,
) -> Result<String> {
    let own = || {
        if on_threads {
            processor_seconds(std::process::id())
        } else {
            0.0
        }
    };
    let used = || cluster.processor_seconds() + own();
    let before = used();
    thread::sleep(IDLE);
    let idle = (used() - before) / IDLE.as_secs_f64();

    let before = used();
    let requests = cluster.requests()?;
    let revision = cluster.revision()?;
    let start = Instant::now();
    work()?;
    let used = used() - before - idle * start.elapsed().as_secs_f64();
    let writes = (cluster.revision()? - revision) as f64;
    let reads = (cluster.requests()? - requests) as f64 - writes;
    let assumed = begin.assumed();
    let times = assumed.reads_per_second as f64 / assumed.writes_per_second as f64;
    let threads = thread::available_parallelism()?.get() as f64;
    let reads = threads * (reads + writes * times) / used;
    Ok(format!(
        ",threads={threads},reads-per-second={reads:.0},writes-per-second={:.0}",
        reads / times
    ))
}

/// Times a read on an open connection, in seconds.
fn read(cluster: &Cluster) -> Result<f64> {
    let Some(server) = cluster.api_server() else {
        return cluster.etcd().with_client(async |mut client| {
            client.get("/calico/ipam/v2/config", None).await?;
            let begin = Instant::now();
            client.get("/calico/ipam/v2/config", None).await?;
            Ok(begin.elapsed().as_secs_f64())
        });
    };
    Ok(Measured::of(|| server.request("GET", "/api/v1/namespaces/default", ""))?.seconds)
}

/// The time per object in a list of an API server, in the format of `--latency`. It is measured with the affinities
/// that the calls have left. For etcd, the assumed time is used, since its lists are short here.
fn of_objects(cluster: &Cluster, begin: &Begin, read: f64) -> Result<String> {
    let Some(server) = cluster.api_server() else {
        return Ok(String::new());
    };
    let path = Flavour::Classic.path("blockaffinities");
    let list = kube::read(server, &path);
    let objects = list["items"].as_array().map_or(0, Vec::len).max(1);
    let of_bytes = begin.assumed().kib_nanos as f64 / 1e9 * list.to_string().len() as f64 / 1024.0;
    let ask = |_| Measured::of(|| server.request("GET", &path, ""));
    let of_list = Measured::medians(&(0..11).map(ask).collect::<Result<Vec<_>>>()?).seconds;
    Ok(format!(
        ",object={}us",
        micros((of_list - read - of_bytes) / objects as f64).0
    ))
}
