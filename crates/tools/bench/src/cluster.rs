//! Clusters on real servers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::time::Duration;

use anyhow::{Context, Result};
use calipam_model::IpNet;
use calipam_model::key::{ENDPOINT_PREFIX, Key};
use calipam_testkit::World;
use calipam_testkit::allocator::{Churn, ChurnLog};
use calipam_testkit::blocks::{TakenBlock, put_block_objects, put_blocks};
use calipam_testkit::cluster::{Cluster as Generated, ClusterSpec};
use calipam_testkit::kube::{Flavour, seed_nodes};
use calipam_testkit::servers::{Etcd, EtcdOptions, KubeApiserver, processor_seconds};
use etcd_client::{GetOptions, KeyValue, TxnOp};
use serde_json::json;

use crate::kubernetes;

/// The pool and the prefix length of its blocks.
pub(crate) const POOL: &str = "10.7.0.0/16";
pub(crate) const BLOCK_SIZE: u8 = 26;

/// Time after which an API server has caught up with a write. It serves a list from its cache only when the cache
/// contains the newest write to any object. It waits for this write for up to a tenth of a second, and callers cannot
/// change that.
const CAUGHT_UP: Duration = Duration::from_millis(250);

/// Largest number of pods on Kubernetes that have the size of usual pods. Larger clusters have smaller ones.
const MOST_LARGE_PODS: u64 = 200_000;

/// Number of workers that start and stop pods on etcd, number of pods that each keeps, and the time limit of their
/// work.
const WORKERS: usize = 4;
const PODS: usize = 50;
const LIMIT: Duration = Duration::from_hours(1);

/// The kinds that plugins read or write, without namespaces.
const KINDS: &str = "ipamblocks ipamhandles blockaffinities ipamconfigs ippools ipreservations nodes pods";

/// A cluster on an etcd or an API server of its own.
pub(crate) struct Cluster(Option<World>);

impl Deref for Cluster {
    type Target = World;

    fn deref(&self) -> &World {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // No other cluster begins with the caches of this server.
        if let Some(World::Kubernetes(server, _)) = self.0.take() {
            server.end();
        }
    }
}

/// A healthy cluster with `allocations` allocations.
pub(crate) fn healthy(allocations: u64) -> Generated {
    Generated::sized(ClusterSpec::new(1), allocations)
}

impl Cluster {
    /// Starts a server with a healthy cluster. `size` is the number of allocations for `etcd`, which the options
    /// concern, and of pods for `kubernetes`.
    pub(crate) fn sized(datastore: &str, size: u64, options: EtcdOptions) -> Result<Self> {
        let world = if datastore == "etcd" {
            let etcd = options.start()?;
            healthy(size).write_to_etcd(&etcd.endpoint())?;
            World::Etcd(Box::new(etcd))
        } else {
            let world = World::kubernetes(Flavour::Classic);
            // The namespaces of pods.
            seed_nodes(world.server(), &[])?;
            let cluster = Generated::of_pods(ClusterSpec::new(1), size);
            let complete = if size > MOST_LARGE_PODS {
                kubernetes::complete_small
            } else {
                kubernetes::complete
            };
            cluster.write_to_etcd_of(world.server(), Flavour::Classic, complete)?;
            kubernetes::wait_for_caches(world.server())?;
            world
        };
        Ok(Self(Some(world)))
    }

    /// Starts a server, `etcd` or `kubernetes`, with one pool and the given nodes, for programs that are called like
    /// the plugin.
    pub(crate) fn of_nodes(datastore: &str, pool: &str, nodes: impl IntoIterator<Item = String>) -> Self {
        let world = if datastore == "etcd" {
            World::etcd()
        } else {
            World::kubernetes(Flavour::Classic)
        };
        let cluster = Self(Some(world));
        nodes
            .into_iter()
            .for_each(|name| cluster.create(&Key::Node(name), &json!({"spec": {}})));
        cluster.put_pool("default", pool);
        cluster
    }

    /// Adds a pool for all nodes.
    pub(crate) fn put_pool(&self, name: &str, cidr: &str) {
        let spec = json!({"cidr": cidr, "blockSize": BLOCK_SIZE, "nodeSelector": "all()"});
        self.create(&Key::Pool(name.to_owned()), &json!({"spec": spec}));
    }

    /// Writes blocks that other nodes own, each with `taken` assigned addresses.
    pub(crate) fn put_blocks(&self, places: impl IntoIterator<Item = IpNet>, taken: usize) -> Result<()> {
        let blocks: Vec<_> = places
            .into_iter()
            .map(|cidr| TakenBlock { cidr, taken })
            .collect();
        match self.api_server() {
            None => put_blocks(self.etcd(), &blocks),
            Some(server) => put_block_objects(server, Flavour::Classic, &blocks),
        }
    }

