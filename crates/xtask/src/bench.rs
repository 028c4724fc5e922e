//! `cargo xtask bench`.

use std::process::Command;

use crate::failure::Failure;
use crate::servers;
use crate::task::Task;
use crate::{protoc, step, tools, workspace};

/// Sizes that are measured where none is named, in allocations.
const SIZES: [&str; 3] = ["10000", "100000", "1000000"];

pub const TASK: Task = Task {
    name: "bench",
    arguments: "[ALLOCATIONS...]",
    summary: "Measure a check against what etcd needs to hand the data out",
    details: "\
Builds calipam in release mode, fills an etcd with a generated cluster of each
size (10,000, 100,000 and 1,000,000 allocations, unless sizes are named), and
prints a table: the time of a check, the floor, their ratio, peak memory and
growth. docs/performance.md says how to read it. Takes about five minutes and
3 GB of disk on two cores.

Needs Rust, a C compiler, and an etcd, which `cargo xtask test` brings.
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    for size in arguments {
        if size.parse::<u64>().is_err() {
            let failure = Failure::new(format!("`{size}` is not a number of allocations"));
            return Err(failure.hint("for example `cargo xtask bench 10000 100000`"));
        }
    }
    tools::need_c_compiler()?;
    let (variable, etcd) = servers::bring_etcd()?;
    let protoc = protoc::variables()?;
    let mut program = workspace::cargo();
    program.args(["build", "--release", "--package", "calipam"]).envs(protoc.clone());
    step::run("Building calipam", &mut program)?;
    let mut bench = workspace::cargo();
    bench
        .args(["build", "--release", "--package", "calipam-testkit", "--example", "bench_etcd"])
        .envs(protoc);
    step::run("Building the benchmark", &mut bench)?;
    let release = workspace::root().join("target/release");
    let mut measure = Command::new(release.join("examples/bench_etcd"));
    measure.arg(release.join("calipam")).env(variable, etcd);
    match arguments {
        [] => measure.args(SIZES),
        sizes => measure.args(sizes),
    };
    step::run("Measuring", &mut measure)
}
