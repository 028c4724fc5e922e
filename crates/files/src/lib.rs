//! Files with Calico's data, and decoding of their content, without any client.
//!
//! "Facts" in this crate's comments means the project's `docs/calico-ipam.md`.

pub mod archive;
mod archived;
mod data_file;
mod error;
mod etcd_snapshot;
pub mod export;
mod extent;
pub mod frames;
mod kubectl;
pub mod objects;
pub mod protobuf;
pub mod raw;
pub mod recording;
pub mod regular;

use std::sync::Arc;

pub use self::data_file::{DataFile, FileKind, newest_time, of_entry};
pub use self::error::{Error, FileError, Result};
pub use self::extent::{CALICO_2_SOURCES, Extent, skip};

/// The progress of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Objects read so far.
    pub read: u64,
    /// Expected number of objects; 0 if unknown.
    pub expected: u64,
}

/// Receives the progress of a read, from several threads.
pub type ProgressFn = Arc<dyn Fn(Progress) + Send + Sync>;

/// Ignores the progress of a read.
pub fn quiet() -> ProgressFn {
    Arc::new(|_| {})
}
