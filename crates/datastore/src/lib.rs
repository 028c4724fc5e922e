//! Data access of calipam: etcd v3, files of its data, and the settings that say where it is.
//!
//! "Facts" in the documentation of this crate means `docs/calico-ipam.md` of the project.

pub mod error;
mod etcd;
mod protobuf;
pub mod raw;
mod secret;
pub mod settings;

pub use self::error::{Error, Failure, FileError, Result, SettingsError};
pub use self::etcd::EtcdClient;
pub use self::secret::{Secret, redact_url};
