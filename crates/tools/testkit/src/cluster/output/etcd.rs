//! Writes clusters to a running etcd. To be fast, it sends many puts per transaction, and several transactions at a
//! time.

use std::thread;

use anyhow::Result;
use etcd_client::{Client, Txn, TxnOp};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::mpsc;

use crate::cluster::Cluster;
use crate::runtime::block_on;

/// Maximum number of operations in one transaction, etcd's default.
const OPERATIONS: usize = 128;
/// Maximum number of bytes in one transaction, well below etcd's default limit of 1.5 MiB for requests.
const BYTES: usize = 512 * 1024;
/// Number of concurrent transactions.
const IN_FLIGHT: usize = 8;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

impl Cluster {
    /// Puts every key into the etcd at `endpoint`. Can be called from inside or outside an async runtime.
    pub fn write_to_etcd(&self, endpoint: &str) -> Result<()> {
        write(endpoint, |visit| self.for_each_entry(visit))
    }
}

/// Puts the entries that `entries` visits.
pub(super) fn write(endpoint: &str, entries: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) + Send) -> Result<()> {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    thread::scope(|scope| {
        scope.spawn(move || make(entries, &sender));
        block_on(async || send(endpoint, receiver).await)
    })
}

/// Packs entries into transactions until all are sent or the receiver has been dropped.
fn make(entries: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])), sender: &mpsc::Sender<Pairs>) {
    let mut pairs = Pairs::new();
    let mut bytes = 0;
    entries(&mut |key, value| {
        if pairs.len() == OPERATIONS || bytes + value.len() > BYTES {
            bytes = 0;
            // The send fails only if the writer has given up. The writer then reports the reason.
            drop(sender.blocking_send(std::mem::take(&mut pairs)));
        }
        bytes += key.len() + value.len();
        pairs.push((key.to_vec(), value.to_vec()));
    });
    drop(sender.blocking_send(pairs));
}

async fn send(endpoint: &str, mut receiver: mpsc::Receiver<Pairs>) -> Result<()> {
    let client = Client::connect([endpoint], None).await?;
    let put = |(key, value)| TxnOp::put(key, value, None);
    let transactions = stream::poll_fn(|context| receiver.poll_recv(context)).map(|pairs| {
        let (mut client, puts) = (client.clone(), pairs.into_iter().map(put).collect::<Vec<_>>());
        async move { anyhow::Ok(client.txn(Txn::new().and_then(puts)).await.map(drop)?) }
    });
    transactions.buffer_unordered(IN_FLIGHT).try_collect().await
}
