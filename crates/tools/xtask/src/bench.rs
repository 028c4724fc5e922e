//! `cargo xtask bench`.

use std::process::Command;

use clap::Args;

use crate::failure::Failure;
use crate::servers;
use crate::tool::Tool;
use crate::{protoc, step, workspace};

/// The name of a part, here and in `crates/tools/bench`, and the sizes to measure unless the command line names others.
type Part = (&'static str, &'static [&'static str]);

/// Sizes of simulations: the number of nodes, and after `+` the number of blocks that other nodes own.
const NODES: &[&str] = &["10", "50", "100", "50+1000", "50+5000"];

const PARTS: [Part; 16] = [
    ("etcd", &["10000", "100000", "1000000"]),
    ("kubernetes", &["100000"]),
    ("release-etcd", &["1000000"]),
    ("release-kubernetes", &["100000"]),
    ("growth", &["20000"]),
    ("reports", &["1000000"]),
    ("history", &["1000000"]),
    ("live", &["100000", "1000000"]),
    ("live-kubernetes", &["100000"]),
    ("record", &["100000"]),
    ("cni", &["200"]),
    ("cni-kubernetes", &["200"]),
    ("cni-large", &["100", "10000"]),
    ("cni-large-kubernetes", &["100", "10000"]),
    ("simulate", NODES),
    ("simulate-kubernetes", NODES),
];

/// Measure checks and releases against what the server needs for them
///
/// Builds calipam in release mode, fills a server with a generated cluster of each
/// size, and prints a table: the time of a check, the floor, their ratio and peak
/// memory. docs/performance.md says how to read it.
///
///     etcd        sizes are allocations: 10,000, 100,000 and 1,000,000 unless
///                 named. Checks, the views of `show`, files, and what decoding
///                 and rules take. About ten minutes and 6 GB of disk on two cores.
///     kubernetes  sizes are pods: 100,000 unless named. Checks and the views of
///                 `show`. About six minutes, 2 GB of disk and 10 GB of memory.
///                 20000+500000 stands for 500,000 handles of deleted pods
///                 beside 20,000 pods.
///
/// The parts release-etcd and release-kubernetes measure `release --leaked` of
/// every tenth address, and its undo: of 1,000,000 and of 100,000 unless sizes are
/// named. 1000000/100 stands for every hundredth of 1,000,000.
///
/// The part growth doubles the blocks of a handle, of a node and of a pool, the
/// handles of a block, and the findings of a rule, from 20,000 unless a size is
/// named, and measures checks and plans of each. Some minutes.
///
/// The part reports measures the writing of reports in every format, of a cluster
/// whose every tenth address is leaked, and what a browser needs for the page.
///
/// The part history measures the history of an address among 1,000,000
/// allocations, unless sizes are named, with and without compaction, and the
/// comparison of two states of that size with the reading of both.
///
/// The parts live and live-kubernetes measure `calipam serve` of an etcd with
/// 100,000 and 1,000,000 allocations, and of 100,000 pods on Kubernetes, unless
/// sizes are named: how long after a change its finding appears, and what it takes
/// at rest and while about 50 pods a second come or go. Three minutes each.
///
/// The part record measures `calipam record` of an etcd with 100,000 allocations,
/// unless sizes are named: bytes and processor time of a change. Two minutes.
///
/// The parts cni and cni-kubernetes measure the CNI plugin and a raw client that
/// sends the same requests: ADD and DEL, 200 of each unless a number is named, 50
/// ADD in a row, and 64 at once. CALIPAM_BENCH_PLUGIN names a third program that is
/// measured in the same run, such as Calico's own calico-ipam. Seconds each, and
/// they build no calipam.
///
/// The parts cni-large and cni-large-kubernetes measure what an ADD reads and takes
/// that needs another block, among 100 and 10,000 blocks of Calico's size unless
/// numbers are named: it claims one, borrows, is refused, and 64 nodes at once.
/// Some minutes and 2 GB of memory.
///
/// The parts simulate and simulate-kubernetes run the same arrivals of pods with
/// real processes of the plugin and in a simulation: requests and times of an ADD,
/// on 10, 50 and 100 nodes, and as 50+1000 and 50+5000 on 50 among so many blocks
/// of others, unless numbers are named (docs/simulate.md). burst:50 stands for 50
/// nodes whose pods all arrive at once.
///
/// Without a part all are measured. For a quick run:
///
///     cargo xtask bench 10000
///     cargo xtask bench kubernetes 10000
///
/// Needs Rust, a C compiler, and an etcd and a kube-apiserver, which
/// `cargo xtask test` installs.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Bench {
    /// A part of the benchmark, and the sizes to measure
    #[arg(value_name = "PART OR SIZES")]
    words: Vec<String>,
}

pub(crate) fn run(task: &Bench) -> Result<(), Failure> {
    let (parts, sizes) = chosen(&task.words)?;
    let mut servers = vec![servers::find_or_build(Tool::Etcd)?];
    if parts.iter().any(|(name, _)| name.ends_with("kubernetes")) {
        servers.push(servers::find_or_build(Tool::KubeApiserver)?);
    }
    // These measure the CNI plugin, not calipam.
    let is_of_plugin = |(name, _): &Part| name.starts_with("cni") || name.starts_with("simulate");
    let build = |title: &str, package: &str| {
        step::run(
            title,
            &mut protoc::cargo(&["build", "--release", "--package", package])?,
        )
    };
    if !parts.iter().all(is_of_plugin) {
        build("Building calipam", "calipam")?;
    }
    if parts.iter().any(is_of_plugin) {
        build("Building the CNI plugin", "calipam-cni")?;
    }
    build("Building the benchmark", "calipam-bench")?;
    let release = workspace::target()?.join("release");
    for (name, usual) in parts {
        let mut measure = Command::new(release.join("calipam-bench"));
        measure
            .arg(name)
            .arg(release.join("calipam"))
            .envs(servers.iter().cloned());
        match sizes {
            [] => measure.args(*usual),
            sizes => measure.args(sizes),
        };
        step::run(&format!("Measuring on {name}"), &mut measure)?;
    }
    Ok(())
}

/// Returns the parts that the arguments choose, and the sizes that they name.
fn chosen(arguments: &[String]) -> Result<(&'static [Part], &[String]), Failure> {
    let named = arguments
        .first()
        .and_then(|first| PARTS.iter().position(|(name, _)| name == first));
    let (parts, sizes) = match named {
        Some(place) => (&PARTS[place..=place], &arguments[1..]),
        None => (&PARTS[..], arguments),
    };
    for size in sizes {
        // `50+1000` means 50 nodes and 1000 blocks of other nodes, `burst:50` a burst of their pods, and `1000/100` every
        // hundredth of 1000.
        if size
            .trim_start_matches("burst:")
            .split(['+', '/'])
            .any(|number| number.parse::<u64>().is_err())
        {
            let failure = Failure::new(format!("`{size}` is neither a part of the benchmark nor a size"));
            return Err(failure.hint("for example `cargo xtask bench etcd 10000 100000`"));
        }
    }
    Ok((parts, sizes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_sizes() {
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let found = chosen(&words).map(|(parts, sizes)| {
                (
                    parts.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
                    sizes.to_vec(),
                )
            });
            found.map_err(|failure| failure.to_string())
        };
        let all = || PARTS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(chosen(&[]), Ok((all(), vec![])));
        assert_eq!(chosen(&["10000"]), Ok((all(), vec!["10000".to_owned()])));
        assert_eq!(
            chosen(&["kubernetes", "5"]),
            Ok((vec!["kubernetes"], vec!["5".to_owned()]))
        );
        let burst = "burst:50+1000";
        assert_eq!(
            chosen(&["simulate", burst]),
            Ok((vec!["simulate"], vec![burst.to_owned()]))
        );
        let error = chosen(&["etcd", "many"]).unwrap_err();
        assert!(error.starts_with("error: `many` is neither"), "{error}");
    }
}
