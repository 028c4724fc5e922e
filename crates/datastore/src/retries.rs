//! Retries of reads after temporary failures.

use std::time::Duration;

use crate::error::{Error, Result};

/// The pauses before an object is read again.
pub(crate) const READS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1_500)];

/// The pauses before an allocator reads again. They are short, because the container runtime waits.
pub(crate) const ALLOCATIONS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// The remaining retries of a read.
pub(crate) struct Retries(std::slice::Iter<'static, Duration>);

impl Retries {
    pub(crate) fn new(pauses: &'static [Duration]) -> Self {
        Self(pauses.iter())
    }

    /// Waits before a retry. Returns the error if it is permanent, or after the last retry.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<()> {
        let Some(pause) = self.0.next().filter(|_| error.may_retry()) else { return Err(error) };
        tracing::warn!("{error}; trying again");
        tokio::time::sleep(*pause).await;
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
