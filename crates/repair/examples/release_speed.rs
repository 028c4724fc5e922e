//! How long the release of every tenth address takes, against what etcd needs for the same transactions.
//!
//! `cargo run --release -p calipam-repair --example release_speed -- 1000000` (addresses; 100,000 where none
//! is given). The floor is the way back: one transaction for each block, sent without reading anything, with as
//! many under way at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use calipam_datastore::Datastore;
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_datastore::write::{Consent, Question};
use calipam_model::block::Block;
use calipam_model::edit::{BlockEdit, Edit, HandleEdit, Held, Step};
use calipam_repair::journal::Recorded;
use calipam_repair::{Options, execute};
use calipam_testkit::cluster::{ClusterSpec, SizedCluster};
use calipam_testkit::servers::Etcd;
use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use tokio::task::JoinSet;

const IN_FLIGHT: usize = 64;

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let allocations = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let etcd = Etcd::start()?;
    SizedCluster::new(ClusterSpec::new(1), allocations).write_to_etcd(&etcd.endpoint())?;
    let overrides = Overrides { etcd_endpoints: Some(etcd.endpoint()), ..Overrides::default() };
    let store = Datastore::open(&Settings::resolve(&overrides, &BTreeMap::new(), &LocalFiles)?).await?;
    let snapshot = store.observe(&(Arc::new(|_| {}) as _)).await?;
    let blocks = snapshot.blocks.iter().filter_map(|b| b.value.content.sound());
    let steps: Vec<Step> = blocks.filter_map(release_a_tenth).collect();
    let addresses: usize = steps.iter().map(|step| step.edits.len() - 1).sum();
    let transactions = steps.len();
    let folder = tempfile::tempdir_in(".")?;
    let journal = folder.path().join("run.journal");
    let cluster = snapshot.cluster.map(|c| c.guid).unwrap_or_default();
    let all = usize::MAX / 8;
    let question = Question {
        cluster: cluster.clone(),
        location: etcd.endpoint(),
        addresses: all,
        blocks: all,
        handles: all,
        others: all,
    };
    let consent = Consent::from_option(question, true).ok_or("consent")?;
    let begin = Instant::now();
    let execution = execute(&store, &cluster, steps, consent, &Options::new("release", &journal)).await?;
    let ours = begin.elapsed();
    if !execution.is_complete() {
        return Err(format!("{execution:?}").into());
    }
    let floor = floor(&etcd, &Recorded::read(&journal)?).await?;
    println!("{addresses} addresses in {transactions} transactions");
    println!("journal: {} MB", std::fs::metadata(&journal)?.len() / 1_000_000);
    println!("release: {ours:.2?}, {:.0} addresses a second", addresses as f64 / ours.as_secs_f64());
    println!("floor:   {floor:.2?}, ratio {:.2}", ours.as_secs_f64() / floor.as_secs_f64());
    Ok(())
}

fn release_a_tenth(block: &Block) -> Option<Step> {
    let pods = block.allocations().filter(|a| a.attribute.owner().get("pod").is_some());
    let held: Vec<Held> = pods
        .take(block.size() as usize / 10)
        .map(|a| Held {
            ordinal: a.ordinal,
            record: a.attribute.to_attribute(),
            sequence: a.sequence,
            evidence: Vec::new(),
        })
        .collect();
    let handles = held.iter().filter_map(|h| h.record.handle.clone());
    let decrements: Vec<Edit> =
        handles.map(|id| Edit::Handle(id, HandleEdit::Decrement(block.cidr(), 1))).collect();
    if decrements.is_empty() {
        return None;
    }
    let mut edits = vec![Edit::Block(block.cidr(), BlockEdit::Release { held, cooldown: 0 })];
    edits.extend(decrements);
    Some(Step { reason: "leaked-address".into(), edits, evidence: Vec::new() })
}

/// Writes everything back as it was, as fast as it can be sent.
async fn floor(etcd: &Etcd, recorded: &Recorded) -> Result<Duration, Failed> {
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
    let client: Client = etcd.client().await?;
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
    Ok(begin.elapsed())
}
