//! Requests side by side.

use std::collections::BTreeMap;

use tokio::task::{JoinError, JoinSet};

/// Runs each future as a task, so many at a time, and gives their results in the order of the futures, or the first error.
/// `lost` makes the error of a task that ended without a result.
pub(crate) async fn all<T, E, F>(
    most: usize,
    futures: Vec<F>,
    lost: impl Fn(JoinError) -> E,
) -> std::result::Result<Vec<T>, E>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = std::result::Result<T, E>> + Send + 'static,
{
    let mut waiting = futures.into_iter().enumerate();
    let (mut running, mut results) = (JoinSet::new(), BTreeMap::new());
    loop {
        while running.len() < most
            && let Some((index, future)) = waiting.next()
        {
            running.spawn(async move { (index, future.await) });
        }
        match running.join_next().await {
            None => return Ok(results.into_values().collect()),
            Some(Ok((index, result))) => {
                results.insert(index, result?);
            }
            Some(Err(error)) => return Err(lost(error)),
        }
    }
}
