//! On etcd.

use etcd_client::{Client, Error, GetOptions, Txn, TxnOp};

use super::{CHANGED, Row};
use crate::check;

/// What a workload writes when it comes or goes: its endpoint, its handle and the block of its address.
const PREFIXES: [&str; 3] = [
    "/calico/resources/v3/projectcalico.org/workloadendpoints/",
    "/calico/ipam/v2/handle/",
    "/calico/ipam/v2/assignment/",
];

/// Measures a cluster of so many allocations.
pub(super) fn measure(program: &str, allocations: u64) -> Result<Row, String> {
    let etcd = check::seeded(allocations)?;
    let endpoint = etcd.endpoint();
    let runtime = tokio::runtime::Runtime::new().map_err(|e| e.to_string())?;
    let change = |run| runtime.block_on(change(&endpoint, run)).map_err(|e| e.to_string());
    super::measure(program, allocations, &["--etcd-endpoints", &endpoint], || Ok(()), change)
}

/// Writes what one workload of a hundred writes when it changes, each time of other workloads; gives the number of keys. The
/// values stay, so that the cluster is healthy.
async fn change(endpoint: &str, run: usize) -> Result<usize, Error> {
    let mut client = Client::connect([endpoint], None).await?;
    let mut reader = client.kv_client().max_decoding_message_size(usize::MAX);
    let mut keys: [Vec<Vec<u8>>; 3] = Default::default();
    for (keys, prefix) in keys.iter_mut().zip(PREFIXES) {
        let options = GetOptions::new().with_prefix().with_keys_only();
        let all = reader.get(prefix, Some(options)).await?;
        keys.extend(all.kvs().iter().map(|kv| kv.key().to_vec()));
    }
    let [endpoints, handles, blocks] = keys;
    let mut written = 0;
    for index in (run..endpoints.len().min(handles.len())).step_by(CHANGED) {
        let block = &blocks[index * 7_919 % blocks.len()];
        let all = [&endpoints[index], &handles[index], block];
        let reads: Vec<TxnOp> = all.iter().map(|key| TxnOp::get(key.as_slice(), None)).collect();
        let answer = client.txn(Txn::new().and_then(reads)).await?;
        let mut puts = Vec::new();
        for read in answer.op_responses() {
            if let etcd_client::TxnOpResponse::Get(read) = read {
                puts.extend(read.kvs().iter().map(|kv| TxnOp::put(kv.key(), kv.value(), None)));
            }
        }
        written += puts.len();
        client.txn(Txn::new().and_then(puts)).await?;
    }
    Ok(written)
}
