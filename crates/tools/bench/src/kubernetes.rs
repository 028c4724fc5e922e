//! Large clusters on Kubernetes.

use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use calipam_model::parallel;
use calipam_testkit::cluster::{Cluster as Generated, ClusterSpec, KubeObject};
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::KubeApiserver;
use etcd_client::TxnOp;
use serde_json::{Value, json};

use crate::measured::Measured;

/// The kinds that a check reads.
pub(crate) const ALL: &str = "pods nodes services ipamblocks ipamhandles blockaffinities ipamconfigs ippools \
    ipreservations clusterinformations kubecontrollersconfigurations";
/// The kinds of Kubernetes in [`ALL`].
const CORE: [&str; 3] = ["pods", "nodes", "services"];
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Time limit for the API server to load a million keys into its caches.
const CACHES: Duration = Duration::from_secs(900);
/// Pause between two attempts while the API server has not caught up with its etcd.
const PAUSE: Duration = Duration::from_secs(3);

/// Number of objects on a page of a list, as many as calipam asks for.
const PAGE: usize = 5_000;

/// More handles than this are read in pages, as calipam does: a server on two cores may not send them in one piece within
/// its time limit of a minute.
pub(crate) const MOST_IN_ONE_PIECE: u64 = 300_000;

/// Number of handles that are in memory at a time while they are written.
const HANDLES_TOGETHER: u64 = 10_000;

/// Puts handles of pods that are gone into the etcd of a server. Each counts one address of a block that does not record
/// it, as after years of releases that were interrupted between the block and its handle.
pub(crate) fn put_handles(server: &KubeApiserver, number: u64) -> Result<()> {
    let example = Generated::sized(ClusterSpec::new(1), 1).kubernetes(Flavour::Classic);
    let mut handles = example.objects.into_iter();
    let handle = handles.find(|object| object.plural == "ipamhandles");
    let mut handle = handle.context("the example has no handle")?;
    complete(&mut handle);

    let mut puts = Vec::new();
    for i in 0..number {
        // IDs of Calico's CNI plugin end with the ID of a container, whose digits look random.
        let spread = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let id = format!("k8s-pod-network.{spread:016x}{i:048x}");
        handle.json["metadata"]["name"] = id.as_str().into();
        handle.json["metadata"]["uid"] = format!("00000000-0000-4000-8000-{i:012x}").into();
        handle.json["spec"]["handleID"] = id.as_str().into();
        let key = format!("/registry/{}/ipamhandles/{id}", Flavour::Classic.group());
        puts.push(TxnOp::put(key, handle.json.to_string(), None));
        if puts.len() as u64 == HANDLES_TOGETHER || i + 1 == number {
            server.etcd().write(&puts)?;
            puts.clear();
        }
    }
    Ok(())
}

/// Waits until the API server's caches contain what is in its etcd: until then it refuses lists. Asks for one kind at a
/// time, since listing kinds that are ready would keep the server from catching up with the others.
pub(crate) fn wait_for_caches(server: &KubeApiserver) -> Result<()> {
    let start = Instant::now();
    let in_pages = true;
    for kind in ALL.split(' ') {
        while let Err(error) = pull(server, kind, in_pages) {
            ensure!(start.elapsed() < CACHES, "not in the caches: {error}");
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Reads all objects of some kinds once. This is the floor: the time in which the API server sends the lists. All lists
/// are requested at the same time, each on its own connection and as a single page, except that handles are read
/// `in_pages` if there are more than the server can send within its time limit. Built-in kinds are requested as
/// protobuf. Nothing is decoded.
pub(crate) fn pull(server: &KubeApiserver, kinds: &str, in_pages: bool) -> Result<Measured> {
    let kinds: Vec<&str> = kinds.split(' ').collect();
    let connections = NonZeroUsize::new(kinds.len()).context("no kinds")?;
    let start = Instant::now();
    let pulls = parallel::map(connections, kinds.len(), |place| match kinds[place] {
        kind if CORE.contains(&kind) => server.pull(&format!("/api/v1/{kind}"), PROTOBUF),
        "ipamhandles" if in_pages => pull_pages(server, &Flavour::Classic.path("ipamhandles")),
        kind => server.pull(&Flavour::Classic.path(kind), "application/json"),
    });
    let bytes = pulls.into_iter().sum::<Result<u64>>()?;
    Ok(Measured {
        seconds: start.elapsed().as_secs_f64(),
        bytes,
        ..Measured::default()
    })
}

/// Reads a list in pages. Returns the number of bytes.
fn pull_pages(server: &KubeApiserver, path: &str) -> Result<u64> {
    const TOKEN: &str = "\"continue\":\"";
    let mut page = format!("{path}?limit={PAGE}");
    let mut bytes = 0;
    loop {
        let response = server.request("GET", &page, "")?;
        ensure!(response.status == 200, "{page}: {}", response.status);
        bytes += response.body.len() as u64;
        let token = match response.body.rsplit_once(TOKEN) {
            Some((_, after)) => after.split('"').next().unwrap_or_default(),
            None => "",
        };
        // The last page has no token, or an empty one.
        if token.is_empty() {
            return Ok(bytes);
        }
        page = format!("{path}?limit={PAGE}&continue={token}");
    }
}

/// Makes the API server collect its garbage. A collection costs as much as sending all lists, and with a heap of this
/// size, one is due about every second run. Left to chance, it could always slow down the checks, or always the floor.
pub(crate) fn collect_garbage(server: &KubeApiserver) -> Result<()> {
    server.pull("/debug/pprof/heap?gc=1", "*/*").map(drop)
}

/// Adds fields that no check reads, but every API server sends. A running pod then takes 7 KB: the settings of its
/// container stand for probes, volumes, conditions and others.
pub(crate) fn complete(object: &mut KubeObject) {
    complete_with(50, object);
}

/// Does the same with fewer settings, so that pods take 2 KB. An API server with 300,000 pods of 7 KB and its etcd need
/// more than 24 GB of memory.
pub(crate) fn complete_small(object: &mut KubeObject) {
    complete_with(5, object);
}

fn complete_with(settings: usize, object: &mut KubeObject) {
    match object.plural {
        "pods" => object.json["spec"]["containers"][0]["env"] = (0..settings).map(setting).collect(),
        "nodes" => object.json["status"]["images"] = (0..30).map(image).collect(),
        _ => {}
    }
    let managed = json!({"manager": "manager-of-this-kind", "operation": "Update", "time": "2026-05-01T10:12:03Z",
        "apiVersion": object.json["apiVersion"], "fieldsType": "FieldsV1", "fieldsV1": fields(&object.json)});
    object.json["metadata"]["managedFields"] = json!([managed]);
}

/// A setting in the environment of a container.
fn setting(i: usize) -> Value {
    let value = format!("https://checkout-{i:02}.shop.svc.cluster.local:8443/api/v1");
    json!({"name": format!("CHECKOUT_SETTING_{i:02}"), "value": value})
}

/// An image in the status of a node.
fn image(i: usize) -> Value {
    let name = format!("registry.example.com/shop/image-{i:02}");
    json!({"names": [format!("{name}@sha256:{i:064x}"), format!("{name}:v1.0.{i}")], "sizeBytes": 48_000_000 + i})
}

/// Returns the fields of a value in the format of `managedFields`, without the items of lists.
fn fields(value: &Value) -> Value {
    let Value::Object(inner) = value else {
        return json!({});
    };
    inner
        .iter()
        .map(|(name, value)| (format!("f:{name}"), fields(value)))
        .collect()
}
