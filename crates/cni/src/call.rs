//! One call of the plugin: its input from the runtime, and its connections.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use calipam_assign::plugin::{self, Container};
use calipam_assign::{Allocator, PodName};
use calipam_datastore::KubeClient;
use calipam_datastore::allocation::{AllocatorStore, Selecting};
use calipam_datastore::settings::{Settings, Target};
use calipam_datastore::write::Consent;
use calipam_files::regular;
use calipam_model::words::joined;
use tokio::time::timeout;

use crate::config::Configuration;
use crate::failure;
use crate::identity::Identity;
use crate::machine::Owner;
use crate::notes::{self, FileNotes};
use crate::protocol::{Arguments, CniError, Command, Environment};

/// The time limit for connecting, however many endpoints are tried.
const CONNECT: Duration = Duration::from_secs(15);
/// The time limit for looking up pools that the configuration names.
pub(crate) const POOLS: Duration = Duration::from_secs(30);

/// The marker file of a node whose affinities have labels, relative to the folder of the lock file. For the default
/// lock file, its path is that of Calico's own marker.
const LABELLED: &str = "cni/ipam_upgraded";
/// The marker file that survives a reboot, unlike the files in the lock's folder. It is next to the file with the
/// node's name. The marker names the node and the datastore, since a new node can reuse the disk.
const LABELLED_BEFORE: &str = "calipam_labelled";

/// A parsed call of a runtime.
#[derive(Debug)]
pub(crate) struct Call {
    pub configuration: Configuration,
    pub environment: Environment,
    pub arguments: Arguments,
    pub identity: Identity,
    pub command: Command,
    begun: Instant,
    settings: Settings,
    /// Set when the call has connected to the datastore.
    allocator: OnceCell<CallAllocator>,
}

/// The allocator of a call.
pub(crate) type CallAllocator = Allocator<AllocatorStore>;

impl Call {
    /// Prepares a call: parses its settings, arguments and identity in the order of Calico's plugin, so that a call
    /// with several faults reports the same one. Does not connect yet.
    pub(crate) fn new(
        configuration: Configuration,
        environment: Environment,
        variables: &BTreeMap<String, String>,
        command: Command,
    ) -> Result<Self, CniError> {
        let settings = configuration.datastore.settings(variables)?;
        let (arguments, identity) = match command {
            // These commands concern the node, not one container.
            Command::Gc | Command::Status => (Arguments::default(), Identity::for_node(&configuration)),
            _ => {
                let arguments = Arguments::read(&environment.args)?;
                let identity = Identity::new(&configuration, &environment, &arguments)?;
                (arguments, identity)
            }
        };
        let begun = Instant::now();
        let allocator = OnceCell::new();
        Ok(Self {
            configuration,
            environment,
            arguments,
            identity,
            command,
            begun,
            settings,
            allocator,
        })
    }

    /// Connects to the datastore, and keeps the allocator for the whole call. It selects the node's affinities by their
    /// labels if a marker file says that they have labels, and otherwise lists those of all nodes.
    pub(crate) async fn connect(&self) -> Result<&CallAllocator, CniError> {
        let selecting = if self.is_labelled() {
            Selecting::ByLabels
        } else {
            Selecting::All
        };
        let allocator = connect(&self.settings, selecting).await?;
        let notes = FileNotes::new(&self.configuration.lock_file, &self.settings);
        Ok(self
            .allocator
            .get_or_init(|| allocator.with_notes(Arc::new(notes))))
    }

    /// Logs the pod, the changed blocks, the duration and the number of requests, even if the call failed.
    pub(crate) fn log_end(&self, is_done: bool) {
        // A call that failed early has no connection, and so no blocks and no requests.
        let store = self.allocator.get().map(Allocator::store);
        let blocks = store.map(AllocatorStore::changed_blocks).unwrap_or_default();
        let Identity { node, pod, .. } = &self.identity;
        let pod = match pod {
            Some((namespace, name)) => format!("{namespace}/{name}"),
            None => String::new(),
        };
        tracing::info!(
            container = self.environment.container,
            pod,
            node,
            block = joined(blocks, ","),
            milliseconds = self.begun.elapsed().as_millis(),
            requests = store.map_or(0, AllocatorStore::request_count),
            "{} {}",
            self.command.text(),
            if is_done { "done" } else { "failed" }
        );
    }

