//! What the benchmarks of `calipam check` have in common.

use std::fmt::Display;
use std::process::{Command, ExitCode};
use std::str::FromStr;

use calipam_testkit::cluster::{ClusterSpec, SizedCluster};
use calipam_testkit::servers::Etcd;

use crate::child::{Measured, measure};

/// Measures each size on the command line, which begins with the program, and prints the rows.
pub fn main<S: FromStr<Err: Display>, R>(
    usage: &str,
    row: impl Fn(&str, S) -> Result<R, String>,
    print: impl Fn(&[R]),
) -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: {usage}");
        return ExitCode::from(2);
    };
    let sizes = arguments.map(|size| size.parse().map_err(|e: S::Err| e.to_string()));
    match sizes.map(|size| row(&program, size?)).collect::<Result<Vec<R>, String>>() {
        Ok(rows) => {
            print(&rows);
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// An etcd with a healthy cluster of so many allocations.
pub fn seeded(allocations: u64) -> Result<Etcd, String> {
    let etcd = Etcd::start().map_err(|e| e.to_string())?;
    let cluster = SizedCluster::new(ClusterSpec::new(1), allocations);
    cluster.write_to_etcd(&etcd.endpoint()).map_err(|e| e.to_string())?;
    Ok(etcd)
}

/// Checks what the connection's options name, as one look without settling.
pub fn check(program: &str, connection: &[&str]) -> Result<Measured, String> {
    run(program, &["check", "--settle", "0"], connection)
}

/// Runs a command that has to succeed.
pub fn run(program: &str, command: &[&str], connection: &[&str]) -> Result<Measured, String> {
    let words = command.join(" ");
    let mut child = Command::new(program);
    child.args(command).args(["--output", "json"]).args(connection);
    let (measured, ended) = measure(&mut child).map_err(|e| format!("cannot run {program}: {e}"))?;
    if !ended.success() {
        return Err(format!("the generated cluster is healthy, but `{program} {words}` ended with {ended}"));
    }
    Ok(measured)
}