    /// The API server, if it is the datastore.
    pub(crate) fn api_server(&self) -> Option<&KubeApiserver> {
        matches!(&**self, World::Kubernetes(..)).then(|| self.server())
    }

    /// Returns the value for this cluster's datastore.
    pub(crate) fn pick<T>(&self, on_etcd: T, on_kubernetes: T) -> T {
        if self.api_server().is_some() {
            on_kubernetes
        } else {
            on_etcd
        }
    }

    /// The etcd behind the cluster.
    pub(crate) fn etcd(&self) -> &Etcd {
        self.api_server().map_or_else(|| self.keys(), KubeApiserver::etcd)
    }

    /// The port of the datastore on 127.0.0.1.
    pub(crate) fn port(&self) -> Result<u16> {
        let Some(server) = self.api_server() else {
            return Ok(self.etcd().port);
        };
        Ok(server.url().rsplit(':').next().unwrap_or_default().parse()?)
    }

    /// The current revision of the etcd behind the cluster.
    pub(crate) fn revision(&self) -> Result<i64> {
        let answer = self
            .etcd()
            .with_client(async |mut client| client.get("/", None).await)?;
        Ok(answer.header().context("an answer without a header")?.revision())
    }

    /// The number of requests of plugins since the server started, except watches, from the server's metrics.
    pub(crate) fn requests(&self) -> Result<u64> {
        let text = match self.api_server() {
            None => get(&format!("127.0.0.1:{}", self.etcd().port), "/metrics")?.1,
            Some(server) => server.request("GET", "/metrics", "")?.body,
        };
        let counts = text
            .lines()
            .filter(|line| is_counted(line))
            .filter_map(|line| line.rsplit_once(' '));
        Ok(counts
            .filter_map(|(_, count)| count.parse::<f64>().ok())
            .sum::<f64>() as u64)
    }

    /// The processor time of the servers so far, in seconds.
    pub(crate) fn processor_seconds(&self) -> f64 {
        let of_etcd = self.etcd().process_id().map_or(0.0, processor_seconds);
        of_etcd + self.api_server().map_or(0.0, KubeApiserver::processor_seconds)
    }

    /// The pause before a call whose time is measured.
    pub(crate) fn pause(&self) -> Duration {
        self.pick(Duration::ZERO, CAUGHT_UP)
    }

    /// The options with which `calipam` finds the cluster.
    pub(crate) fn connection(&self) -> Vec<String> {
        match self.api_server() {
            None => vec!["--etcd-endpoints".to_owned(), self.etcd().endpoint()],
            Some(server) => {
                let kubeconfig = server.kubeconfig().display().to_string();
                ["--datastore", "kubernetes", "--kubeconfig", &kubeconfig]
                    .map(str::to_owned)
                    .into()
            }
        }
    }

    /// Deletes one of `step` endpoints or pods of a healthy cluster, so that its address is leaked. Returns the number of
    /// leaks.
    pub(crate) fn leak(&self, step: usize) -> Result<usize> {
        let prefix = self.pick(ENDPOINT_PREFIX, "/registry/pods/");
        let all = self.etcd().with_client(async |client| {
            let mut kv = client.kv_client().max_decoding_message_size(usize::MAX);
            kv.get(prefix, Some(GetOptions::new().with_prefix().with_keys_only()))
                .await
        })?;
        let keys = all.kvs().iter().map(KeyValue::key).step_by(step);
        let deletions: Vec<TxnOp> = keys.map(|key| TxnOp::delete(key, None)).collect();
        self.etcd().write(&deletions)?;
        Ok(deletions.len())
    }

    /// Lets pods come and go on some nodes of a healthy cluster.
    pub(crate) fn churn(&self, churn: Churn) -> Result<ChurnLog> {
        // On Kubernetes, ADDs mostly wait for the caches of lists.
        let workers = WORKERS * self.pick(1, 3);
        let churn = Churn {
            workers,
            pods: PODS,
            limit: LIMIT,
            ..churn
        };
        let nodes: Vec<String> = (1..=workers).map(|number| format!("node-{number}")).collect();
        let spec = ClusterSpec::new(1).wide().v4_only();
        churn.run(self.target(), &spec, &nodes)
    }
}

/// True for a line of metrics that counts requests of plugins. An API server itself lists namespaces, so only reads of
/// a single namespace count.
fn is_counted(line: &str) -> bool {
    if line.starts_with("grpc_server_handled_total{") {
        return line.contains("grpc_service=\"etcdserverpb.KV\"");
    }
    let resource = |name: &str| line.contains(&format!("resource=\"{name}\""));
    line.starts_with("apiserver_request_total{")
        && !line.contains("verb=\"WATCH\"")
        && (KINDS.split(' ').any(resource) || resource("namespaces") && line.contains("verb=\"GET\""))
}

/// Requests a path of a server. Returns the status and the body.
pub(crate) fn get(address: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}
