//! Calico's data in Kubernetes: custom resources in one of two API groups, and the pods, nodes, services and machines
//! that use addresses.
//!
//! Each object is decoded while the answer still arrives, so that no list is held in memory. Lists come whole from
//! servers that write them from their cache, and in large pages from older ones. Built-in kinds come as protobuf, custom
//! resources have JSON only.

mod beside;
mod classify;
mod client;
mod connect;
mod discovery;
mod export;
mod file;
mod items;
mod kinds;
mod list;
mod lists;
mod lookup;
mod object;
mod observe;
mod permission;
mod schema;
pub(crate) mod write;

pub(crate) use self::beside::{add as add_beside, add_around, is_of_kubernetes, reread as reread_beside};
pub use self::client::KubeClient;
pub(crate) use self::export::export;
pub(crate) use self::file::{
    add_exported, files_of, is_exported, looks_like_objects, read as read_objects, read_entries, sources,
};
pub(crate) use self::lookup::{lookup, reread};
pub(crate) use self::observe::observe;
pub(crate) use self::schema::keeps_cooldown;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::settings::KubernetesSettings;

/// Connects to the Kubernetes datastore that the settings name.
///
/// # Errors
/// Where they make no sense or say that Calico IPAM is not in use, or the server does not answer as it should.
pub(crate) async fn open(settings: &KubernetesSettings) -> Result<Arc<KubeClient>> {
    if settings.use_pod_cidr {
        return Err(Error::HostLocal);
    }
    KubeClient::connect(settings).await
}
