//! The SHA-256 that `etcdctl snapshot save` puts behind the database.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::FileResult;
use crate::error::FileError;

const DIGEST: u64 = 32;

/// True where there is a checksum and it fits; false where there is none, as in the database file of a
/// member.
pub(super) fn verify(path: &Path, page_size: u32) -> FileResult<bool> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    match len % u64::from(page_size) {
        0 => return Ok(false),
        DIGEST => {}
        rest => return Err(FileError::SnapshotCut(format!("{rest} bytes follow its last whole page"))),
    }
    let mut hasher = Sha256::new();
    let mut left = len - DIGEST;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let part = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        file.read_exact(&mut buffer[..part])?;
        hasher.update(&buffer[..part]);
        left -= part as u64;
    }
    let mut stated = [0; DIGEST as usize];
    file.read_exact(&mut stated)?;
    if hasher.finalize().as_slice() == stated { Ok(true) } else { Err(FileError::SnapshotChecksum) }
}
