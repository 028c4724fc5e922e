//! Completion of values on etcd compared with one raw range read.

use std::process::Command;

use etcd_client::{Client, GetOptions};

use crate::cluster::seeded_etcd;
use crate::measured::{Measured, in_turns, middle_and_slowest};
use crate::{Failed, table};

/// Runs of each measurement. The table shows the median and the slowest run, since each run stands for a keystroke.
const RUNS: usize = 21;
/// Number of names per range read.
const AT_ONCE: i64 = 100;

/// The lines to complete, each with the prefix of the keys from which the values come.
const LINES: [(&str, &str); 4] = [
    ("show --handle k8s-pod-network.1", "/calico/ipam/v2/handle/k8s-pod-network.1"),
    ("show --ip 10.", "/calico/ipam/v2/assignment/ipv4/block/10."),
    ("rebuild --block 10.", "/calico/ipam/v2/assignment/ipv4/block/10."),
    ("check --node node-1", "/calico/resources/v3/projectcalico.org/nodes/node-1"),
];

const TITLES: &str = "allocations | <line | suggestions | floor | completion | slowest | ratio";

/// Measures each size and prints the table.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    table::of_sizes(sizes, [TITLES], |allocations: u64, [table]| {
        let etcd = seeded_etcd(allocations)?;
        let (endpoint, runtime) = (etcd.endpoint(), tokio::runtime::Runtime::new()?);
        for (line, prefix) in LINES {
            let mut suggestions = 0;
            let floor = || Measured::of(|| Ok(runtime.block_on(read(&endpoint, prefix))?));
            let complete = || {
                Measured::of(|| {
                    suggestions = complete(program, line, &endpoint)?;
                    Ok(())
                })
            };
            let [floor, completion] = in_turns(RUNS, floor, complete)?.map(|runs| middle_and_slowest(&runs));
            let ([floor, _], [middle, slowest]) = (floor, completion);
            table.row(format!(
                "{allocations} | `{line}` | {suggestions} | {floor:.1} ms | {middle:.1} ms | {slowest:.1} ms | {:.1}",
                middle / floor
            ));
        }
        Ok(())
    })
}

/// Connects and reads one range of keys, the minimum for any completion.
async fn read(endpoint: &str, prefix: &str) -> Result<(), etcd_client::Error> {
    let mut client = Client::connect([endpoint], None).await?;
    let options = GetOptions::new().with_prefix().with_limit(AT_ONCE).with_keys_only();
    client.get(prefix, Some(options)).await.map(drop)
}

/// Completes a line as the bash script does. Returns the number of suggestions.
fn complete(program: &str, line: &str, endpoint: &str) -> Result<usize, Failed> {
    let (command, option) = line.split_once(' ').unwrap_or_default();
    let typed = line.rsplit(' ').next().unwrap_or_default();
    let line = format!("calipam {command} --etcd-endpoints {endpoint} {option}");
    let output = Command::new(program)
        .args(["--", &line, typed])
        .env("COMPLETE", "bash")
        .output()
        .map_err(|e| format!("cannot run {program}: {e}"))?;
    match String::from_utf8_lossy(&output.stdout).lines().count() {
        0 => Err(format!("`{line}` is completed by nothing").into()),
        suggestions => Ok(suggestions),
    }
}
