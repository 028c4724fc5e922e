//! Clusters on real servers.

use std::path::Path;
use std::time::Duration;

use calipam_datastore::settings::Overrides;
use calipam_model::IpNet;
use calipam_model::key::RESOURCE_PREFIX;
use calipam_testkit::blocks::{TakenBlock, put_block_objects, put_blocks};
use calipam_testkit::cluster::{ClusterSpec, SizedCluster};
use calipam_testkit::datastore;
use calipam_testkit::kube::{Flavour, create, install, seed_nodes};
use calipam_testkit::servers::{Etcd, EtcdOptions, KubeApiserver, processor_seconds};
use serde_json::{Value, json};

use crate::form::{self, Form};
use crate::measured::Measured;
use crate::{Failed, kubernetes};

/// The pool and the prefix length of its blocks.
pub(crate) const POOL: &str = "10.7.0.0/16";
pub(crate) const BLOCK_SIZE: u8 = 26;

/// Time after which an API server has caught up with a write. It serves a list from its cache only when the cache
/// contains the newest write to any object. It waits for this write for up to a tenth of a second, and callers cannot
/// change that.
pub(crate) const CAUGHT_UP: Duration = Duration::from_millis(250);

/// A real server with a cluster.
pub(crate) enum Cluster {
    Etcd(Box<Etcd>),
    Kubernetes(Box<KubeApiserver>),
}

/// A healthy cluster with `allocations` allocations.
pub(crate) fn sized(allocations: u64) -> SizedCluster {
    SizedCluster::new(ClusterSpec::new(1), allocations)
}

/// Starts an etcd that contains a healthy cluster.
pub(crate) fn seeded_etcd(allocations: u64, options: EtcdOptions) -> Result<Etcd, Failed> {
    let etcd = options.start()?;
    let seeding = Measured::of(|| Ok(sized(allocations).write_to_etcd(&etcd.endpoint())?))?;
    eprintln!("{allocations} allocations: seeded in {:.1} s", seeding.seconds);
    Ok(etcd)
}

impl Cluster {
    /// Starts a server with a healthy cluster. `size` is the number of allocations for `etcd`, which the options
    /// concern, and of pods for `kubernetes`.
    pub(crate) fn seeded(datastore: &str, size: u64, options: EtcdOptions) -> Result<Self, Failed> {
        match datastore {
            "etcd" => Ok(Self::Etcd(Box::new(seeded_etcd(size, options)?))),
            _ => Ok(Self::Kubernetes(Box::new(kubernetes::seeded(size)?))),
        }
    }

    /// Starts a server, `etcd` or `kubernetes`, with one pool and the given nodes, for programs that are called like
    /// the plugin.
    pub(crate) fn start(
        datastore: &str,
        pool: &str,
        nodes: impl IntoIterator<Item = String>,
    ) -> Result<Self, Failed> {
        let cluster = if datastore == "etcd" {
            let etcd = Etcd::start()?;
            let node = |name: String| {
                let value = json!({"apiVersion": "projectcalico.org/v3", "kind": "Node",
                    "metadata": {"name": name}, "spec": {}});
                (format!("{RESOURCE_PREFIX}nodes/{name}"), value.to_string().into())
            };
            etcd.put_all(&nodes.into_iter().map(node).collect::<Vec<_>>())?;
            Self::Etcd(Box::new(etcd))
        } else {
            let server = KubeApiserver::start()?;
            install(&server, Flavour::Classic)?;
            seed_nodes(&server, &nodes.into_iter().collect::<Vec<_>>())?;
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
            server.request("POST", "/api/v1/namespaces", &namespace.to_string())?;
            Self::Kubernetes(Box::new(server))
        };
        cluster.put_pool("default", pool)?;
        Ok(cluster)
    }

    /// Adds a pool for all nodes.
    pub(crate) fn put_pool(&self, name: &str, cidr: &str) -> Result<(), Failed> {
        let spec = json!({"cidr": cidr, "blockSize": BLOCK_SIZE, "nodeSelector": "all()"});
        let object = |version: &str| json!({"apiVersion": version, "kind": "IPPool", "metadata": {"name": name}, "spec": spec});
        match self {
            Self::Etcd(etcd) => {
                let key = format!("{RESOURCE_PREFIX}ippools/{name}");
                etcd.put(&key, object("projectcalico.org/v3").to_string())?;
            }
            Self::Kubernetes(server) => {
                let object = object(&Flavour::Classic.api_version());
                create(server, &Flavour::Classic.path("ippools"), &[object])?;
            }
        }
        Ok(())
    }

    /// Writes blocks that other nodes own, each with `taken` assigned addresses.
    pub(crate) fn put_blocks(
        &self,
        places: impl IntoIterator<Item = IpNet>,
        taken: usize,
    ) -> Result<(), Failed> {
        let blocks: Vec<_> = places.into_iter().map(|cidr| TakenBlock { cidr, taken }).collect();
        match self {
            Self::Etcd(etcd) => put_blocks(etcd, &blocks)?,
            Self::Kubernetes(server) => put_block_objects(server, Flavour::Classic, &blocks)?,
        }
        Ok(())
    }

    /// The options with which `calipam` finds the cluster.
    pub(crate) fn connection(&self) -> Vec<String> {
        match self {
            Self::Etcd(etcd) => vec!["--etcd-endpoints".to_owned(), etcd.endpoint()],
            Self::Kubernetes(server) => {
                let kubeconfig = server.kubeconfig().display().to_string();
                ["--datastore", "kubernetes", "--kubeconfig", &kubeconfig].map(str::to_owned).into()
            }
        }
    }

    /// The settings with which calipam finds the cluster.
    pub(crate) fn overrides(&self) -> Overrides {
        match self {
            Self::Etcd(etcd) => datastore::etcd(etcd.endpoint()),
            Self::Kubernetes(server) => datastore::kubernetes(&server.kubeconfig()),
        }
    }

    pub(crate) fn form(&self) -> &'static Form {
        match self {
            Self::Etcd(_) => &form::ETCD,
            Self::Kubernetes(_) => &form::KUBERNETES,
        }
    }

    /// The etcd behind the cluster.
    pub(crate) fn etcd(&self) -> &Etcd {
        match self {
            Self::Etcd(etcd) => etcd,
            Self::Kubernetes(server) => server.etcd(),
        }
    }

    /// The processor time of the servers so far, in seconds.
    pub(crate) fn processor_seconds(&self) -> f64 {
        let of_etcd = self.etcd().process_id().map_or(0.0, processor_seconds);
        match self {
            Self::Etcd(_) => of_etcd,
            Self::Kubernetes(server) => of_etcd + server.processor_seconds(),
        }
    }

    /// The configuration that a node's plugin reads from stdin. Calico's plugin also supports its CNI version.
    pub(crate) fn configuration(&self, node: &str, lock: &Path) -> Value {
        let mut configuration = json!({"cniVersion": "1.0.0", "name": "k8s-pod-network", "type": "calico",
            "nodename": node, "ipam": {"type": "calico-ipam"}, "log_level": "error", "ipam_lock_file": lock});
        match self {
            Self::Etcd(etcd) => {
                configuration["datastore_type"] = "etcdv3".into();
                configuration["etcd_endpoints"] = etcd.endpoint().into();
            }
            Self::Kubernetes(server) => {
                configuration["datastore_type"] = "kubernetes".into();
                configuration["kubernetes"] = json!({"kubeconfig": server.kubeconfig()});
            }
        }
        configuration
    }
}
