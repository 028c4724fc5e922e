//! `calipam check` and `calipam show` on a datastore, and `calipam check` on files, compared with the floor.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufReader, sink};
use std::iter;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use std::vec::IntoIter;

use anyhow::Result;
use calipam_check::{Options, check};
use calipam_model::parallel::lock;
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};
use calipam_testkit::cluster;
use calipam_testkit::servers::EtcdOptions;
use etcd_client::{Client, GetOptions};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::cluster::{Cluster, healthy};
use crate::kubernetes;
use crate::measured::Measured;
use crate::process::{CHECK, calipam};

pub(super) const PHASES: &str = "allocations | decoding, an allocation | rules, an allocation";

const BLOCKS: &str = "/calico/ipam/v2/assignment/";
const AFFINITIES: &str = "/calico/ipam/v2/host/";
const NODES: &str = "/calico/resources/v3/projectcalico.org/nodes/";
const POOLS: &str = "/calico/resources/v3/projectcalico.org/ippools/";
const CLUSTER: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/";

/// Runs of each measurement.
const RUNS: usize = 3;
const RUNS_ON_KUBERNETES: usize = 5;

/// The commands and what they read: prefixes of keys in etcd, and kinds on Kubernetes. Single keys are left out, since
/// they hardly cost anything.
const COMMANDS: [(&str, &[&str], &str); 4] = [
    (CHECK, &["/calico/"], kubernetes::ALL),
    (
        "show",
        &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER],
        "nodes ipamblocks blockaffinities ippools ipreservations ipamconfigs clusterinformations",
    ),
    (
        "show --blocks",
        &[BLOCKS, POOLS, CLUSTER],
        "ipamblocks ippools ipreservations clusterinformations",
    ),
    (
        "show --nodes",
        &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER],
        "nodes ipamblocks blockaffinities ippools ipamconfigs clusterinformations",
    ),
];

/// Maximum number of bytes per read.
const PIECE: usize = 1 << 20;

/// Reads a file, and decodes or sums it, as fast as possible.
type ReadFile = fn(BufReader<File>) -> io::Result<()>;

/// Files, each with its floor.
const FILES: [(&str, ReadFile); 3] = [
    ("export.jsonl", |mut file| {
        io::copy(&mut file, &mut sink()).map(drop)
    }),
    ("export.jsonl.zst", |file| {
        io::copy(&mut zstd::Decoder::with_buffer(file)?, &mut sink()).map(drop)
    }),
    ("snapshot.db", |mut file| {
        let mut hasher = Sha256::new();
        io::copy(&mut file, &mut hasher)?;
        black_box(hasher.finalize());
        Ok(())
    }),
];

/// Numbers of ranges to try.
const SPLITS: [usize; 3] = [64, 128, 256];
/// Number of concurrent requests.
const IN_FLIGHT: usize = 4;

/// Ranges of keys: first key and end.
type Ranges = IntoIter<(Vec<u8>, Vec<u8>)>;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let program = bench.program;
    // On Kubernetes, as many handles of pods that are gone can follow the number of pods.
    let (size, handles) = bench.size.split_once('+').unwrap_or((bench.size, "0"));
    let size: u64 = size.parse()?;
    let handles: u64 = handles.parse()?;
    let cluster = Cluster::sized(bench.datastore, size, EtcdOptions::new())?;
    if let Some(server) = cluster.api_server() {
        kubernetes::put_handles(server, handles)?;
        kubernetes::wait_for_caches(server)?;
    }
    let generated = healthy(size);
    let endpoint = cluster.etcd().endpoint();
    let connection = cluster.connection();
    let keys = keys(&generated);
    for (command, prefixes, kinds) in COMMANDS {
        let floor = || match cluster.api_server() {
            None => pull(&endpoint, &keys, prefixes),
            Some(server) => kubernetes::pull(server, kinds, handles > kubernetes::MOST_IN_ONE_PIECE),
        };
        let floor = || undisturbed(&cluster, floor);
        let finds_handles = command == CHECK && handles > 0;
        let run = || json(program, command, &connection, i32::from(finds_handles));
        let measured = || undisturbed(&cluster, run);
        bench.compare(command, cluster.pick(RUNS, RUNS_ON_KUBERNETES), floor, measured)?;
    }
    if cluster.api_server().is_none() {
        files(bench, &cluster)?;
        drop(cluster);
        bench.row(1, &phases(&generated, size)?);
    }
    Ok(())
}

/// Runs a command that prints JSON. It must end with this code.
fn json(program: &str, command: &str, connection: &[String], code: i32) -> Result<Measured> {
    calipam(program, &format!("{command} --output json"), connection, code)
}

/// Measures work that starts after a garbage collection in the API server. Prints the servers' processor time.
fn undisturbed(cluster: &Cluster, work: impl FnOnce() -> Result<Measured>) -> Result<Measured> {
    cluster.api_server().map_or(Ok(()), kubernetes::collect_garbage)?;
    let used = cluster.processor_seconds();
    let measured = work()?;
    let processor = cluster.processor_seconds() - used;
    eprintln!(
        "{:.2} s (servers: {processor:.2} s of processor time)",
        measured.seconds
    );
    Ok(measured)
}

