//! Fills a cluster: creates one object of each kind through the API server, and writes copies of them to etcd.

use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::KubeApiserver;
use etcd_client::{Client, Error, Txn, TxnOp};
use serde_json::Value;
use tokio::task::JoinSet;

use super::template::Template;
use super::{names, objects};
use crate::Failed;

/// Maximum number of keys of one transaction, etcd's default.
const KEYS: usize = 128;
/// Maximum number of bytes of one transaction; etcd's default is 1.5 MB.
const BYTES: usize = 1 << 20;
/// Number of transactions at a time.
const IN_FLIGHT: usize = 8;

/// The result of a seed.
pub(crate) struct Seeded {
    pub pods: usize,
    pub nodes: usize,
    /// The size of a pod in JSON, as the API server writes it, and as stored.
    pub pod_bytes: (usize, usize),
    /// Templates for more of them.
    pub copies: Copies,
}

/// Creates about `pods` pods with their handles, on nodes with a block each.
pub(crate) fn seed(server: &KubeApiserver, pods: usize) -> Result<Seeded, Failed> {
    let nodes = pods.div_ceil(names::PODS);
    let pods = nodes * names::PODS;
    for (plural, object) in objects::configuration() {
        send(server, "POST", &Flavour::Classic.path(plural), &object)?;
    }
    // The API server refuses changes to pods in a namespace that does not exist.
    for pod in 0..names::NAMESPACES {
        send(server, "POST", "/api/v1/namespaces", &objects::namespace(pod))?;
    }
    send(server, "POST", "/api/v1/namespaces/default/services", &objects::service())?;
    let copies = Copies::make(server)?;
    let entries = (0..nodes)
        .flat_map(|n| copies.of_node(n))
        .chain((0..pods).flat_map(|p| copies.of_pod(p, p / names::PODS)));
    server.etcd().with_client(async |client| write(client, entries).await)?;
    let path = format!("/api/v1/namespaces/{}/pods/{}", names::namespace(0), names::pod(0));
    let json = server.request("GET", &path, "")?.body.len();
    Ok(Seeded { pods, nodes, pod_bytes: (json, copies.pod.len()), copies })
}

/// Sends an object to the API server and returns the result.
fn send(server: &KubeApiserver, method: &str, path: &str, object: &Value) -> Result<Value, Failed> {
    let response = server.request(method, path, &object.to_string())?;
    if !matches!(response.status, 200 | 201) {
        return Err(format!("{method} {path}: {}", response.body).into());
    }
    Ok(serde_json::from_str(&response.body)?)
}

/// The templates of all kinds.
pub(crate) struct Copies {
    pod: Template,
    node: Template,
    block: Template,
    affinity: Template,
    handle: Template,
    tunnel: Template,
}

impl Copies {
    /// Creates the objects of the first node and pod as templates.
    fn make(server: &KubeApiserver) -> Result<Self, Failed> {
        let calico = |plural: &str, name: &str, object: Value, texts: Vec<String>| {
            let made = send(server, "POST", &Flavour::Classic.path(plural), &object)?;
            template(server, &stored(plural, name), &made, texts)
        };
        let with_status = |path: &str, name: &str, key: String, object: Value, status: Value, texts| {
            let mut made = send(server, "POST", path, &object)?;
            made["status"] = status;
            let made = send(server, "PUT", &format!("{path}/{name}/status"), &made)?;
            template(server, &key, &made, texts)
        };
        let (pod, node) = (names::pod(0), names::node(0));
        let of_pods = format!("/api/v1/namespaces/{}/pods", names::namespace(0));
        let (pod_made, pod_status) = (objects::pod(0, 0), objects::pod_status(0, 0));
        let (node_made, node_status) = (objects::node(0), objects::node_status(0));
        let handle = objects::handle(&names::handle(0), 0);
        let tunnel = objects::handle(&names::tunnel_handle(0), 0);
        Ok(Self {
            pod: with_status(&of_pods, &pod, pod_key(0), pod_made, pod_status, pod_texts(0, 0))?,
            node: with_status("/api/v1/nodes", &node, node_key(0), node_made, node_status, node_texts(0))?,
            block: calico(
                "ipamblocks",
                &names::block_object(0),
                objects::block(0),
                block_texts(0, &(0..names::PODS).collect::<Vec<_>>()),
            )?,
            affinity: calico(
                "blockaffinities",
                &names::affinity(0),
                objects::affinity(0),
                affinity_texts(0),
            )?,
            handle: calico("ipamhandles", &names::handle(0), handle, handle_texts(&names::handle(0), 0))?,
            tunnel: calico(
                "ipamhandles",
                &names::tunnel_handle(0),
                tunnel,
                handle_texts(&names::tunnel_handle(0), 0),
            )?,
        })
    }

