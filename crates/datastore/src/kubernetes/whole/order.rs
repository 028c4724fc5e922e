//! Reads several lists in parallel, in the order that a check needs.

use std::future::pending;
use std::sync::Arc;

use calipam_model::snapshot::Source;
use tokio::sync::oneshot;

use super::Plan;
use super::list::{Counter, Listed, Take, list_from};
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
    let list = |kind: &Kind| {
        let reader = reader.clone();
        let kind = kind.clone();
        async move { list_from(&reader.client, &kind, &reader.counter, None).await }
    };
    tasks::all(usize::MAX, kinds.iter().map(list)).await
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
    let (first, second) = plan.kinds.split_at(plan.users);
    let mut lists_of_first = Vec::new();
    let mut waited_for = Vec::new();
    let is_waited_for: Vec<bool> = first
        .iter()
        .map(|kind| kind.known.source != Source::Handles)
        .collect();
    for (kind, is_waited_for) in first.iter().zip(&is_waited_for) {
        let reader = reader.clone();
        let kind = kind.clone();
        let begun = is_waited_for.then(|| {
            let (sender, begun) = oneshot::channel();
            waited_for.push(begun);
            sender
        });
        lists_of_first.push(async move { list_from(&reader.client, &kind, &reader.counter, begun).await });
    }

    let second_lists = async {
        for begun in waited_for {
            if begun.await.is_err() {
                // A list that ends before it begins has failed, and reports its own error.
                pending::<()>().await;
            }
        }
        lists(reader, second).await
    };

    let (mut lists_of_plan, mut second_lists): (Vec<Listed<T>>, Vec<Listed<T>>) =
        tokio::try_join!(tasks::all(usize::MAX, lists_of_first), second_lists)?;
    let mut has_begun_again = false;
    for (listed, is_waited_for) in lists_of_plan.iter().zip(is_waited_for) {
        has_begun_again |= is_waited_for && listed.begun_again;
    }
    if has_begun_again {
        reader
            .counter
            .forget(second_lists.iter().map(|listed| listed.items).sum());
        second_lists = lists(reader, second).await?;
    }
    lists_of_plan.append(&mut second_lists);
    Ok(lists_of_plan)
}
