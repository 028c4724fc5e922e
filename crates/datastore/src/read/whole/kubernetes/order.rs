//! Several lists at the same time, and in the order that a check needs.

use std::future::pending;
use std::sync::Arc;

use calipam_model::snapshot::Source;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::list::{Counter, Listed, Take, list, list_and_tell};
use crate::client::kubernetes::KubeClient;
use crate::error::{Failure, Result};
use crate::objects::kinds::Kind;

/// Reads kinds at the same time; gives the lists in the order of the kinds.
///
/// # Errors
/// Where one of them cannot be read whole.
pub(crate) async fn lists<T: Take>(
    client: &Arc<KubeClient>,
    kinds: Vec<Kind>,
    counter: &Arc<Counter>,
) -> Result<Vec<Listed<T>>> {
    let mut running = Running::new(client, kinds.len());
    for kind in kinds {
        let (client, counter) = (Arc::clone(client), Arc::clone(counter));
        running.add(async move { list(&client, &kind, &counter).await });
    }
    running.finish().await
}

/// Reads kinds of which the second must be as they are later than the first. A server makes up its list before it
/// sends the first byte of it, at one revision for all pages. So the second lists are asked for when all of the first
/// have begun to arrive, not when they have ended: the server writes both at the same time.
///
/// Nothing waits for handles. Of a large cluster the server takes as long to make up their list as to write that of the pods; and
/// no finding compares them with what uses addresses, but with blocks, in whatever order.
///
/// A first list that had to be begun again may be as it was later than the second ones; those are then read again.
///
/// # Errors
/// Where one of them cannot be read whole.
pub(crate) async fn lists_in_order<T: Take>(
    client: &Arc<KubeClient>,
    first: Vec<Kind>,
    second: Vec<Kind>,
    counter: &Arc<Counter>,
) -> Result<(Vec<Listed<T>>, Vec<Listed<T>>)> {
    let mut running = Running::new(client, first.len());
    let mut begun = Vec::new();
    let is_waited_for: Vec<bool> = first.iter().map(|kind| kind.known.source != Source::Handles).collect();
    for (kind, is_waited_for) in first.into_iter().zip(&is_waited_for) {
        let (client, counter) = (Arc::clone(client), Arc::clone(counter));
        if *is_waited_for {
            let (tell, told) = oneshot::channel();
            begun.push(told);
            running.add(async move { list_and_tell(&client, &kind, &counter, tell).await });
        } else {
            running.add(async move { list(&client, &kind, &counter).await });
        }
    }

    let second_lists = async {
        for told in begun {
            if told.await.is_err() {
                // A list that ends before it begins has failed, which `running` tells.
                pending::<()>().await;
            }
        }
        lists(client, second.clone(), counter).await
    };

    let (first, mut second_lists): (Vec<Listed<T>>, Vec<Listed<T>>) =
        tokio::try_join!(running.finish(), second_lists)?;
    if first.iter().zip(is_waited_for).any(|(listed, waited_for)| waited_for && listed.begun_again) {
        counter.forget(second_lists.iter().map(|listed| listed.items).sum());
        second_lists = lists(client, second, counter).await?;
    }
    Ok((first, second_lists))
}

/// Lists under way. Dropping it ends them.
struct Running<T> {
    client: Arc<KubeClient>,
    tasks: JoinSet<(usize, Result<Listed<T>>)>,
    number: usize,
}

impl<T: Take> Running<T> {
    fn new(client: &Arc<KubeClient>, number: usize) -> Self {
        Self { client: Arc::clone(client), tasks: JoinSet::new(), number }
    }

    fn add(&mut self, list: impl Future<Output = Result<Listed<T>>> + Send + 'static) {
        let index = self.tasks.len();
        self.tasks.spawn(async move { (index, list.await) });
    }

    /// Waits for all of them.
    async fn finish(mut self) -> Result<Vec<Listed<T>>> {
        let mut lists: Vec<Listed<T>> = (0..self.number).map(|_| Listed::default()).collect();
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok((index, listed)) => lists[index] = listed?,
                Err(lost) => {
                    return Err(self.client.error("everything", Failure::Other(lost.to_string())));
                }
            }
        }
        Ok(lists)
    }
}
