//! `calico-ipam -upgrade`: takes over the addresses that host-local IPAM has assigned on this node (facts of the
//! plugin, section 17). It runs as an init container of calico-node, on Kubernetes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use calipam_assign::{AssignIp, Error};
use calipam_datastore::allocation::Selecting;
use calipam_datastore::plugin::{PluginQueries, PodAddress};
use calipam_datastore::settings::{LocalFiles, Settings, Target};
use calipam_files::regular;
use rustix::fs::{FlockOperation, flock};
use tokio::time::sleep;

use crate::call::{CallAllocator, connect};
use crate::config::Log;
use crate::log;
use crate::protocol::CniError;
use crate::run::runtime;

/// The network whose addresses are taken over.
const NETWORK: &str = "k8s-pod-network";
const NODE: &str = "KUBERNETES_NODE_NAME";
/// The longest pause before another attempt at the migration.
const PAUSE: Duration = Duration::from_secs(30);
/// The number of attempts to write an object that other clients keep writing.
const ATTEMPTS: usize = 5;

/// The reason why not all of a node's addresses could be taken over.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    #[error("the datastore is not Kubernetes")]
    NotKubernetes,
    #[error(transparent)]
    Connect(#[from] CniError),
    #[error(transparent)]
    Allocator(#[from] Error),
    #[error(transparent)]
    Datastore(#[from] calipam_datastore::Error),
    #[error("cannot list the pods: {0}")]
    Pods(#[source] calipam_datastore::Error),
    #[error("{address} of pod {namespace}/{name} is in no enabled pool")]
    InNoPool { address: IpAddr, namespace: String, name: String },
    #[error("cannot assign {address}: {error}")]
    Assign { address: IpAddr, error: Error },
    #[error("there is no node {0}")]
    NoNode(String),
    #[error("node {0} changed {ATTEMPTS} times while its tunnel address was being written")]
    NodeChanges(String),
    #[error("the pod CIDR {0:?} of the node is not a CIDR")]
    PodCidr(String),
    #[error("the cluster information keeps changing")]
    ClusterInformationChanges,
    #[error("the file name of {} is not an address", .0.display())]
    FileName(PathBuf),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
}

impl UpgradeError {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::File { path: path.to_owned(), error }
    }
}

/// host-local's files on the node.
pub struct NodeFiles {
    /// The folder with a file for each address that host-local has assigned.
    pub addresses: PathBuf,
    /// The plugins to delete before the migration, so that they no longer assign addresses.
    pub plugins: Vec<PathBuf>,
    /// The time to wait for running plugins to end.
    pub wait: Duration,
}

impl Default for NodeFiles {
    fn default() -> Self {
        Self {
            addresses: Path::new("/var/lib/cni/networks").join(NETWORK),
            plugins: ["calico", "host-local"].map(|name| Path::new("/host/opt/cni/bin").join(name)).to_vec(),
            wait: Duration::from_secs(5),
        }
    }
}

/// Migrates the node's addresses, and retries until that succeeds. Returns the exit code, which is 1 if the settings
/// are wrong.
pub fn run(variables: &BTreeMap<String, String>) -> u8 {
    log::start(&Log::default());
    let Some(node) = variables.get(NODE).filter(|node| !node.is_empty()) else {
        tracing::error!("{NODE} not specified, refusing to migrate...");
        return 1;
    };
    let mut variables = variables.clone();
    variables.insert("CALICO_DATASTORE_TYPE".into(), "kubernetes".into());
    let settings = Settings::from_environment(&variables, &LocalFiles);
    let settings = settings.map_err(|error| format!("the settings cannot be used: {error}"));
    let (settings, runtime) = match settings.and_then(|settings| Ok((settings, runtime()?))) {
        Ok(both) => both,
        Err(reason) => {
            tracing::error!("{reason}");
            return 1;
        }
    };
    runtime.block_on(async {
        // An attempt can lock the datastore for seconds, so the pauses grow while attempts fail.
        let mut pause = Duration::from_secs(1);
        while let Err(reason) = migrate(&settings, node, &NodeFiles::default()).await {
            tracing::error!("failed to migrate, trying again: {reason}");
            sleep(pause).await;
            pause = PAUSE.min(pause * 2);
        }
    });
    tracing::info!("migration from host-local to calico-ipam complete");
    0
}

/// Takes over the addresses that host-local has assigned. A retry skips the addresses that an earlier attempt has taken
/// over. Fails before writing anything if a pod's address is in no enabled pool.
pub async fn migrate(settings: &Settings, node: &str, files: &NodeFiles) -> Result<(), UpgradeError> {
    if settings.target != Target::Kubernetes {
        return Err(UpgradeError::NotKubernetes);
    }
    if !files.addresses.exists() {
        tracing::info!("{} does not exist: nothing to migrate", files.addresses.display());
        return Ok(());
    }
    let allocator = connect(settings, Selecting::All).await?;
    // The first answer shows which API group the cluster uses.
    allocator.config().await?;
    let queries = match allocator.store().kubernetes() {
        Some(client) => PluginQueries::through(client),
        None => return Err(UpgradeError::NotKubernetes),
    };

    check_pools(&allocator, &queries, node, files).await?;
    migrate_tunnel(&allocator, &queries, node).await?;
    if list(&files.addresses)?.is_empty() {
        return remove_folder(&files.addresses);
    }
    let done = match set_ready(&queries, false).await {
        Ok(()) => take_over(&allocator, &queries, node, files).await,
        Err(reason) => Err(reason),
    };
    // Restores the field even after an error: while it is false, no node of the cluster can start a pod.
    let ready = set_ready(&queries, true).await;
    if let Err(reason) = &ready {
        tracing::error!("cannot restore datastoreReady in the cluster information: {reason}");
    }
    done.and(ready)?;
    remove_folder(&files.addresses)
}

/// Takes over each address while no other plugin assigns addresses.
async fn take_over(
    allocator: &CallAllocator,
    queries: &PluginQueries,
    node: &str,
    files: &NodeFiles,
) -> Result<(), UpgradeError> {
    for plugin in &files.plugins {
        remove(plugin)?;
    }
    sleep(files.wait).await;
    let _lock = lock(&files.addresses)?;
    let pods = pods_on(queries, node).await?;
    for file in list(&files.addresses)? {
        migrate_file(allocator, node, &file, &pods).await?;
    }
    Ok(())
}

async fn pods_on(queries: &PluginQueries, node: &str) -> Result<Vec<PodAddress>, UpgradeError> {
    queries.pods_on(node).await.map_err(UpgradeError::Pods)
}

/// Refuses pod addresses that are in no enabled pool, before anything is written.
async fn check_pools(
    allocator: &CallAllocator,
    queries: &PluginQueries,
    node: &str,
    files: &NodeFiles,
) -> Result<(), UpgradeError> {
    let pods = pods_on(queries, node).await?;
    let pools = allocator.pools().await?;
    for file in list(&files.addresses)? {
        let Content::Address(address) = content(&file)? else { continue };
        let Some(pod) = pods.iter().find(|pod| pod.address == address) else { continue };
        if !pools.iter().any(|pool| pool.is_enabled() && pool.cidr.contains(&address)) {
            let PodAddress { namespace, name, .. } = pod.clone();
            return Err(UpgradeError::InNoPool { address, namespace, name });
        }
    }
    Ok(())
}

/// Assigns an IPIP tunnel address to the node if it has none. As in Calico, it is the address after the base address of
/// the node's pod CIDR.
async fn migrate_tunnel(
    allocator: &CallAllocator,
    queries: &PluginQueries,
    node: &str,
) -> Result<(), UpgradeError> {
    for _ in 0..ATTEMPTS {
        let found = queries.node_addresses(node).await?;
        let found = found.ok_or_else(|| UpgradeError::NoNode(node.to_owned()))?;
        if found.tunnel.is_some() {
            return Ok(());
        }
        let Some(address) = tunnel_address(&found.pod_cidr)? else {
            tracing::info!("the pod CIDR {} needs no tunnel address", found.pod_cidr);
            return Ok(());
        };
        let attributes = [("node", node), ("type", "ipipTunnelAddress")];
        assign(allocator, node, address, &format!("ipip-tunnel-addr-{node}"), &attributes).await?;
        if queries.set_tunnel_address(node, &found, address).await? {
            tracing::info!("assigned {address} to the node's tunnel");
            return Ok(());
        }
        sleep(Duration::from_secs(1)).await;
    }
    Err(UpgradeError::NodeChanges(node.to_owned()))
}

/// Returns the address after an IPv4 pod CIDR's base address; `None` for IPv6, which needs no tunnel.
fn tunnel_address(pod_cidr: &str) -> Result<Option<IpAddr>, UpgradeError> {
    match pod_cidr.parse::<ipnet::IpNet>() {
        Ok(ipnet::IpNet::V4(cidr)) => Ok(Some(Ipv4Addr::from(cidr.addr().to_bits().wrapping_add(1)).into())),
        Ok(ipnet::IpNet::V6(_)) => Ok(None),
        Err(_) => Err(UpgradeError::PodCidr(pod_cidr.to_owned())),
    }
}

/// The content of a file of host-local, judged by the file's name.
enum Content {
    Lock,
    /// The address that was assigned last.
    Last,
    Address(IpAddr),
}

fn content(file: &Path) -> Result<Content, UpgradeError> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    match &*name {
        "lock" => Ok(Content::Lock),
        name if name.contains("last") => Ok(Content::Last),
        name => name.parse().map(Content::Address).map_err(|_| UpgradeError::FileName(file.to_owned())),
    }
}

/// Takes over the address of one file, and removes the file. If no pod has the address, only removes the file.
async fn migrate_file(
    allocator: &CallAllocator,
    node: &str,
    file: &Path,
    pods: &[PodAddress],
) -> Result<(), UpgradeError> {
    let address = match content(file)? {
        Content::Lock => return Ok(()),
        Content::Last => return remove(file),
        Content::Address(address) => address,
    };
    let Some(pod) = pods.iter().find(|pod| pod.address == address) else {
        tracing::info!("no pod has {address}");
        return remove(file);
    };
    let content = regular::read_to_string(file).map_err(UpgradeError::file(file))?;
    let container = content.lines().next().unwrap_or_default().trim();
    let attributes = [("node", node), ("pod", &pod.name), ("namespace", &pod.namespace)];
    assign(allocator, node, address, &format!("{NETWORK}.{container}"), &attributes).await?;
    tracing::info!("took over {address} of pod {}/{}", pod.namespace, pod.name);
    remove(file)
}

/// Assigns an address, unless it is already assigned, for example by an earlier attempt. Like Calico's plugin,
/// continues even if the address is assigned to another workload, because it is in use here in any case.
async fn assign(
    allocator: &CallAllocator,
    node: &str,
    address: IpAddr,
    handle: &str,
    attributes: &[(&str, &str)],
) -> Result<(), UpgradeError> {
    let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let request = AssignIp {
        handle: Some(handle.to_owned()),
        attributes: Some(attributes.collect()),
        ..AssignIp::new(node, address)
    };
    match allocator.assign_ip(&request).await {
        Ok(()) => Ok(()),
        Err(Error::AlreadyAssigned(_)) => {
            let record = allocator.assignment_attributes(address).await.ok();
            let holder = record.and_then(|record| record.handle).unwrap_or_else(|| "another handle".into());
            if holder != handle {
                tracing::error!("{address} is recorded for {holder}, and {handle} uses it: delete that pod");
            }
            Ok(())
        }
        Err(error) => Err(UpgradeError::Assign { address, error }),
    }
}

/// Writes `datastoreReady`, with retries after any failure.
async fn set_ready(queries: &PluginQueries, ready: bool) -> Result<(), UpgradeError> {
    let mut reason = UpgradeError::ClusterInformationChanges;
    for _ in 0..ATTEMPTS {
        match queries.set_datastore_ready(ready).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => reason = error.into(),
        }
        sleep(Duration::from_secs(1)).await;
    }
    Err(reason)
}

/// The files in a folder, sorted by name.
fn list(folder: &Path) -> Result<Vec<PathBuf>, UpgradeError> {
    let read = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
    };
    let mut files = read().map_err(UpgradeError::file(folder))?;
    files.sort();
    Ok(files)
}

/// Takes host-local's lock.
fn lock(folder: &Path) -> Result<File, UpgradeError> {
    let path = folder.join("lock");
    let file = regular::open_lock(&path).map_err(UpgradeError::file(&path))?;
    flock(&file, FlockOperation::LockExclusive).map_err(|error| UpgradeError::file(&path)(error.into()))?;
    Ok(file)
}

fn remove(file: &Path) -> Result<(), UpgradeError> {
    regular::remove(file).map_err(UpgradeError::file(file))
}

fn remove_folder(folder: &Path) -> Result<(), UpgradeError> {
    fs::remove_dir_all(folder).map_err(UpgradeError::file(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tunnel_has_the_address_after_the_base() {
        assert_eq!(tunnel_address("10.244.3.0/24").unwrap(), Some("10.244.3.1".parse().unwrap()));
        assert_eq!(tunnel_address("fd00::/64").unwrap(), None);
        assert!(tunnel_address("").is_err());
    }
}