    fn of_node(&self, n: usize) -> [(String, Vec<u8>); 4] {
        let tunnel = names::tunnel_handle(n);
        let of_tunnel = self.tunnel.fill(&names::uid(4, n), &handle_texts(&tunnel, n));
        [
            (node_key(n), self.node.fill(&names::uid(1, n), &node_texts(n))),
            self.block(n, &(n * names::PODS..(n + 1) * names::PODS).collect::<Vec<_>>()),
            (
                stored("blockaffinities", &names::affinity(n)),
                self.affinity.fill(&names::uid(3, n), &affinity_texts(n)),
            ),
            (stored("ipamhandles", &tunnel), of_tunnel),
        ]
    }

    /// The key and value of a node's block with the addresses of these pods.
    pub(crate) fn block(&self, n: usize, pods: &[usize]) -> (String, Vec<u8>) {
        let value = self.block.fill(&names::uid(2, n), &block_texts(n, pods));
        (stored("ipamblocks", &names::block_object(n)), value)
    }

    /// The keys and values of a pod and its handle.
    pub(crate) fn of_pod(&self, p: usize, n: usize) -> [(String, Vec<u8>); 2] {
        let handle = names::handle(p);
        [
            (stored("ipamhandles", &handle), self.handle.fill(&names::uid(5, p), &handle_texts(&handle, n))),
            (pod_key(p), self.pod.fill(&names::uid(6, p), &pod_texts(p, n))),
        ]
    }
}

/// The key of one of Calico's objects in the API server's etcd.
pub(crate) fn stored(plural: &str, name: &str) -> String {
    format!("/registry/{}/{plural}/{name}", Flavour::Classic.group())
}

fn pod_key(p: usize) -> String {
    format!("/registry/pods/{}/{}", names::namespace(p), names::pod(p))
}

fn node_key(n: usize) -> String {
    format!("/registry/minions/{}", names::node(n))
}

fn pod_texts(p: usize, n: usize) -> Vec<String> {
    let address = names::address(n, 1 + p % names::PODS);
    vec![names::pod(p), names::namespace(p), names::node(n), names::host(n), names::container(p), address]
}

fn node_texts(n: usize) -> Vec<String> {
    vec![names::node(n), names::host(n), names::address(n, 0)]
}

fn block_texts(n: usize, pods: &[usize]) -> Vec<String> {
    let mut texts = vec![names::block_object(n), names::node(n), names::block(n)];
    texts
        .extend(pods.iter().copied().flat_map(|p| [names::pod(p), names::namespace(p), names::container(p)]));
    texts
}

fn affinity_texts(n: usize) -> Vec<String> {
    vec![names::block_object(n), names::node(n), names::block(n), objects::affinity_hash(n)]
}

fn handle_texts(id: &str, n: usize) -> Vec<String> {
    vec![id.to_owned(), names::block(n)]
}

/// Reads an object as the API server has stored it.
fn template(server: &KubeApiserver, key: &str, made: &Value, texts: Vec<String>) -> Result<Template, Failed> {
    let read = server.etcd().with_client(async |mut client| client.get(key, None).await)?;
    let kv = read.kvs().first().ok_or_else(|| format!("the API server stored nothing under {key}"))?;
    let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
    Template::new(kv.value().to_vec(), uid, &texts)
}

async fn write(client: Client, entries: impl Iterator<Item = (String, Vec<u8>)>) -> Result<(), Error> {
    let mut running: JoinSet<Result<(), Error>> = JoinSet::new();
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let mut entries = entries.peekable();
    while let Some((key, value)) = entries.next() {
        bytes += value.len();
        batch.push(TxnOp::put(key, value, None));
        if batch.len() < KEYS && bytes < BYTES && entries.peek().is_some() {
            continue;
        }
        if running.len() == IN_FLIGHT
            && let Some(ended) = running.join_next().await
        {
            ended.expect("a write does not panic")?;
        }
        let (mut client, operations) = (client.clone(), std::mem::take(&mut batch));
        running.spawn(async move { client.txn(Txn::new().and_then(operations)).await.map(drop) });
        bytes = 0;
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("a write does not panic")?;
    }
    Ok(())
}
