//! Retries after temporary failures, with a pause before each.

use std::time::Duration;

use crate::error::{Error, Result, read_snapshot};

/// The pauses before an object is read again.
pub(crate) const READS: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1_500),
];

/// The pauses before an allocator reads again. They are short, because the container runtime waits.
pub(crate) const ALLOCATIONS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// The pauses before a read at one revision starts over, because the revision was compacted or the connection broke.
pub(crate) const WHOLE_READS: [Duration; 3] = [Duration::ZERO; 3];

/// The remaining retries of a request.
pub struct Retries(std::slice::Iter<'static, Duration>);

impl Retries {
    /// Allows one retry after each pause.
    pub fn new(pauses: &'static [Duration]) -> Self {
        Self(pauses.iter())
    }

    /// Returns true if a retry is left.
    pub fn is_left(&self) -> bool {
        !self.0.as_slice().is_empty()
    }

    /// Waits before the next retry. Returns false, without a pause, if none is left.
    pub async fn pause(&mut self) -> bool {
        let Some(pause) = self.0.next() else { return false };
        tokio::time::sleep(*pause).await;
        true
    }

    /// Waits before a retry. Returns the error if it is permanent, or after the last retry.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<()> {
        if !error.may_retry() || !self.is_left() {
            return Err(error);
        }
        tracing::warn!("{error}; trying again");
        self.pause().await;
        Ok(())
    }
}

/// Reads, and retries temporary failures after a pause.
pub(crate) async fn retried<T, F: Future<Output = Result<T>>>(mut read: impl FnMut() -> F) -> Result<T> {
    let mut retries = Retries::new(&READS);
    loop {
        match read().await {
            Err(error) => retries.wait(error).await?,
            found => return found,
        }
    }
}

/// The error of a read whose revision was compacted in each attempt.
pub(crate) fn always_compacted(endpoint: &str) -> Error {
    let attempts = WHOLE_READS.len() + 1;
    let message =
        format!("{endpoint}: the revision that was being read was compacted, {attempts} times in a row");
    Error::other(
        message,
        read_snapshot("something compacts this etcd every few seconds; "),
    )
}
