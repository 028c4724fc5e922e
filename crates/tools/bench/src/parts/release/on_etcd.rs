//! The writes of a release on etcd.

use std::time::Instant;

use anyhow::{Result, ensure};
use calipam_repair::journal::Recorded;
use calipam_testkit::servers::Etcd;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::task::JoinSet;

/// Number of concurrent transactions. calipam's executor sends as many requests at a time.
const IN_FLIGHT: usize = 256;

/// The time in seconds that etcd needs for the same transactions as the undo, without its reads.
pub(super) fn floor(etcd: &Etcd, recorded: &Recorded) -> Result<f64> {
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
    let (seconds, lost) = etcd.with_client(async |client| {
        let (begin, mut running, mut lost) = (Instant::now(), JoinSet::new(), 0);
        let mut transactions = transactions.into_iter();
        loop {
            while running.len() < IN_FLIGHT
                && let Some(transaction) = transactions.next()
            {
                let mut client = client.clone();
                running.spawn(async move { client.txn(transaction).await });
            }
            match running.join_next().await {
                Some(done) => lost += u32::from(!done.expect("it does not panic")?.succeeded()),
                None => return Ok((begin.elapsed().as_secs_f64(), lost)),
            }
        }
    })?;
    ensure!(lost == 0, "{lost} transactions are lost");
    Ok(seconds)
}
