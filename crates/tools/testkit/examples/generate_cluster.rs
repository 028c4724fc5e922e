//! Writes a generated cluster.
//!
//! ```text
//! generate_cluster example FILE               the cluster of the documentation, in calipam's export format
//! generate_cluster etcd SEED COUNT ENDPOINT   a cluster with COUNT of each fault, written into an etcd
//! ```

use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

use calipam_testkit::cluster::{Cluster, ClusterSpec};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    match words {
        ["example", path] => {
            let written = Cluster::example().write_export(Path::new(path));
            written.map_err(|e| format!("cannot write the file: {e}"))
        }
        ["etcd", seed, count, endpoint] => {
            let count: usize = number(count)?;
            let most = Cluster::MOST_OF_EACH_FAULT;
            if count > most {
                return Err(format!("the cluster has room for at most {most} of each fault"));
            }
            let cluster = Cluster::all_faults(ClusterSpec::new(number(seed)?).wide(), count);
            cluster.write_to_etcd(endpoint).map_err(|e| e.to_string())
        }
        _ => Err("usage: generate_cluster example FILE | generate_cluster etcd SEED COUNT ENDPOINT".into()),
    }
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}
