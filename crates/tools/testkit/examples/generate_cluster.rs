//! Writes a generated cluster to a file, in calipam's export format or as `kubectl get -o json` prints it. Writes the
//! expected findings to a second file next to it.
//!
//! ```text
//! generate_cluster example FILE               the cluster of the documentation, without a file of findings
//! generate_cluster faults SEED COUNT FILE     COUNT of each fault
//! generate_cluster etcd SEED COUNT ENDPOINT   the same, written into an etcd
//! generate_cluster sized SEED COUNT FILE      COUNT allocations, healthy
//! generate_cluster classic SEED COUNT FILE    COUNT of each fault that Kubernetes can have, as a list of its objects
//! generate_cluster native SEED COUNT FILE     the same in the other API group
//! ```

use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

use calipam_testkit::cluster::{Cluster, ClusterSpec, Form, SizedCluster};
use calipam_testkit::kube::Flavour;

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
    let file = |e: std::io::Error| format!("cannot write the file: {e}");
    match words {
        ["example", path] => Cluster::example().write_export(Path::new(path)).map_err(file),
        ["faults", seed, count, path] => {
            let cluster = Cluster::all_faults(ClusterSpec::new(number(seed)?).wide(), number(count)?);
            cluster.write_export(Path::new(path)).map_err(file)?;
            cluster.truth().write(&Path::new(path).with_extension("truth.json")).map_err(file)
        }
        ["etcd", seed, count, endpoint] => {
            let cluster = Cluster::all_faults(ClusterSpec::new(number(seed)?).wide(), number(count)?);
            cluster.write_to_etcd(endpoint).map_err(|e| e.to_string())
        }
        ["sized", seed, count, path] => {
            let cluster = SizedCluster::new(ClusterSpec::new(number(seed)?), number(count)?);
            cluster.write_export(Path::new(path)).map_err(file)
        }
        [group @ ("classic" | "native"), seed, count, path] => {
            let flavour = if *group == "classic" { Flavour::Classic } else { Flavour::Native };
            let spec = ClusterSpec::new(number(seed)?).wide();
            let cluster = Cluster::all_faults_of(spec, Form::of(flavour), number(count)?).kubernetes(flavour);
            cluster.write_list(Path::new(path)).map_err(file)?;
            cluster.truth().write(&Path::new(path).with_extension("truth.json")).map_err(file)
        }
        _ => {
            Err("usage: generate_cluster example FILE | (faults|sized|classic|native) SEED COUNT FILE | etcd SEED COUNT ENDPOINT".into())
        }
    }
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}
