//! Time limits for an HTTP response. They also end a response that keeps arriving, but too slowly.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::budget::Budget;
use crate::error::Cause;

/// Minimum bytes per second from a working server.
const SLOWEST: u64 = 16 << 10;

/// The time limits of one response: one for each piece, and one for the whole response, which grows with the received
/// bytes.
#[derive(Debug)]
pub(crate) struct Pace {
    budget: Budget,
    /// The server in messages.
    server: String,
    limit: Duration,
    whole: Duration,
    begun: Option<Instant>,
    bytes: u64,
    /// True if the server is silent while there is nothing to report.
    is_watch: bool,
}

impl Pace {
    /// Creates the pace of a request to a server, whose answer has to arrive within `limit`.
    pub(crate) fn new(budget: &Budget, server: &str, limit: Duration) -> Self {
        let budget = budget.clone();
        let server = server.to_owned();
        Self {
            budget,
            server,
            limit,
            whole: limit,
            begun: None,
            bytes: 0,
            is_watch: false,
        }
    }

    /// Extends the limit for a response that the server ends after `time`.
    pub(crate) fn with_duration(self, time: Duration) -> Self {
        Self {
            whole: self.whole + time,
            is_watch: true,
            ..self
        }
    }

    /// Waits for the next piece. The time limit for the whole response starts with the first wait.
    pub(crate) async fn wait<T>(&mut self, piece: impl Future<Output = T>) -> Result<T, Cause> {
        let now = Instant::now();
        let whole = *self.begun.get_or_insert(now) + self.whole + Duration::from_secs(self.bytes / SLOWEST);
        let until = whole.min(now + self.limit);
        let late = || Cause::TimedOut(self.limit.as_secs());
        if self.is_watch {
            return timeout_at(until, piece).await.map_err(|_| late());
        }
        self.budget
            .wait(&self.server, until - now, piece)
            .await
            .map_err(|cause| match cause {
                Cause::TimedOut(_) => late(),
                cause => cause,
            })
    }

    /// Counts received bytes.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.budget.answered(&self.server);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn arriving_data_extends_the_time_limit() {
        let limit = Duration::from_millis(300);
        let budget = Budget::new(limit * 9);
        for (bytes, is_in_time) in [(1, false), (SLOWEST as usize, true)] {
            let mut pace = Pace::new(&budget, "server", limit);
            let mut last = Ok(());
            for _ in 0..4 {
                last = pace.wait(sleep(limit / 3)).await;
                pace.count(bytes);
            }
            assert_eq!(last.is_ok(), is_in_time, "{bytes}");
        }
        let mut watch = Pace::new(&budget, "server", limit).with_duration(limit);
        for _ in 0..4 {
            assert_eq!(watch.wait(sleep(limit / 3)).await, Ok(()));
        }
        let too_long = sleep(limit * 2);
        assert!(watch.wait(too_long).await.is_err(), "a piece has its limit, too");
    }
}