/// Measures the phases of a check without any server: decoding on one thread, and the rules. Returns the row.
fn phases(cluster: &cluster::Cluster, allocations: u64) -> Result<String> {
    let mut entries = Vec::new();
    cluster.for_each_entry(|key, value| entries.push((key.to_vec(), value.to_vec())));
    entries.sort_unstable();
    let mut decoding = Vec::new();
    let mut rules = Vec::new();
    for _ in 0..RUNS {
        let mut snapshot = Snapshot {
            taken_at: jiff::Timestamp::now(),
            ..Snapshot::default()
        };
        snapshot.mark_read(ETCD_SOURCES);
        let mut decode = |(key, value): &(Vec<u8>, Vec<u8>)| {
            snapshot.add_entry(key, value, 1);
            Ok(())
        };
        decoding.push(Measured::of(|| entries.iter().try_for_each(&mut decode))?);
        rules.push(Measured::of(|| {
            Ok(black_box(check(&snapshot, &Options::default())))
        })?);
    }
    let each = |runs| anyhow::Ok(Measured::best(runs)?.seconds * 1e6 / allocations as f64);
    let [decoding, rules] = [each(decoding)?, each(rules)?];
    Ok(format!("{decoding:.2} µs | {rules:.2} µs"))
}

/// Measures checks of files, compared with only reading and unpacking them.
fn files(bench: &mut Bench<'_>, cluster: &Cluster) -> Result<()> {
    let program = bench.program;
    // The folder is not in a memory-backed file system, whose files would count as used memory.
    let folder = tempfile::tempdir_in(".")?;
    for (name, floor) in FILES {
        let path = folder.path().join(name);
        let text = path.display().to_string();
        match name {
            "snapshot.db" => cluster.etcd().save_snapshot(&path)?,
            _ => drop(calipam(
                program,
                &format!("export {text}"),
                &cluster.connection(),
                0,
            )?),
        }
        let bytes = path.metadata()?.len();
        let floor = || {
            let read = Measured::of(|| Ok(floor(BufReader::with_capacity(PIECE, File::open(&path)?))?))?;
            Ok(Measured { bytes, ..read })
        };
        let check = || json(program, CHECK, &["--datastore".to_owned(), text.clone()], 0);
        bench.compare(&format!("check of {name}"), RUNS, floor, check)?;
    }
    Ok(())
}

/// The sorted keys of a cluster, to split the key space evenly.
fn keys(cluster: &cluster::Cluster) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    cluster.for_each_entry(|key, _| keys.push(key.to_vec()));
    keys.sort();
    keys
}

/// Reads everything below some prefixes once with each split; returns the fastest read. This is the floor: the time in
/// which etcd sends all keys and values. Only the messages themselves are decoded. `keys` are sorted.
fn pull(endpoint: &str, keys: &[Vec<u8>], prefixes: &[&str]) -> Result<Measured> {
    let runtime = Runtime::new()?;
    let pull = |split| {
        let ranges: Vec<_> = prefixes
            .iter()
            .flat_map(|prefix| ranges(prefix, keys, split))
            .collect();
        let start = Instant::now();
        let ranges = Arc::new(Mutex::new(ranges.into_iter()));
        let pulls = (0..IN_FLIGHT).map(|_| pull_some(endpoint.to_owned(), Arc::clone(&ranges)));
        let pulled = runtime.block_on(async { pulls.collect::<JoinSet<_>>().join_all().await });
        let bytes = pulled.into_iter().sum::<Result<u64, _>>()?;
        Ok(Measured {
            seconds: start.elapsed().as_secs_f64(),
            bytes,
            ..Measured::default()
        })
    };
    Measured::best(SPLITS.into_iter().map(pull).collect::<Result<_>>()?)
}

/// Returns the ranges below a prefix. `split` is the number of ranges into which all keys are split.
fn ranges(prefix: &str, keys: &[Vec<u8>], split: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let within = keys.iter().filter(|key| key.starts_with(prefix.as_bytes()));
    let inner = within.step_by((keys.len() / split).max(1)).skip(1).cloned();
    // Prefixes end with a slash, and `0` follows it.
    let end = format!("{}0", prefix.trim_end_matches('/')).into_bytes();
    let borders: Vec<_> = iter::once(prefix.into()).chain(inner).chain([end]).collect();
    borders
        .windows(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect()
}

/// Reads one range after another until none is left. Returns the number of bytes.
async fn pull_some(endpoint: String, ranges: Arc<Mutex<Ranges>>) -> Result<u64, etcd_client::Error> {
    let client = Client::connect([endpoint], None).await?;
    let mut client = client.kv_client().max_decoding_message_size(usize::MAX);
    let mut bytes = 0;
    while let Some((from, to)) = { lock(&ranges).next() } {
        let answer = client.get(from, Some(GetOptions::new().with_range(to))).await?;
        bytes += answer
            .kvs()
            .iter()
            .map(|kv| kv.key().len() + kv.value().len())
            .sum::<usize>() as u64;
    }
    Ok(bytes)
}
