//! One call of the plugin: what the runtime says, and the connections that it needs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use calipam_assign::Allocator;
use calipam_datastore::allocation::{AllocatorStore, Selecting};
use calipam_datastore::lookup::Lookup;
use calipam_datastore::settings::{Settings, Target};
use calipam_datastore::write::Consent;
use tokio::time::timeout;

use crate::config::Configuration;
use crate::failure;
use crate::identity::Identity;
use crate::lock::NodeLock;
use crate::protocol::{Arguments, CniError, Command, Environment};

/// How long one operation on the datastore may take, from the moment that the lock is held.
pub(crate) const OPERATION: Duration = Duration::from_secs(90);
/// How long connecting may take, however many endpoints are tried.
const CONNECT: Duration = Duration::from_secs(15);
/// How long the pools of one family may be looked for.
pub(crate) const POOLS: Duration = Duration::from_secs(30);
/// How long it may take to take back what was assigned before an ADD failed.
pub(crate) const UNDO: Duration = Duration::from_secs(30);
/// How long the reuse of a machine's addresses may take.
pub(crate) const REUSE: Duration = Duration::from_secs(30);

/// What lies beside the lock once the affinities of the node have labels. With the usual lock it is Calico's own marker.
const LABELLED: &str = "cni/ipam_upgraded";

/// What a runtime asks, understood.
#[derive(Debug)]
pub(crate) struct Call {
    pub configuration: Configuration,
    pub environment: Environment,
    pub arguments: Arguments,
    pub identity: Identity,
    settings: Settings,
}

/// The allocator on the datastore of a call.
pub(crate) type CallAllocator = Allocator<AllocatorStore>;

impl Call {
    /// Puts together what configuration and environment say, in the order in which Calico's plugin finds errors.
    pub(crate) fn new(
        configuration: Configuration,
        environment: Environment,
        variables: &BTreeMap<String, String>,
        command: Command,
    ) -> Result<Self, CniError> {
        let settings = configuration.datastore.settings(variables)?;
        let arguments = Arguments::read(&environment.args)?;
        // GC is about the node, not about one container.
        let identity = match command {
            Command::Gc => Identity::for_node(&configuration),
            _ => Identity::new(&configuration, &environment, &arguments)?,
        };
        Ok(Self { configuration, environment, arguments, identity, settings })
    }

    /// Connects to the datastore.
    pub(crate) async fn connect(&self) -> Result<CallAllocator, CniError> {
        connect(&self.settings, self.labelled_marker().exists()).await
    }

    /// A connection to the API server for namespaces, pods and machines: that of the datastore where it is the same.
    pub(crate) async fn lookup(&self, allocator: &CallAllocator) -> calipam_datastore::Result<Lookup> {
        let settings = self.configuration.datastore.lookups(&self.settings);
        let shared = allocator.store().kubernetes().filter(|_| settings == self.settings.kubernetes);
        match shared {
            Some(client) => Ok(Lookup::through(client)),
            None => Lookup::connect(&settings).await,
        }
    }

    /// Takes the lock of the node.
    pub(crate) fn lock(&self) -> NodeLock {
        NodeLock::take(&self.configuration.lock_file)
    }

    /// Gives the affinities of the node their labels, once in the life of the node. To be called with the lock held.
    pub(crate) async fn label_affinities(&self, allocator: &CallAllocator) {
        let marker = self.labelled_marker();
        if self.settings.target != Target::Kubernetes || marker.exists() {
            return;
        }
        // Without labels all affinities of the cluster are listed: slower, and just as right.
        match allocator.store().label_affinities(&self.identity.node).await {
            Ok(labelled) => {
                tracing::info!("all affinities of the node have labels, {labelled} of them since now");
                if let Err(error) = touch(&marker) {
                    tracing::warn!("cannot write {}: {error}", marker.display());
                }
            }
            Err(error) => tracing::warn!("the affinities of the node get no labels: {error}"),
        }
    }

    fn labelled_marker(&self) -> PathBuf {
        self.configuration.lock_file.with_file_name(LABELLED)
    }
}

/// Connects to a datastore. `labelled` says that all affinities of the node have labels.
pub(crate) async fn connect(settings: &Settings, labelled: bool) -> Result<CallAllocator, CniError> {
    let selecting = if labelled { Selecting::ByLabels } else { Selecting::All };
    let location = match &settings.target {
        Target::Etcd(etcd) | Target::EtcdV2(etcd) => etcd.endpoints.join(","),
        Target::Kubernetes => settings.kubernetes.api_endpoint.clone(),
        Target::File(path) => path.display().to_string(),
        Target::StandardInput => "standard input".to_owned(),
    };
    let connecting = AllocatorStore::connect(settings, selecting, Consent::from_runtime(location));
    let store = within(CONNECT, connecting).await?;
    Ok(Allocator::new(store.map_err(|error| failure::from_datastore(&error))?))
}

fn touch(path: &std::path::Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::File::create(path).map(drop)
}

/// Gives up what takes longer than `limit`.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, CniError> {
    timeout(limit, work).await.map_err(|_| failure::too_slow(limit))
}
