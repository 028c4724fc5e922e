//! Sends etcd the same kinds of transactions as the plugin, but writes other keys.

use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, Txn, TxnOp};
use serde_json::Value;

use crate::{Call, Command, Failed};

const IPAM: &str = "/calico/ipam/v2";
const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";
/// The approximate size of a block of 64 addresses.
const BLOCK: usize = 2_000;

pub(crate) async fn send(configuration: &Value, call: &Call) -> Result<(), Failed> {
    let endpoint = configuration["etcd_endpoints"].as_str().unwrap_or_default();
    let mut client = Client::connect([endpoint], None).await?;
    match call.command {
        Command::Add => add(&mut client, call).await?,
        Command::Claim => claim(&mut client, &call.container).await?,
        Command::Del => del(&mut client, &call.container).await?,
    }
    Ok(())
}

fn get(key: &str) -> TxnOp {
    TxnOp::get(key, None)
}

fn list(prefix: &str) -> TxnOp {
    TxnOp::get(prefix, Some(GetOptions::new().with_prefix()))
}

/// Sends the requests of an ADD: two reads and two writes.
async fn add(client: &mut Client, call: &Call) -> Result<(), Failed> {
    let container = &call.container;
    let look = [
        get(&format!("{IPAM}/config")),
        list(&format!("{RESOURCES}/ipreservations/")),
        list(&format!("{RESOURCES}/ippools/")),
        list(&format!("{IPAM}/host/a/ipv4/block/")),
        get(&format!("{RESOURCES}/nodes/a")),
        get(&format!("/floor/handle/{container}")),
    ];
    client.txn(Txn::new().and_then(look)).await?;
    let _held = call.hold_lock()?;
    client.txn(Txn::new().and_then([get(&format!("{IPAM}/assignment/ipv4/block/10.7.0.0-26"))])).await?;
    put_new(client, &format!("/floor/handle/{container}"), 60).await?;
    Ok(put_new(client, &format!("/floor/block/{container}"), BLOCK).await?)
}

/// Sends the writes of an ADD that claims a block: the affinity twice, the block, the affinity again, the handle, and
/// the block again.
async fn claim(client: &mut Client, container: &str) -> Result<(), Error> {
    let (affinity, block) = (format!("/floor/affinity/{container}"), format!("/floor/block/{container}"));
    put_new(client, &affinity, 40).await?;
    put_again(client, &affinity, 40).await?;
    put_new(client, &block, 500).await?;
    put_again(client, &affinity, 40).await?;
    put_new(client, &format!("/floor/handle/{container}"), 60).await?;
    put_again(client, &block, BLOCK).await
}

/// Sends the requests of a DEL: three reads, of which two are concurrent, and two writes.
async fn del(client: &mut Client, container: &str) -> Result<(), Error> {
    let handle = format!("/floor/handle/{container}");
    let look = [get(&handle), get(&format!("{IPAM}/config"))];
    let mut other = client.clone();
    let old = other.txn(Txn::new().and_then([get("/floor/handle/default.web-0")]));
    let (look, old) = tokio::join!(client.txn(Txn::new().and_then(look)), old);
    look?;
    old?;
    client.txn(Txn::new().and_then([get(&format!("/floor/block/{container}"))])).await?;
    delete(client, &format!("/floor/block/{container}")).await?;
    delete(client, &handle).await
}

/// Writes a key that does not exist yet.
async fn put_new(client: &mut Client, key: &str, size: usize) -> Result<(), Error> {
    write(client, key, CompareOp::Equal, TxnOp::put(key, vec![b'x'; size], None)).await
}

async fn put_again(client: &mut Client, key: &str, size: usize) -> Result<(), Error> {
    write(client, key, CompareOp::Greater, TxnOp::put(key, vec![b'x'; size], None)).await
}

async fn delete(client: &mut Client, key: &str) -> Result<(), Error> {
    write(client, key, CompareOp::Greater, TxnOp::delete(key, None)).await
}

/// Writes a key whose version compares with 0.
async fn write(client: &mut Client, key: &str, operator: CompareOp, change: TxnOp) -> Result<(), Error> {
    let expected = Compare::version(key, operator, 0);
    client.txn(Txn::new().when([expected]).and_then([change])).await.map(drop)
}
