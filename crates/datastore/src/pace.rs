//! Time limits for an HTTP response. They also end a response that keeps arriving, but too slowly.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::error::Cause;

/// Minimum bytes per second from a working server.
const SLOWEST: u64 = 16 << 10;

/// The time limits of one response: one for each piece, and one for the whole response, which grows with the received
/// bytes.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: Duration,
    whole: Duration,
    begun: Option<Instant>,
    bytes: u64,
}

impl Pace {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, whole: limit, begun: None, bytes: 0 }
    }

    /// Extends the limit for a response that the server ends after `time`.
    pub(crate) fn with_duration(self, time: Duration) -> Self {
        Self { whole: self.whole + time, ..self }
    }

    /// Waits for the next piece. The time limit for the whole response starts with the first wait.
    pub(crate) async fn wait<T>(&mut self, piece: impl Future<Output = T>) -> Result<T, Cause> {
        let now = Instant::now();
        let whole = *self.begun.get_or_insert(now) + self.whole + Duration::from_secs(self.bytes / SLOWEST);
        let late = |_| Cause::TimedOut(self.limit.as_secs());
        timeout_at(whole.min(now + self.limit), piece).await.map_err(late)
    }

    pub(crate) fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn arriving_data_extends_the_time_limit() {
        let limit = Duration::from_millis(300);
        for (bytes, is_in_time) in [(1, false), (SLOWEST as usize, true)] {
            let mut pace = Pace::new(limit);
            let mut last = Ok(());
            for _ in 0..4 {
                last = pace.wait(sleep(limit / 3)).await;
                pace.count(bytes);
            }
            assert_eq!(last.is_ok(), is_in_time, "{bytes}");
        }
        let mut watch = Pace::new(limit).with_duration(limit);
        for _ in 0..4 {
            assert_eq!(watch.wait(sleep(limit / 3)).await, Ok(()));
        }
        let too_long = sleep(limit * 2);
        assert!(watch.wait(too_long).await.is_err(), "a piece has its limit, too");
    }
}
