//! The future type for calls into this crate, and functions that run blocking work and parallel requests.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::pin::Pin;

use tokio::task::JoinSet;

use crate::error::Result;

/// The future of a call into this crate. It is boxed, because an `async fn` is compiled again in each crate that awaits
/// it, together with all clients below it.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs slow work on a separate thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panicked) => resume_unwind(panicked.into_panic()),
    }
}

/// Runs futures as tasks, at most `max_running` at a time, and returns their results in order, or the first error.
/// Panics if one of them does.
pub(crate) fn all<T, E, F>(
    max_running: usize,
    futures: impl IntoIterator<Item = F>,
) -> impl Future<Output = Result<Vec<T>, E>> + Send
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    // The iterator need not be Send, so it must not be part of the future.
    let futures: Vec<F> = futures.into_iter().collect();
    async move {
        let mut waiting = futures.into_iter().enumerate();
        let mut running = JoinSet::new();
        // The futures end in any order. The map puts their results back into that of the futures.
        let mut results = BTreeMap::new();
        loop {
            while running.len() < max_running
                && let Some((index, future)) = waiting.next()
            {
                running.spawn(async move { (index, future.await) });
            }
            match running.join_next().await {
                Some(Ok((index, result))) => {
                    results.insert(index, result?);
                }
                Some(Err(panicked)) => resume_unwind(panicked.into_panic()),
                None => return Ok(results.into_values().collect()),
            }
        }
    }
}
