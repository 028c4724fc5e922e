//! Helpers for the parts that run `calipam`.

use std::error::Error;
use std::process::Command;
use std::str::FromStr;

use calipam_testkit::cluster::{ClusterSpec, SizedCluster};
use calipam_testkit::servers::Etcd;

use crate::Failed;
use crate::child::{Measured, measure};

/// Measures each size and prints the rows.
pub(crate) fn rows<S: FromStr<Err: Error + Send + Sync + 'static>, R>(
    sizes: &[String],
    row: impl Fn(S) -> Result<R, Failed>,
    print: impl Fn(&[R]),
) -> Result<(), Failed> {
    let rows = sizes.iter().map(|size| row(size.parse()?)).collect::<Result<Vec<R>, Failed>>()?;
    print(&rows);
    Ok(())
}

/// Starts an etcd with a healthy cluster of a number of allocations.
pub(crate) fn seeded(allocations: u64) -> Result<Etcd, Failed> {
    let etcd = Etcd::start()?;
    let cluster = SizedCluster::new(ClusterSpec::new(1), allocations);
    cluster.write_to_etcd(&etcd.endpoint())?;
    Ok(etcd)
}

/// Runs `check` on the datastore of the connection options, as one look without settling.
pub(crate) fn check(program: &str, connection: &[&str]) -> Result<Measured, Failed> {
    run(program, &["check", "--settle", "0"], connection)
}

/// Runs a command that has to succeed.
pub(crate) fn run(program: &str, command: &[&str], connection: &[&str]) -> Result<Measured, Failed> {
    let mut child = Command::new(program);
    measure(child.args(command).args(["--output", "json"]).args(connection), &[0])
}
