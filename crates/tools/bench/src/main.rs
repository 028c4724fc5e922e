//! Benchmarks of calipam: `calipam-bench PART CALIPAM SIZES…`. `cargo xtask bench` builds and runs it in release mode.

mod bench;
mod cluster;
mod kubernetes;
mod measured;
mod parts;
mod plugin;
mod process;

use anyhow::{Context, Result, bail};

use self::bench::{Bench, Table};
use self::parts::PARTS;

/// Measures a part for each size on the command line, and prints its tables. The part has the name that it has in
/// `cargo xtask bench`, some with a datastore as the suffix.
fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, program, sizes @ ..] = arguments.as_slice() else {
        bail!("usage: calipam-bench PART CALIPAM SIZES…");
    };
    let datastore = if name.ends_with("kubernetes") {
        "kubernetes"
    } else {
        "etcd"
    };
    let wanted = name.trim_end_matches("-etcd").trim_end_matches("-kubernetes");
    let part = PARTS.iter().find(|part| part.name == wanted);
    let part = part.with_context(|| format!("{name} is not a part of the benchmark"))?;
    let mut tables: Vec<Table> = part.titles.iter().map(|titles| Table::new(titles)).collect();
    for size in sizes {
        (part.measure)(&mut Bench {
            program,
            datastore,
            size,
            tables: &mut tables,
        })?;
    }
    println!("{name}:");
    tables.iter().for_each(Table::print);
    Ok(())
}
