//! Reads several lists in parallel, in the order that a check needs.

use std::future::pending;
use std::sync::Arc;

use calipam_model::snapshot::Source;
use tokio::sync::oneshot;

use super::Plan;
use super::list::{Counter, Listed, Take, list_counted};
use crate::error::Result;
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds::Kind;
use crate::tasks;

#[derive(Clone)]
pub(crate) struct Lists {
    pub client: Arc<KubeClient>,
    pub counter: Arc<Counter>,
}

/// Reads kinds in parallel; returns their lists in order.
pub(crate) async fn lists<T: Take>(reader: &Lists, kinds: &[Kind]) -> Result<Vec<Listed<T>>> {
    let mut lists = Vec::new();
    for kind in kinds {
        let reader = reader.clone();
        let kind = kind.clone();
        lists.push(async move { list_counted(&reader.client, &kind, &reader.counter, None).await });
    }
    tasks::all(usize::MAX, lists).await
}

/// Reads the kinds of a plan; returns their lists in order. The first lists contain records and configuration. The
/// second lists contain the users of addresses, and must be newer than the first lists. A server prepares a list, at
/// one revision for all pages, before it sends the first byte. The second lists are therefore requested once all first
/// lists have begun to arrive, so the server can send first and second lists in parallel.
///
/// The second lists do not wait for the list of handles. In a large cluster, the server takes as long to prepare that
/// list as to send the list of pods. No finding compares handles with users of addresses, and handles may be older or
/// newer than blocks.
///
/// A first list that was restarted may be newer than the second lists, which are then read again.
pub(crate) async fn lists_in_order<T: Take>(reader: &Lists, plan: &Plan) -> Result<Vec<Listed<T>>> {
    let (first_kinds, second_kinds) = plan.kinds.split_at(plan.first_user);
    let mut reads = Vec::new();
    let mut begun_signals = Vec::new();
    for kind in first_kinds {
        let reader = reader.clone();
        let kind = kind.clone();
        let mut begun = None;
        if is_waited_for(&kind) {
            let (sender, receiver) = oneshot::channel();
            begun = Some(sender);
            begun_signals.push(receiver);
        }
        reads.push(async move { list_counted(&reader.client, &kind, &reader.counter, begun).await });
    }
    let read_first = tasks::all(usize::MAX, reads);

    let read_second = async {
        wait_for_all(begun_signals).await;
        lists(reader, second_kinds).await
    };

    let (mut all_lists, mut second_lists): (Vec<Listed<T>>, Vec<Listed<T>>) =
        tokio::try_join!(read_first, read_second)?;
    let is_restarted = first_kinds
        .iter()
        .zip(&all_lists)
        .any(|(kind, listed)| is_waited_for(kind) && listed.is_restarted);
    if is_restarted {
        let outdated = second_lists.iter().map(|listed| listed.items).sum();
        reader.counter.forget(outdated);
        second_lists = lists(reader, second_kinds).await?;
    }
    all_lists.append(&mut second_lists);
    Ok(all_lists)
}

/// Waits until all lists have begun to arrive. Never returns if one of them has failed before, since that list reports
/// its own error.
async fn wait_for_all(begun_signals: Vec<oneshot::Receiver<()>>) {
    for begun in begun_signals {
        if begun.await.is_err() {
            pending::<()>().await;
        }
    }
}

/// True if the users of addresses are listed after this kind.
fn is_waited_for(kind: &Kind) -> bool {
    kind.known.source != Source::Handles
}
