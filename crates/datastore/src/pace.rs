//! Time limits for an HTTP response. They also end a response that keeps arriving, but too slowly.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::budget::Budget;
use crate::error::Cause;

/// Minimum bytes per second from a working server.
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;

/// The time limits of one response: one for each piece, and one for the whole response, which grows with the received
/// bytes.
#[derive(Debug)]
pub(crate) struct Pace {
    budget: Budget,
    /// The server in messages.
    server: String,
    /// The limit for each piece.
    limit: Duration,
    /// The limit for the whole response, without the time that the received bytes add.
    whole_limit: Duration,
    started: Option<Instant>,
    received_bytes: u64,
    /// True if the server is silent while there is nothing to report.
    is_watch: bool,
}

impl Pace {
    /// Creates the pace of a request to a server, whose answer has to arrive within `limit`.
    pub(crate) fn new(budget: &Budget, server: &str, limit: Duration) -> Self {
        Self {
            budget: budget.clone(),
            server: server.to_owned(),
            limit,
            whole_limit: limit,
            started: None,
            received_bytes: 0,
            is_watch: false,
        }
    }

    /// Extends the limit for a response that the server ends after `time`.
    pub(crate) fn with_duration(self, time: Duration) -> Self {
        Self {
            whole_limit: self.whole_limit + time,
            is_watch: true,
            ..self
        }
    }

    /// Waits for the next piece. The time limit for the whole response starts with the first wait.
    pub(crate) async fn wait<T>(&mut self, piece: impl Future<Output = T>) -> Result<T, Cause> {
        let now = Instant::now();
        let started = *self.started.get_or_insert(now);
        let time_for_bytes = Duration::from_secs(self.received_bytes / MIN_BYTES_PER_SECOND);
        let end_of_response = started + self.whole_limit + time_for_bytes;
        let end_of_piece = now + self.limit;
        let end = end_of_piece.min(end_of_response);

        let timed_out = Cause::TimedOut(self.limit.as_secs());
        if self.is_watch {
            // The silence of a watch does not use up the budget.
            return timeout_at(end, piece).await.map_err(|_| timed_out);
        }
        match self.budget.wait(&self.server, end - now, piece).await {
            Err(Cause::TimedOut(_)) => Err(timed_out),
            result => result,
        }
    }

    /// Counts received bytes.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.received_bytes += bytes as u64;
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
        for (bytes, is_in_time) in [(1, false), (MIN_BYTES_PER_SECOND as usize, true)] {
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
