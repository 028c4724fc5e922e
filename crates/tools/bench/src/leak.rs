//! Leaks addresses.

use calipam_testkit::servers::Etcd;
use etcd_client::{GetOptions, KeyValue, Txn, TxnOp};

use crate::Failed;

/// Maximum number of keys in one transaction, etcd's default.
const KEYS: usize = 128;

/// Deletes every tenth endpoint or pod of a healthy cluster, so that its address is leaked. Returns the number of
/// leaks. `prefix` is the prefix of the keys of endpoints or pods.
pub(crate) fn every_tenth(etcd: &Etcd, prefix: &str) -> Result<usize, Failed> {
    let leaked = etcd.with_client(async |client| {
        let mut kv = client.kv_client().max_decoding_message_size(usize::MAX);
        let all = kv.get(prefix, Some(GetOptions::new().with_prefix().with_keys_only())).await?;
        let keys: Vec<&[u8]> = all.kvs().iter().map(KeyValue::key).step_by(10).collect();
        for part in keys.chunks(KEYS) {
            let deletions: Vec<TxnOp> = part.iter().map(|key| TxnOp::delete(*key, None)).collect();
            kv.txn(Txn::new().and_then(deletions)).await?;
        }
        Ok(keys.len())
    })?;
    eprintln!("{leaked} addresses are leaked");
    Ok(leaked)
}
