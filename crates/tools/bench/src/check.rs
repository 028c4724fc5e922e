//! Helpers for the parts that run `calipam`.

use std::error::Error;
use std::process::Command;
use std::str::FromStr;

use calipam_testkit::cluster::{ClusterSpec, SizedCluster};
use calipam_testkit::servers::Etcd;

use crate::Failed;
use crate::child::{Measured, measure};

/// Measures each size and prints the rows.
pub(crate) fn rows<S, R, E>(
    sizes: &[String],
    row: impl Fn(S) -> Result<R, E>,
    print: impl Fn(&[R]),
) -> Result<(), Failed>
where
    S: FromStr<Err: Error + Send + Sync + 'static>,
    Failed: From<E>,
{
    let measure = |size: &String| Ok(row(size.parse()?)?);
    let rows = sizes.iter().map(measure).collect::<Result<Vec<R>, Failed>>()?;
    print(&rows);
    Ok(())
}

/// Starts an etcd with a healthy cluster of a number of allocations.
pub(crate) fn seeded(allocations: u64) -> Result<Etcd, String> {
    let etcd = Etcd::start().map_err(|e| e.to_string())?;
    let cluster = SizedCluster::new(ClusterSpec::new(1), allocations);
    cluster.write_to_etcd(&etcd.endpoint()).map_err(|e| e.to_string())?;
    Ok(etcd)
}

/// Runs `check` on the datastore of the connection options, as one look without settling.
pub(crate) fn check(program: &str, connection: &[&str]) -> Result<Measured, String> {
    run(program, &["check", "--settle", "0"], connection)
}

/// Runs a command that has to succeed.
pub(crate) fn run(program: &str, command: &[&str], connection: &[&str]) -> Result<Measured, String> {
    let words = command.join(" ");
    let mut child = Command::new(program);
    child.args(command).args(["--output", "json"]).args(connection);
    let (measured, ended) = measure(&mut child).map_err(|e| format!("cannot run {program}: {e}"))?;
    if !ended.success() {
        return Err(format!("the generated cluster is healthy, but `{program} {words}` ended with {ended}"));
    }
    Ok(measured)
}
