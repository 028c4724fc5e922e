//! Sends etcd the same kinds of transactions as the plugin, but writes other keys.

use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, Txn, TxnOp};

use crate::{Call, Failed};

const CONFIG: &str = "/calico/ipam/v2/config";
const RESERVATIONS: &str = "/calico/resources/v3/projectcalico.org/ipreservations/";
const POOLS: &str = "/calico/resources/v3/projectcalico.org/ippools/";
const AFFINITIES: &str = "/calico/ipam/v2/host/a/ipv4/block/";
const NODE: &str = "/calico/resources/v3/projectcalico.org/nodes/a";
const NODES_BLOCK: &str = "/calico/ipam/v2/assignment/ipv4/block/10.7.0.0-26";

/// The approximate sizes of a block of 64 addresses, of one without addresses, of a handle and of an affinity.
const BLOCK: usize = 2_000;
const EMPTY_BLOCK: usize = 500;
const HANDLE: usize = 60;
const AFFINITY: usize = 40;

pub(crate) async fn send(call: &Call) -> Result<(), Failed> {
    let endpoint = call.configuration["etcd_endpoints"].as_str().unwrap_or_default();
    let client = Client::connect([endpoint], None).await?;
    let [affinity, block, handle] =
        ["affinity", "block", "handle"].map(|kind| format!("/floor/{kind}/{}", call.container));
    match call.command.as_str() {
        // The writes of an ADD that claims a block: the affinity twice, the block, the affinity again, the handle, and
        // the block again.
        "CLAIM" => {
            put_new(&client, &affinity, AFFINITY).await?;
            put_again(&client, &affinity, AFFINITY).await?;
            put_new(&client, &block, EMPTY_BLOCK).await?;
            put_again(&client, &affinity, AFFINITY).await?;
            put_new(&client, &handle, HANDLE).await?;
            put_again(&client, &block, BLOCK).await?;
        }
        // Three reads, of which two are concurrent, and two writes.
        "DEL" => {
            let look = [&*handle, CONFIG];
            let old = ["/floor/handle/default.web-0"];
            tokio::try_join!(read(&client, &look), read(&client, &old))?;
            read(&client, &[&block]).await?;
            delete(&client, &block).await?;
            delete(&client, &handle).await?;
        }
        // Two reads and two writes.
        _ => {
            read(&client, &[CONFIG, RESERVATIONS, POOLS, AFFINITIES, NODE, &handle]).await?;
            let _held = call.hold_lock()?;
            read(&client, &[NODES_BLOCK]).await?;
            put_new(&client, &handle, HANDLE).await?;
            put_new(&client, &block, BLOCK).await?;
        }
    }
    Ok(())
}

/// Reads keys in one transaction, and lists those that end with a slash.
async fn read(client: &Client, keys: &[&str]) -> Result<(), Error> {
    let get = |key: &&str| TxnOp::get(*key, key.ends_with('/').then(|| GetOptions::new().with_prefix()));
    let reads: Vec<TxnOp> = keys.iter().map(get).collect();
    client.clone().txn(Txn::new().and_then(reads)).await.map(drop)
}

/// Writes a key that does not exist yet.
async fn put_new(client: &Client, key: &str, size: usize) -> Result<(), Error> {
    write(
        client,
        key,
        CompareOp::Equal,
        TxnOp::put(key, vec![b'x'; size], None),
    )
    .await
}

async fn put_again(client: &Client, key: &str, size: usize) -> Result<(), Error> {
    write(
        client,
        key,
        CompareOp::Greater,
        TxnOp::put(key, vec![b'x'; size], None),
    )
    .await
}

async fn delete(client: &Client, key: &str) -> Result<(), Error> {
    write(client, key, CompareOp::Greater, TxnOp::delete(key, None)).await
}

/// Writes a key whose version compares with 0.
async fn write(client: &Client, key: &str, operator: CompareOp, change: TxnOp) -> Result<(), Error> {
    let expected = Compare::version(key, operator, 0);
    client
        .clone()
        .txn(Txn::new().when([expected]).and_then([change]))
        .await
        .map(drop)
}
