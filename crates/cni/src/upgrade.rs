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
use calipam_datastore::plugin::PodAddress;
use calipam_datastore::settings::{LocalFiles, Settings, Target};
use calipam_datastore::{KubeClient, Retries};
use calipam_files::regular;
use calipam_model::node::TunnelKind;
use rustix::fs::{FlockOperation, flock};
use tokio::time::sleep;

use crate::call::{CallAllocator, connect};
use crate::config::Log;
use crate::log;
use crate::process::runtime;

/// The network whose addresses are taken over.
const NETWORK: &str = "k8s-pod-network";
/// The name of host-local's lock file.
const LOCK: &str = "lock";
const NODE: &str = "KUBERNETES_NODE_NAME";
/// The longest pause before another attempt at the migration.
const PAUSE: Duration = Duration::from_secs(30);
/// The pauses before an object is written again that other clients keep writing.
const PAUSES: [Duration; 4] = [Duration::from_secs(1); 4];

/// The error is the reason why not all of a node's addresses could be taken over.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn failed(path: &Path) -> impl FnOnce(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
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
    /// The folders in which Calico's container for upgrades sees the files of the node.
    fn default() -> Self {
        Self {
            addresses: Path::new("/var/lib/cni/networks").join(NETWORK),
            plugins: ["calico", "host-local"]
                .map(|name| Path::new("/host/opt/cni/bin").join(name))
                .to_vec(),
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
    let settings = match Settings::from_environment(&variables, &LocalFiles) {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!("the settings cannot be used: {error}");
            return 1;
        }
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
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
pub async fn migrate(settings: &Settings, node: &str, files: &NodeFiles) -> Result<()> {
    if settings.target != Target::Kubernetes {
        return Err("the datastore is not Kubernetes".into());
    }
    if !files.addresses.exists() {
        tracing::info!("{} does not exist: nothing to migrate", files.addresses.display());
        return Ok(());
    }
    let allocator = connect(settings, Selecting::All).await?;
    // The first answer shows which API group the cluster uses.
    allocator.config().await?;
    let client = allocator
        .store()
        .kubernetes()
        .ok_or("the datastore is not Kubernetes")?;

    check_pools(&allocator, &client, node, files).await?;
    migrate_tunnel(&allocator, &client, node).await?;
    if files_in(&files.addresses)?.is_empty() {
        return remove_folder(&files.addresses);
    }
    let taken_over = match set_ready(&client, LOCKED).await {
        Ok(()) => take_over(&allocator, &client, node, files).await,
        Err(reason) => Err(reason),
    };
    // Restores the field even after an error: while it is false, no node of the cluster can start a pod.
    let unlocked = set_ready(&client, UNLOCKED).await;
    if let Err(reason) = &unlocked {
        tracing::error!("cannot restore datastoreReady in the cluster information: {reason}");
    }
    taken_over.and(unlocked)?;
    remove_folder(&files.addresses)
}

/// Takes over each address while no other plugin assigns addresses: deletes the old plugins, waits until running ones
/// end, and takes host-local's lock.
async fn take_over(
    allocator: &CallAllocator,
    client: &KubeClient,
    node: &str,
    files: &NodeFiles,
) -> Result<()> {
    for plugin in &files.plugins {
        remove(plugin)?;
    }
    sleep(files.wait).await;
    let _lock = lock(&files.addresses)?;
    let pods = pods_on(client, node).await?;
    for file in files_in(&files.addresses)? {
        migrate_file(allocator, node, &file, &pods).await?;
    }
    Ok(())
}

async fn pods_on(client: &KubeClient, node: &str) -> Result<Vec<PodAddress>> {
    Ok(client
        .pods_on(node)
        .await
        .map_err(|error| format!("cannot list the pods: {error}"))?)
}

/// Refuses the migration if a pod has an address that is in no enabled pool. Ignores addresses that no pod has, since
/// they are not taken over.
async fn check_pools(
    allocator: &CallAllocator,
    client: &KubeClient,
    node: &str,
    files: &NodeFiles,
) -> Result<()> {
    let pods = pods_on(client, node).await?;
    let pools = allocator.pools().await?;
    for file in files_in(&files.addresses)? {
        let Some(address) = address_of(&file)? else {
            continue;
        };
        let Some(pod) = pods.iter().find(|pod| pod.address == address) else {
            continue;
        };
        let is_in_pool = pools
            .iter()
            .any(|pool| pool.is_enabled() && pool.cidr.contains(&address));
        if !is_in_pool {
            let PodAddress { namespace, name, .. } = pod;
            return Err(format!("{address} of pod {namespace}/{name} is in no enabled pool").into());
        }
    }
    Ok(())
}

/// Assigns an IPIP tunnel address to the node if it has none. As in Calico, it is the address after the base address of
/// the node's pod CIDR.
async fn migrate_tunnel(allocator: &CallAllocator, client: &KubeClient, node: &str) -> Result<()> {
    // Tries again if another client changes the node between its read and its write.
    let mut retries = Retries::new(&PAUSES);
    loop {
        let found = client.node_addresses(node).await?;
        let found = found.ok_or_else(|| format!("there is no node {node}"))?;
        if found.tunnel.is_some() {
            return Ok(());
        }
        let Some(address) = tunnel_address(&found.pod_cidr)? else {
            tracing::info!("the pod CIDR {} needs no tunnel address", found.pod_cidr);
            return Ok(());
        };
        let attributes = [("node", node), ("type", TunnelKind::Ipip.attribute())];
        let handle = format!("{}{node}", TunnelKind::Ipip.handle_prefix());
        assign(allocator, node, address, &handle, &attributes).await?;
        if client.set_tunnel_address(node, &found, address).await? {
            tracing::info!("assigned {address} to the node's tunnel");
            return Ok(());
        }
        if !retries.pause().await {
            let attempts = PAUSES.len() + 1;
            return Err(format!(
                "node {node} changed {attempts} times while its tunnel address was being written"
            )
            .into());
        }
    }
}

/// Returns the address after an IPv4 pod CIDR's base address; `None` for IPv6, which needs no tunnel.
fn tunnel_address(pod_cidr: &str) -> Result<Option<IpAddr>> {
    match pod_cidr.parse::<ipnet::IpNet>() {
        Ok(ipnet::IpNet::V4(cidr)) => Ok(Some(Ipv4Addr::from(cidr.addr().to_bits().wrapping_add(1)).into())),
        Ok(ipnet::IpNet::V6(_)) => Ok(None),
        Err(_) => Err(format!("the pod CIDR {pod_cidr:?} of the node is not a CIDR").into()),
    }
}

/// The address in the name of a file of host-local. `None` for its lock, and for the file with the last address.
fn address_of(file: &Path) -> Result<Option<IpAddr>> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if name == LOCK || name.contains("last") {
        return Ok(None);
    }
    let address = name
        .parse()
        .map_err(|_| format!("the file name of {} is not an address", file.display()))?;
    Ok(Some(address))
}

/// Takes over the address of one file, and removes the file. If no pod has the address, only removes the file.
async fn migrate_file(allocator: &CallAllocator, node: &str, file: &Path, pods: &[PodAddress]) -> Result<()> {
    let Some(address) = address_of(file)? else {
        // The lock is held until the end. The file with the last address is of no use to anyone.
        let is_lock = file.ends_with(LOCK);
        return if is_lock { Ok(()) } else { remove(file) };
    };
    let Some(pod) = pods.iter().find(|pod| pod.address == address) else {
        tracing::info!("no pod has {address}");
        return remove(file);
    };
    // host-local writes the container ID, and in later versions the interface below it.
    let content = regular::read_to_string(file).map_err(failed(file))?;
    let container = content.lines().next().unwrap_or_default().trim();
    let attributes = [("node", node), ("pod", &pod.name), ("namespace", &pod.namespace)];
    assign(
        allocator,
        node,
        address,
        &format!("{NETWORK}.{container}"),
        &attributes,
    )
    .await?;
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
) -> Result<()> {
    let attributes = attributes
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let request = AssignIp {
        handle: Some(handle.to_owned()),
        attributes: Some(attributes.collect()),
        ..AssignIp::new(node, address)
    };
    match allocator.assign_ip(&request).await {
        Ok(()) => Ok(()),
        Err(Error::AlreadyAssigned(_)) => {
            // Only for the message, so an error is ignored.
            let record = allocator.assignment_attributes(address).await.ok();
            let holder = record
                .and_then(|record| record.handle)
                .unwrap_or_else(|| "another handle".into());
            if holder != handle {
                tracing::error!("{address} is recorded for {holder}, and {handle} uses it: delete that pod");
            }
            Ok(())
        }
        Err(error) => Err(format!("cannot assign {address}: {error}").into()),
    }
}

/// The value of `datastoreReady` with which no pod can start or stop.
const LOCKED: bool = false;
/// The usual value of `datastoreReady`.
const UNLOCKED: bool = true;

/// Writes the field `datastoreReady` of the cluster information, and tries again after a failure and if another client
/// has changed the object. Returns the last failure.
async fn set_ready(client: &KubeClient, ready: bool) -> Result<()> {
    let mut reason = "the cluster information keeps changing".into();
    let mut retries = Retries::new(&PAUSES);
    loop {
        match client.set_datastore_ready(ready).await {
            Ok(true) => return Ok(()),
            // Another client has changed the object after it was read.
            Ok(false) => {}
            Err(error) => reason = error.into(),
        }
        if !retries.pause().await {
            return Err(reason);
        }
    }
}

/// Returns the paths of the files in a folder, sorted by name.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let entry = entry.map_err(failed(folder))?;
        files.push(entry.path());
    }
    files.sort();
    Ok(files)
}

/// Takes host-local's lock.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let file = regular::open_lock(&path).map_err(failed(&path))?;
    flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(&path)(error.into()))?;
    Ok(file)
}

fn remove(file: &Path) -> Result<()> {
    Ok(regular::remove(file).map_err(failed(file))?)
}

fn remove_folder(folder: &Path) -> Result<()> {
    Ok(fs::remove_dir_all(folder).map_err(failed(folder))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tunnel_has_the_address_after_the_base() {
        assert_eq!(
            tunnel_address("10.244.3.0/24").unwrap(),
            Some("10.244.3.1".parse().unwrap())
        );
        assert_eq!(tunnel_address("fd00::/64").unwrap(), None);
        assert!(tunnel_address("").is_err());
    }
}
