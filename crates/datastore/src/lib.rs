//! calipam's data access: etcd v3, etcd v2 (Calico 2.x), Kubernetes and data files, with the connection settings.
//!
//! [`Settings::resolve`](settings::Settings::resolve) finds the data, [`Datastore::open`] opens it, and
//! [`Datastore::observe`] reads all of it into a [`Snapshot`](calipam_model::snapshot::Snapshot).
//!
//! "Facts" in this crate's comments means the project's `docs/calico-ipam.md`.

pub mod allocation;
pub mod changes;
mod client;
pub mod clock;
pub mod error;
mod etcdv2;
mod export;
pub mod follow;
pub mod log;
pub mod lookup;
pub mod read;
mod secret;
pub mod settings;
mod store;
mod tasks;
pub mod workloads;
pub mod write;

pub use self::client::etcd::{Carrier, EtcdClient, NotCarried};
pub use self::client::etcdv2::EtcdV2Client;
pub use self::client::kubernetes::events::{Event, Events, Regarding};
pub use self::client::kubernetes::{KubeClient, KubeconfigNames, context_of_server, credential_plugin};
pub use self::error::{Cause, Error, Failure, Permission, Result, Rule, Server, SettingsError, Tried};
pub use self::secret::{Secret, redact_url};
pub use self::store::{Datastore, Pending};
