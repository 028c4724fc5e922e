//! The writes of a release on etcd.

use std::time::Instant;

use calipam_repair::journal::Recorded;
use calipam_testkit::servers::Etcd;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::Failed;

/// Number of concurrent transactions. calipam's executor sends as many requests at a time.
const IN_FLIGHT: usize = 256;

/// The time in seconds that etcd needs for the same transactions as the undo, without its reads.
pub(super) fn floor(etcd: &Etcd, recorded: &Recorded) -> Result<f64, Failed> {
    let mut transactions = Vec::new();
    for intent in &recorded.intents {
        let Some(revisions) = recorded.outcomes.get(&intent.id).and_then(|o| o.written.as_ref()) else {
            continue;
        };
        let (mut compares, mut puts) = (Vec::new(), Vec::new());
        for (change, revision) in intent.changes.iter().zip(revisions) {
            let revision = change.after.as_ref().and(revision.as_ref()).map_or(Ok(0), |r| r.parse())?;
            compares.push(Compare::mod_revision(change.key.as_str(), CompareOp::Equal, revision));
            let before = change.before.as_ref().and_then(|b| b.value.bytes()).unwrap_or_default();
            puts.push(TxnOp::put(change.key.as_str(), before.to_vec(), None));
        }
        transactions.push(Txn::new().when(compares).and_then(puts));
    }
    Runtime::new()?.block_on(send(etcd, transactions))
}

/// Sends transactions. Returns the seconds until all have ended.
async fn send(etcd: &Etcd, transactions: Vec<Txn>) -> Result<f64, Failed> {
    let client = etcd.client().await?;
    let begin = Instant::now();
    let mut running = JoinSet::new();
    for transaction in transactions {
        if running.len() == IN_FLIGHT {
            running.join_next().await.ok_or("nothing runs")???;
        }
        let mut client = client.clone();
        running.spawn(async move {
            let answer = client.txn(transaction).await?;
            if answer.succeeded() { Ok::<(), Failed>(()) } else { Err("lost".into()) }
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(begin.elapsed().as_secs_f64())
}
