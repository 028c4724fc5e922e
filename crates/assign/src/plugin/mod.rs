//! The CNI plugin's ADD, DEL and GC for parsed calls (facts of the plugin, sections 7, 13, 15 and 19). The plugin and
//! the simulations share this code, which accesses files, the network and the clock only through its [`Store`] and its
//! [`Host`].

mod add;
mod del;
mod gc;
mod machine;

pub use self::add::{Add, Added, Wanted};
pub use self::del::Del;
pub use self::gc::Gc;
pub use self::machine::Machine;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use calipam_model::IpNet;

use crate::allocator::Allocator;
use crate::error::Error;
use crate::family::Family;
use crate::release::{Release, unless_undecodable};
use crate::store::Store;

/// The time limit of an operation on the datastore. For the plugin, it is also the limit of a whole call of ADD, DEL,
/// CHECK or STATUS, whatever the call waits for: container runtimes end a call after about four minutes.
pub const OPERATION: Duration = Duration::from_secs(60);
/// The time limit for releasing addresses that were assigned before an ADD failed.
const UNDO: Duration = Duration::from_secs(30);
/// The time limit for reusing a machine's addresses.
const REUSE: Duration = Duration::from_secs(30);

/// The environment of a call besides the datastore: the node's lock, time limits and lookups.
#[allow(async_fn_in_trait, reason = "the futures of a call stay on one thread")]
pub trait Host {
    /// Holds the node's lock until it is dropped.
    type LockGuard;
    /// The error of [`Self::look_up`].
    type Error: std::fmt::Display;

    /// Waits for the node's lock, which serializes the calls on the node.
    async fn lock(&self) -> Self::LockGuard;

    /// Runs `work`; `None` if it took longer than `limit` and was abandoned.
    async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T>;

    /// Looks up the data that an ADD without a requested address needs in addition to the allocator's reads.
    async fn look_up(&self) -> Result<Lookup, Self::Error> {
        Ok(Lookup::default())
    }

    /// Makes sure that the node's affinities can be found by labels (Kubernetes). Called with the lock held, before
    /// addresses are assigned.
    async fn label_affinities(&self) {}
}

/// The data that is looked up for an ADD, while the allocator reads its inputs.
#[derive(Clone, Debug, Default)]
pub struct Lookup {
    /// The IPv4 pools that the configuration names.
    pub pools_v4: Vec<IpNet>,
    /// The IPv6 pools that the configuration names.
    pub pools_v6: Vec<IpNet>,
    /// The labels of the pod's namespace, if known.
    pub namespace_labels: Option<BTreeMap<String, String>>,
}

/// The container that a call is for.
#[derive(Clone, Debug)]
pub struct Container {
    pub node: String,
    /// The handle of the container's own addresses.
    pub handle: String,
    /// The virtual machine that the container's pod runs, if any. The pod then uses the machine's addresses instead of
    /// addresses of its own.
    pub machine: Option<Machine>,
}

/// The reason why a call failed, worded like the errors of Calico's plugin.
#[derive(Debug, thiserror::Error)]
pub enum Failure<E> {
    #[error("{0}")]
    LookUp(E),
    #[error(transparent)]
    Allocator(#[from] Error),
    #[error("the datastore did not finish within {} s", .0.as_secs())]
    TooSlow(Duration),
    #[error("failed to request {family} addresses: {shortage}")]
    Short { family: Family, shortage: String },
    #[error("failed to get existing IPs for VM handle {handle}: {error}")]
    Existing { handle: String, error: Box<Error> },
    /// The target of a live migration must get the addresses of its machine, which has none.
    #[error("migration target pod but no IP allocated to VM handle {0}")]
    NothingToMigrate(String),
    /// The pod could not become an owner of its machine's address.
    #[error("failed to set owner attributes for IP {address}: {error}")]
    Owner { address: IpAddr, error: Box<Error> },
}

/// The plugin on a node.
#[derive(Debug)]
pub struct Plugin<'p, S, H> {
    pub allocator: &'p Allocator<S>,
    pub host: &'p H,
}

impl<S: Store, H: Host> Plugin<'_, S, H> {
    /// Runs `work`, and fails with [`Failure::TooSlow`] if it takes longer than `limit`.
    async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure<H::Error>> {
        self.host.within(limit, work).await.ok_or(Failure::TooSlow(limit))
    }

    /// Releases addresses of a handle, one by one: tries all of them, and returns the first error. Skips addresses that
    /// the handle no longer has, and blocks that cannot be decoded.
    async fn release(&self, handle: &str, addresses: Vec<IpAddr>) -> Result<(), Error> {
        let mut result = Ok(());
        for address in addresses {
            let request = Release {
                address,
                handle: Some(handle.to_owned()),
                sequence: None,
            };
            let released = match self.allocator.release_ips(&[request]).await {
                Ok(_) => Ok(()),
                // The address now belongs to another handle.
                Err(partly) if matches!(partly.error, Error::Changed(_)) => Ok(()),
                Err(partly) => unless_undecodable(Err(partly.error)),
            };
            if let Err(error) = &released {
                tracing::error!("cannot release {address}: {error}");
            }
            result = result.and(released);
        }
        result
    }

    /// Releases all addresses of a handle. Skips blocks that cannot be decoded. If the handle's object, which names the
    /// blocks, is missing or broken, searches the blocks of `node`, and also releases the addresses in `previous` that
    /// the handle still has: the result of the ADD can name addresses in blocks of other nodes.
    async fn release_handle(&self, handle: &str, node: &str, previous: &[IpAddr]) -> Result<(), Error> {
        match self.allocator.release_by_handle_fully(handle).await {
            Ok(()) => {
                tracing::info!(handle, "released");
                Ok(())
            }
            Err(error) if error.is_lost_handle() => {
                let mut found = self.allocator.search_handle(handle, node).await?;
                found.extend(previous);
                found.sort();
                found.dedup();
                tracing::info!(
                    handle,
                    "{error}; searched the blocks for its addresses: {found:?}"
                );
                self.release(handle, found).await
            }
            Err(error) => {
                tracing::error!(handle, "cannot release: {error}");
                Err(error)
            }
        }
    }
}
