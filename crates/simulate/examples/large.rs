//! Measures the time of a large simulation: `cargo run --release -p calipam-simulate --example large -- NODES
//! PODS-PER-NODE`.

use std::time::Instant;

use calipam_simulate::answer::run;
use calipam_simulate::{PoolSpec, Scenario};

/// The same allocator as in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let nodes = arguments.next().unwrap_or(5_000);
    let pods_per_node = arguments.next().unwrap_or(100);
    let pool = PoolSpec::new("10.0.0.0/10".parse().expect("a CIDR"));
    let scenario = Scenario { nodes, pods_per_node, pools: vec![pool], ..Scenario::default() };
    let begin = Instant::now();
    let shown = run(&scenario).expect("a possible cluster");
    println!("{shown:#?}\n{:?}", begin.elapsed());
}
