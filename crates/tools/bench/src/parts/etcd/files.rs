//! `check` of files compared with reading and unpacking them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fs, io};

use calipam_testkit::servers::Etcd;
use sha2::{Digest, Sha256};

use super::RUNS;
use crate::{Failed, check, child};

/// Size of a read.
const PIECE: usize = 1 << 20;

/// One line of the table.
pub(super) struct File {
    kind: &'static str,
    bytes: u64,
    floor: f64,
    check: child::Measured,
}

pub(super) fn measure(program: &str, etcd: &Etcd) -> Result<Vec<File>, Failed> {
    // Not in a memory file system, whose files would count as memory of the machine.
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    for name in ["export.jsonl", "export.jsonl.zst"] {
        check::run(program, &["export", &path(name)], &["--etcd-endpoints", &etcd.endpoint()])?;
    }
    etcd.save_snapshot(Path::new(&path("snapshot.db")))?;
    [("export.jsonl", read as Floor), ("export.jsonl.zst", unpack as Floor), ("snapshot.db", sum as Floor)]
        .into_iter()
        .map(|(name, floor)| one(program, name, &path(name), floor))
        .collect()
}

/// Reads a file as fast as possible.
type Floor = fn(&Path) -> io::Result<()>;

fn one(program: &str, kind: &'static str, path: &str, floor: Floor) -> Result<File, Failed> {
    let (mut best, mut checks) = (f64::INFINITY, Vec::new());
    for _ in 0..RUNS {
        let start = Instant::now();
        floor(&PathBuf::from(path)).map_err(|e| format!("{path}: {e}"))?;
        best = best.min(start.elapsed().as_secs_f64());
        checks.push(check::check(program, &["--datastore", path])?);
    }
    let bytes = fs::metadata(path)?.len();
    Ok(File { kind, bytes, floor: best, check: child::best(checks)? })
}

fn read(path: &Path) -> io::Result<()> {
    drain(fs::File::open(path)?, |_| {})
}

fn unpack(path: &Path) -> io::Result<()> {
    drain(zstd::Decoder::new(fs::File::open(path)?)?, |_| {})
}

/// Checks the sum at the end of a snapshot.
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

pub(super) fn print<'r>(rows: impl Iterator<Item = (u64, &'r [File])>) {
    println!("| allocations | file | size | floor | check | ratio | peak memory |");
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for (allocations, files) in rows {
        for File { kind, bytes, floor, check } in files {
            println!(
                "| {allocations} | {kind} | {:.0} MB | {floor:.2} s | {:.2} s | {:.2} | {:.0} MiB |",
                *bytes as f64 / 1e6,
                check.seconds,
                check.seconds / floor,
                check.peak_mib,
            );
        }
    }
}
