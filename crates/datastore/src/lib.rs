//! Data access of calipam: etcd v3, Kubernetes, files of their data, and the settings that say where it is.
//!
//! [`Settings::resolve`](settings::Settings::resolve) says where the data is, [`Datastore::open`] opens
//! it, [`Datastore::observe`] reads all of it into a [`Snapshot`](calipam_model::snapshot::Snapshot).
//!
//! "Facts" in the documentation of this crate means `docs/calico-ipam.md` of the project.

pub mod error;
mod etcd;
pub mod etcd_snapshot;
pub mod export;
mod kube;
pub mod observe;
mod protobuf;
pub mod raw;
mod secret;
pub mod settings;
mod store;
pub mod write;

pub use self::error::{Cause, Error, Failure, FileError, Permission, Result, Server, SettingsError, Tried};
pub use self::etcd::EtcdClient;
pub use self::kube::KubeClient;
pub use self::secret::{Secret, redact_url};
pub use self::store::Datastore;
