//! Sends Kubernetes the same kinds of requests as the plugin, concurrently where the plugin does. Where the plugin
//! replaces a block of its node, this program creates a block, so that concurrent calls do not conflict.

use calipam_model::affinity::{AffinityKey, AffinityType};
use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::{Call, Command, Failed};

const KINDS: &str = "/apis/crd.projectcalico.org/v1";
/// Addresses per block.
const SIZE: u64 = 64;

pub(crate) async fn send(configuration: &Value, call: &Call) -> Result<(), Failed> {
    let path = configuration["kubernetes"]["kubeconfig"].as_str().unwrap_or_default();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?;
    let client = Client::try_from(config)?;
    match call.command {
        Command::Add => add(&client, call).await,
        Command::Claim => claim(&client, &call.container).await,
        Command::Del => del(&client, &call.container).await,
    }
}

/// Sends the requests of an ADD: seven concurrent reads, a read of the block, and two writes.
async fn add(client: &Client, call: &Call) -> Result<(), Failed> {
    let container = &call.container;
    let affinities = format!("{KINDS}/blockaffinities?labelSelector={}", labels()?);
    let (config, pools) = (format!("{KINDS}/ipamconfigs/default"), format!("{KINDS}/ippools"));
    let (reservations, handle) = (format!("{KINDS}/ipreservations"), path_of_handle(container));
    tokio::try_join!(
        get(client, "/api/v1/namespaces/default"),
        get(client, &config),
        get(client, &reservations),
        get(client, &pools),
        get(client, &affinities),
        get(client, "/api/v1/nodes/a"),
        get(client, &handle),
    )?;
    let _held = call.hold_lock()?;
    get(client, &format!("{KINDS}/ipamblocks/10-7-0-0-26")).await?;

    let spec = json!({"handleID": name(container), "block": {"10.7.0.0/26": 1}, "deleted": false});
    create(client, "ipamhandles", "IPAMHandle", container, spec).await?;
    create(client, "ipamblocks", "IPAMBlock", container, block(container)).await.map(drop)
}

fn block(container: &str) -> Value {
    json!({"cidr": "10.7.0.0/26", "affinity": "host:a", "strictAffinity": false, "deleted": false,
        "allocations": vec![Value::Null; SIZE as usize], "unallocated": (0..SIZE).collect::<Vec<_>>(),
        "attributes": [{"handle_id": name(container), "secondary": {"node": "a", "namespace": "default",
            "pod": "web-0", "timestamp": "2026-01-01 00:00:00.000000000 +0000 UTC"}}]})
}

/// Sends the writes of an ADD that claims a block: the affinity twice, the block, the affinity again, the handle, and
/// the block again.
async fn claim(client: &Client, container: &str) -> Result<(), Failed> {
    let at = |plural: &str| format!("{KINDS}/{plural}/{}", name(container));
    let (affinity, stored) = (at("blockaffinities"), at("ipamblocks"));
    let spec = json!({"cidr": "10.7.0.0/26", "node": "a", "state": "pending", "deleted": "false"});
    let made = create(client, "blockaffinities", "BlockAffinity", container, spec).await?;
    let made = replace(client, &affinity, &made, "state", "pending".into()).await?;
    let first = create(client, "ipamblocks", "IPAMBlock", container, block(container)).await?;
    replace(client, &affinity, &made, "state", "confirmed".into()).await?;
    let spec = json!({"handleID": name(container), "block": {"10.7.0.0/26": 1}, "deleted": false});
    create(client, "ipamhandles", "IPAMHandle", container, spec).await?;
    replace(client, &stored, &first, "sequenceNumber", 1.into()).await.map(drop)
}

/// Sends the requests of a DEL: three concurrent reads, a read of the block, and three writes, since deleting a handle
/// takes two.
async fn del(client: &Client, container: &str) -> Result<(), Failed> {
    let config = format!("{KINDS}/ipamconfigs/default");
    let (handle, old) = (path_of_handle(container), format!("{KINDS}/ipamhandles/default.web-0"));
    let (found, ..) = tokio::try_join!(get(client, &handle), get(client, &config), get(client, &old))?;
    let block = format!("{KINDS}/ipamblocks/{}", name(container));
    let stored = get(client, &block).await?;
    replace(client, &block, &stored, "sequenceNumber", 1.into()).await?;
    replace(client, &handle, &found, "deleted", true.into()).await?;
    request(client, Method::DELETE, &handle, String::new()).await.map(drop)
}

fn name(container: &str) -> String {
    format!("floor.{container}")
}

fn path_of_handle(container: &str) -> String {
    format!("{KINDS}/ipamhandles/{}", name(container))
}

/// The label selector for the affinities of node `a`.
fn labels() -> Result<String, Failed> {
    let key = AffinityKey { kind: AffinityType::Host, node: "a".to_owned(), cidr: "0.0.0.0/0".parse()? };
    Ok(key.labels().map(|(name, value)| format!("{name}%3D{value}")).join("%2C"))
}

/// Creates an object and returns it.
async fn create(
    client: &Client,
    plural: &str,
    kind: &str,
    container: &str,
    spec: Value,
) -> Result<String, Failed> {
    let object = json!({"apiVersion": "crd.projectcalico.org/v1", "kind": kind,
        "metadata": {"name": name(container)}, "spec": spec});
    request(client, Method::POST, &format!("{KINDS}/{plural}"), object.to_string()).await
}

/// Replaces an object that was read, with another value in one field. Returns the new object.
async fn replace(
    client: &Client,
    path: &str,
    read: &str,
    field: &str,
    value: Value,
) -> Result<String, Failed> {
    let mut object: Value = serde_json::from_str(read)?;
    object["spec"][field] = value;
    request(client, Method::PUT, path, object.to_string()).await
}

/// Reads a path; a missing object is not an error.
async fn get(client: &Client, path: &str) -> Result<String, Failed> {
    request(client, Method::GET, path, String::new()).await
}

async fn request(client: &Client, method: Method, path: &str, body: String) -> Result<String, Failed> {
    let is_get = method == Method::GET;
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    match client.request_text(request.body(body.into_bytes())?).await {
        Err(kube::Error::Api(status)) if is_get && status.code == 404 => Ok(String::new()),
        answer => Ok(answer?),
    }
}
