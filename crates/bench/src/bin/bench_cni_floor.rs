//! The floor of `bench_cni`: a program that is called as the plugin is, and sends etcd the requests of one ADD or DEL without
//! thinking about the answers. Its keys lie where the plugin's do not.

use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, Txn, TxnOp};

const IPAM: &str = "/calico/ipam/v2";
const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";
/// About what a block of 64 addresses takes.
const BLOCK: usize = 2_000;

fn main() -> Result<(), Error> {
    let text = std::io::read_to_string(std::io::stdin())?;
    let configuration: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let endpoint = configuration["etcd_endpoints"].as_str().unwrap_or_default().to_owned();
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (command, container) = (variable("CNI_COMMAND"), variable("CNI_CONTAINERID"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut client = Client::connect([endpoint], None).await?;
        if command == "ADD" { add(&mut client, &container).await } else { del(&mut client, &container).await }
    })
}

fn get(key: &str) -> TxnOp {
    TxnOp::get(key, None)
}

fn list(prefix: &str) -> TxnOp {
    TxnOp::get(prefix, Some(GetOptions::new().with_prefix()))
}

/// Two readings and two writes.
async fn add(client: &mut Client, container: &str) -> Result<(), Error> {
    let look = [
        get(&format!("{IPAM}/config")),
        list(&format!("{RESOURCES}/ipreservations/")),
        list(&format!("{RESOURCES}/ippools/")),
        list(&format!("{IPAM}/host/a/ipv4/block/")),
        get(&format!("{RESOURCES}/nodes/a")),
        get(&format!("/floor/handle/{container}")),
    ];
    client.txn(Txn::new().and_then(look)).await?;
    client.txn(Txn::new().and_then([get(&format!("{IPAM}/assignment/ipv4/block/10.7.0.0-26"))])).await?;
    put_new(client, &format!("/floor/handle/{container}"), 60).await?;
    put_new(client, &format!("/floor/block/{container}"), BLOCK).await
}

/// Three readings, of which two at a time, and two writes.
async fn del(client: &mut Client, container: &str) -> Result<(), Error> {
    let handle = format!("/floor/handle/{container}");
    let look = [get(&handle), get(&format!("{IPAM}/config")), list(&format!("{RESOURCES}/ippools/"))];
    let mut other = client.clone();
    let old = other.txn(Txn::new().and_then([get("/floor/handle/default.web-0")]));
    let (look, old) = tokio::join!(client.txn(Txn::new().and_then(look)), old);
    look?;
    old?;
    client.txn(Txn::new().and_then([get(&format!("/floor/block/{container}"))])).await?;
    delete(client, &format!("/floor/block/{container}")).await?;
    delete(client, &handle).await
}

async fn put_new(client: &mut Client, key: &str, size: usize) -> Result<(), Error> {
    let absent = Compare::version(key, CompareOp::Equal, 0);
    client.txn(Txn::new().when([absent]).and_then([TxnOp::put(key, vec![b'x'; size], None)])).await.map(drop)
}

async fn delete(client: &mut Client, key: &str) -> Result<(), Error> {
    let there = Compare::version(key, CompareOp::Greater, 0);
    client.txn(Txn::new().when([there]).and_then([TxnOp::delete(key, None)])).await.map(drop)
}
