//! Leaks addresses.

use calipam_testkit::servers::{Etcd, ServerError};
use etcd_client::{Error, GetOptions, KeyValue, KvClient, Txn, TxnOp};

/// Maximum number of keys of one transaction, etcd's default.
const KEYS: usize = 128;
const ENDPOINTS: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/";

/// Deletes every tenth endpoint of a healthy cluster, so that its address is leaked; returns their number.
pub(crate) async fn every_tenth(etcd: &Etcd) -> Result<usize, ServerError> {
    let client = etcd.client().await?;
    let mut reader = client.kv_client().max_decoding_message_size(usize::MAX);
    let all = reader.get(ENDPOINTS, Some(GetOptions::new().with_prefix().with_keys_only())).await?;
    let keys: Vec<&[u8]> = all.kvs().iter().map(KeyValue::key).step_by(10).collect();
    delete(client.kv_client(), &keys).await?;
    Ok(keys.len())
}

/// Deletes keys.
pub(crate) async fn delete(mut client: KvClient, keys: &[impl AsRef<[u8]>]) -> Result<(), Error> {
    for part in keys.chunks(KEYS) {
        let deletions: Vec<TxnOp> = part.iter().map(|key| TxnOp::delete(key.as_ref(), None)).collect();
        client.txn(Txn::new().and_then(deletions)).await?;
    }
    Ok(())
}
