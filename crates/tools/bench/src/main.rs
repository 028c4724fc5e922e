//! Benchmarks of calipam: `calipam-bench PART CALIPAM SIZES…`. `cargo xtask bench` builds and runs it in release mode.

mod bench;
mod child;
mod churn;
mod cluster;
mod form;
mod kubernetes;
mod leak;
mod measured;
mod observe;
mod parts;
mod plugin;
mod requests;

use std::process::ExitCode;

type Failed = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [part, program, sizes @ ..] = arguments.as_slice() else {
        eprintln!("usage: calipam-bench PART CALIPAM SIZES…");
        return ExitCode::from(2);
    };
    match parts::run(part, program, sizes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
