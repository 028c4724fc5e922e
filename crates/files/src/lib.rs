//! Files of Calico's data, and the decoding of what they hold: nothing here knows a client.
//!
//! "Facts" in the documentation of this crate means `docs/calico-ipam.md` of the project.

pub mod archive;
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

/// How far a read has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Objects read so far.
    pub read: u64,
    /// Objects that are expected in all, as far as is known; 0 if nothing is.
    pub expected: u64,
}

/// Takes the progress of a read; called from several threads.
pub type ProgressFn = Arc<dyn Fn(Progress) + Send + Sync>;

/// Takes no notice of progress.
pub fn quiet() -> ProgressFn {
    Arc::new(|_| {})
}
