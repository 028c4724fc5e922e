//! `calipam check` on files, compared with only reading and unpacking them.

use std::io::Read;
use std::path::Path;
use std::{fs, io};

use calipam_testkit::servers::Etcd;
use sha2::{Digest, Sha256};

use super::RUNS;
use crate::Failed;
use crate::bench::Bench;
use crate::child::{CHECK, run};
use crate::measured::Measured;

/// Maximum number of bytes per read.
const PIECE: usize = 1 << 20;

/// Reads a file, and decodes or sums it, as fast as possible.
type Floor = fn(&Path) -> io::Result<()>;

/// Files, each with its floor.
const FILES: [(&str, Floor); 3] =
    [("export.jsonl", read), ("export.jsonl.zst", unpack), ("snapshot.db", sum)];

pub(super) fn measure(bench: &mut Bench<'_>, etcd: &Etcd) -> Result<(), Failed> {
    let program = bench.program;
    // The folder is not in a memory-backed file system, whose files would count as used memory.
    let folder = tempfile::tempdir_in(".")?;
    for (name, floor) in FILES {
        let path = folder.path().join(name);
        let text = path.display().to_string();
        match name {
            "snapshot.db" => etcd.save_snapshot(&path)?,
            _ => drop(run(program, &format!("export {text}"), &["--etcd-endpoints", &etcd.endpoint()])?),
        }
        let bytes = fs::metadata(&path)?.len();
        let floor = || {
            let read = Measured::of(|| floor(&path).map_err(|error| format!("{text}: {error}").into()));
            Ok(Measured { bytes, ..read? })
        };
        let check = || run(program, CHECK, &["--datastore", &text]);
        bench.compare(&format!("check of {name}"), RUNS, floor, check)?;
    }
    Ok(())
}

fn read(path: &Path) -> io::Result<()> {
    drain(fs::File::open(path)?, |_| {})
}

fn unpack(path: &Path) -> io::Result<()> {
    drain(zstd::Decoder::new(fs::File::open(path)?)?, |_| {})
}

/// Computes the checksum of a snapshot.
fn sum(path: &Path) -> io::Result<()> {
    let mut hasher = Sha256::new();
    drain(fs::File::open(path)?, |piece| hasher.update(piece))?;
    std::hint::black_box(hasher.finalize());
    Ok(())
}

fn drain(mut input: impl Read, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        match input.read(&mut piece)? {
            0 => return Ok(()),
            len => take(&piece[..len]),
        }
    }
}
