//! `calipam check` on files, compared with only reading and unpacking them.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufReader, sink};

use anyhow::Result;
use sha2::{Digest, Sha256};

use super::{RUNS, json};
use crate::bench::Bench;
use crate::cluster::Cluster;
use crate::measured::Measured;
use crate::process::{CHECK, calipam};

/// Maximum number of bytes per read.
const PIECE: usize = 1 << 20;

/// Reads a file, and decodes or sums it, as fast as possible.
type Floor = fn(BufReader<File>) -> io::Result<()>;

/// Files, each with its floor.
const FILES: [(&str, Floor); 3] = [
    ("export.jsonl", |mut file| io::copy(&mut file, &mut sink()).map(drop)),
    ("export.jsonl.zst", |file| io::copy(&mut zstd::Decoder::with_buffer(file)?, &mut sink()).map(drop)),
    ("snapshot.db", |mut file| {
        let mut hasher = Sha256::new();
        io::copy(&mut file, &mut hasher)?;
        black_box(hasher.finalize());
        Ok(())
    }),
];

pub(super) fn measure(bench: &mut Bench<'_>, cluster: &Cluster) -> Result<()> {
    let program = bench.program;
    // The folder is not in a memory-backed file system, whose files would count as used memory.
    let folder = tempfile::tempdir_in(".")?;
    for (name, floor) in FILES {
        let path = folder.path().join(name);
        let text = path.display().to_string();
        match name {
            "snapshot.db" => cluster.etcd().save_snapshot(&path)?,
            _ => drop(calipam(program, &format!("export {text}"), &cluster.connection(), 0)?),
        }
        let bytes = path.metadata()?.len();
        let floor = || {
            let read = Measured::of(|| Ok(floor(BufReader::with_capacity(PIECE, File::open(&path)?))?))?;
            Ok(Measured { bytes, ..read })
        };
        let check = || json(program, CHECK, &["--datastore".to_owned(), text.clone()]);
        bench.compare(&format!("check of {name}"), RUNS, floor, check)?;
    }
    Ok(())
}
