//! calipam's data access: etcd v3, etcd v2 (Calico 2.x), Kubernetes and data files, with the connection settings.
//!
//! [`Settings::resolve`](settings::Settings::resolve) finds the data, [`Datastore::open`] opens it, and
//! [`Datastore::observe`] reads all of it into a [`Snapshot`](calipam_model::snapshot::Snapshot).
//!
//! "Facts" in this crate's comments means the project's `docs/calico-ipam.md`.

pub mod allocation;
mod backend;
mod both;
pub mod budget;
pub mod clock;
pub mod error;
mod etcd;
mod etcdv2;
pub mod feed;
mod file;
mod kubernetes;
pub mod log;
mod pace;
pub mod read;
mod retries;
mod secret;
pub mod settings;
mod store;
mod tasks;
pub mod write;

pub use self::error::{
    Cause, Error, Failure, Permission, Result, Rule, Server, SettingsError, SettingsErrorKind, Tried,
};
pub use self::etcd::client::{EtcdClient, Transport, TransportError};
pub use self::etcdv2::client::EtcdV2Client;
pub use self::kubernetes::client::events::{Event, Events, Regarding};
pub use self::kubernetes::client::kinds::RECORDS;
pub use self::kubernetes::client::{KubeClient, KubeconfigNames, context_of_server, credential_plugin};
pub use self::kubernetes::{plugin, workloads};
pub use self::retries::Retries;
pub use self::secret::{Secret, redact_url};
pub use self::store::Datastore;
pub use self::tasks::Pending;