    /// Connects to the API server to read namespaces, pods and machines. If the datastore is Kubernetes and both have
    /// the same settings, returns the datastore's connection.
    pub(crate) async fn lookup(
        &self,
        allocator: &CallAllocator,
    ) -> calipam_datastore::Result<Arc<KubeClient>> {
        let settings = self.configuration.datastore.lookups(&self.settings);
        match allocator.store().kubernetes() {
            Some(client) if settings == self.settings.kubernetes => Ok(client),
            _ => KubeClient::connect_without_discovery(&settings).await,
        }
    }

    /// Returns the container of the call, with its virtual machine if `owner` is one. The machine's addresses then
    /// belong to its handle, and not to the container's.
    pub(crate) fn container(&self, owner: Owner) -> Container {
        let mut machine_of_pod = None;
        if let Owner::Machine(machine) = owner
            && let Some((namespace, name)) = self.identity.pod.clone()
        {
            machine_of_pod = Some(plugin::Machine {
                handle: machine.handle(&self.configuration.name),
                pod: PodName { namespace, name },
                is_migration_target: machine.migration.is_some(),
                is_being_deleted: machine.is_being_deleted,
            });
        }
        Container {
            node: self.identity.node.clone(),
            handle: self.identity.handle.clone(),
            machine: machine_of_pod,
        }
    }

    /// True if a file says that the node's affinities have labels.
    pub(crate) fn is_labelled(&self) -> bool {
        if self.labelled_marker().exists() {
            return true;
        }
        let marker = regular::open_own(&self.lasting_marker(), OpenOptions::new().read(true));
        let Ok(marker) = marker else {
            return false;
        };

        // The marker can be of another cluster. One byte more is read, so that a longer text is not equal.
        let expected = self.lasting_text();
        let mut text = String::new();
        let is_read = marker
            .take(expected.len() as u64 + 1)
            .read_to_string(&mut text)
            .is_ok();
        is_read && text == expected
    }

    /// Notes that the node's affinities have labels, for later calls: in Calico's own marker, which is gone after a
    /// reboot, and in one that lasts.
    pub(crate) fn note_labelled(&self) {
        let marker = self.labelled_marker();
        if let Err(error) = touch(&marker) {
            tracing::warn!("cannot write {}: {error}", marker.display());
        }

        // An error is ignored: it only costs one more list request for affinities after the next reboot.
        notes::replace(&self.lasting_marker(), &self.lasting_text()).ok();
    }

    fn lasting_marker(&self) -> PathBuf {
        self.configuration.node.file.with_file_name(LABELLED_BEFORE)
    }

    fn lasting_text(&self) -> String {
        format!("{} {}\n", notes::datastore(&self.settings), self.identity.node)
    }

    fn labelled_marker(&self) -> PathBuf {
        self.configuration.lock_file.with_file_name(LABELLED)
    }
}

/// Connects to the datastore of the settings within the time limit. By calling the plugin, the runtime agrees to its
/// writes; the consent names the datastore.
pub(crate) async fn connect(settings: &Settings, selecting: Selecting) -> Result<CallAllocator, CniError> {
    let location = match &settings.target {
        Target::Etcd(etcd) | Target::EtcdV2(etcd) => etcd.endpoints.join(","),
        Target::Kubernetes => settings.kubernetes.api_endpoint.clone(),
        Target::File(path) => path.display().to_string(),
        Target::StandardInput => "standard input".to_owned(),
    };
    let connecting = AllocatorStore::connect(settings, selecting, Consent::from_runtime(location));
    let store = within(CONNECT, connecting).await?;
    Ok(Allocator::new(
        store.map_err(|error| failure::from_datastore(&error))?,
    ))
}

fn touch(path: &std::path::Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    notes::replace(path, "")
}

/// Runs `work`, and fails if it takes longer than `limit`.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, CniError> {
    timeout(limit, work).await.map_err(|_| failure::too_slow(limit))
}
