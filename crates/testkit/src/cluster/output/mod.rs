//! Where a generated cluster goes: a file, an etcd, or straight into a snapshot.

mod etcd;
mod export;
mod snapshot;

pub use self::etcd::WriteError;
