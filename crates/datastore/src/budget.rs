//! The time that a run spends on a server that does not answer. Every request, try, resend and reconnection draws on
//! the same budget, and every answer renews it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use calipam_model::parallel::lock;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::error::Cause;

/// The target of the events that tell a person which server does not answer.
pub const SILENCE: &str = "calipam::silence";

/// The time without an answer after which a person is told.
const TOLD_AFTER: Duration = Duration::from_secs(5);
/// The time that each further request gets after the budget is used up: the server may be back.
const MIN_TIME: Duration = Duration::from_secs(1);
/// The time that a server has to answer after an interrupt.
const TIME_AFTER_INTERRUPT: Duration = Duration::from_secs(1);

/// The state of a run, which determines how long it waits for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has been written yet.
    Reading,
    /// Writes have begun. The run waits twice as long, since it would end halfway.
    Writing,
    /// A person or a signal has asked the run to end.
    Interrupted,
}

/// The budget of one server, shared by all connections to it.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The budget before the first write.
    time: Duration,
    phase: watch::Sender<Phase>,
    unanswered: Mutex<Unanswered>,
}

/// The time since the last answer, as far as requests have waited for one.
#[derive(Debug)]
struct Unanswered {
    /// The number of requests that wait now.
    waiting: usize,
    /// The start of the wait, if there is one now.
    since: Instant,
    /// The earlier waits without an answer.
    earlier: Duration,
    is_told: bool,
    /// True while the first connection is made, which has a short limit of its own.
    is_connecting: bool,
}

impl Unanswered {
    /// Returns the time up to `now` in which requests waited and no answer came.
    fn time(&self, now: Instant) -> Duration {
        let current = if self.waiting > 0 {
            now.duration_since(self.since)
        } else {
            Duration::ZERO
        };
        self.earlier + current
    }
}

impl Budget {
    /// Creates a budget of the given time without an answer. The time begins with the first request that waits.
    pub(crate) fn new(time: Duration) -> Self {
        let unanswered = Unanswered {
            waiting: 0,
            since: Instant::now(),
            earlier: Duration::ZERO,
            is_told: false,
            is_connecting: false,
        };
        let phase = watch::Sender::new(Phase::Reading);
        let shared = Shared {
            time,
            phase,
            unanswered: Mutex::new(unanswered),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.shared.phase.send_replace(phase);
    }

    /// Like [`Self::new`]; nobody is told before the budget is [connected](Self::connected).
    pub(crate) fn connecting(time: Duration) -> Self {
        let budget = Self::new(time);
        lock(&budget.shared.unanswered).is_connecting = true;
        budget
    }

    pub(crate) fn connected(&self) {
        lock(&self.shared.unanswered).is_connecting = false;
    }

    /// Waits for `answer`, until `limit` or the budget ends. Tells a person if `server` does not answer for a while.
    /// Does not renew the budget: the caller calls [`Self::answered`] if the server really answered.
    pub(crate) async fn wait<T>(
        &self,
        server: &str,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, Cause> {
        let started = Instant::now();
        let _waiting = Waiting::begin(self, started);
        let mut phase = self.shared.phase.subscribe();
        let mut answer = std::pin::pin!(answer);
        loop {
            let next_check = self.next_check(server, started, limit)?;
            tokio::select! {
                biased;
                answer = &mut answer => return Ok(answer),
                () = sleep_until(next_check) => {}
                // The sender is never dropped.
                _ = phase.changed() => {}
            }
        }
    }

    /// Returns the time of the next check of a wait that has started at `started`, or the reason to end the wait now.
    /// Warns once of a server that does not answer for a long time.
    fn next_check(&self, server: &str, started: Instant, limit: Duration) -> Result<Instant, Cause> {
        let phase = *self.shared.phase.borrow();
        let budget = self.time_in(phase);
        let mut unanswered = lock(&self.shared.unanswered);
        let now = Instant::now();
        let silent_for = unanswered.time(now);

        let min_time = if phase == Phase::Interrupted {
            Duration::ZERO
        } else {
            MIN_TIME
        };
        let end_of_budget = (now + budget.saturating_sub(silent_for)).max(started + min_time);
        if end_of_budget <= now {
            return Err(Cause::GivenUp(budget.as_secs().max(1)));
        }
        let end_of_request = started + limit;
        if end_of_request <= now {
            // The server may not have answered earlier requests either.
            return Err(Cause::TimedOut(limit.max(silent_for).as_secs()));
        }

        let end = end_of_budget.min(end_of_request);
        if unanswered.is_told || unanswered.is_connecting {
            return Ok(end);
        }
        if silent_for < TOLD_AFTER {
            return Ok(end.min(now + (TOLD_AFTER - silent_for)));
        }
        unanswered.is_told = true;
        let silent_seconds = silent_for.as_secs();
        let seconds = budget.as_secs();
        tracing::warn!(target: SILENCE, "no answer from {server} for {silent_seconds} s; waiting for {seconds} s in all");
        Ok(end)
    }

    /// Renews the budget after an answer.
    pub(crate) fn answered(&self, server: &str) {
        let mut unanswered = lock(&self.shared.unanswered);
        unanswered.since = Instant::now();
        unanswered.earlier = Duration::ZERO;
        let was_told = unanswered.is_told;
        unanswered.is_told = false;
        if was_told {
            tracing::warn!(target: SILENCE, "{server} answers again");
        }
    }

    /// True if no request is worth a new connection.
    pub(crate) fn is_used_up(&self) -> bool {
        let budget = self.time_in(*self.shared.phase.borrow());
        lock(&self.shared.unanswered).time(Instant::now()) >= budget
    }

    /// The failure once the budget is used up.
    pub(crate) fn used_up(&self) -> Cause {
        let budget = self.time_in(*self.shared.phase.borrow());
        Cause::GivenUp(budget.as_secs().max(1))
    }

    /// Pauses before a retry. An interrupt ends the pause; returns false in that case.
    pub(crate) async fn pause(&self, time: Duration) -> bool {
        let mut phase = self.shared.phase.subscribe();
        tokio::select! {
            () = sleep(time) => true,
            _ = phase.wait_for(|phase| *phase == Phase::Interrupted) => false,
        }
    }

    /// The time without an answer after which a run in this phase gives up.
    fn time_in(&self, phase: Phase) -> Duration {
        match phase {
            Phase::Reading => self.shared.time,
            Phase::Writing => self.shared.time * 2,
            Phase::Interrupted => TIME_AFTER_INTERRUPT,
        }
    }
}

/// A request that waits for an answer. It is counted until this is dropped.
struct Waiting<'b> {
    budget: &'b Budget,
}

impl<'b> Waiting<'b> {
    /// Begins the wait of a request for its answer. If no other request waits, the time without an answer begins `now`.
    fn begin(budget: &'b Budget, now: Instant) -> Self {
        let mut unanswered = lock(&budget.shared.unanswered);
        if unanswered.waiting == 0 {
            unanswered.since = now;
        }
        unanswered.waiting += 1;
        Self { budget }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut unanswered = lock(&self.budget.shared.unanswered);
        if unanswered.waiting == 1 {
            unanswered.earlier = unanswered.time(Instant::now());
        }
        unanswered.waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tracing::subscriber::DefaultGuard;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Collects the warnings of this thread. Each test that waits does: a warning that is reached for the first time on
    /// a thread that prints nothing can be turned off for all threads.
    fn print_to(told: &Arc<Mutex<Vec<String>>>) -> DefaultGuard {
        let told = Arc::clone(told);
        tracing::subscriber::set_default(crate::log::Printer {
            level: tracing::Level::WARN.into(),
            shown: |metadata| metadata.target() == SILENCE,
            print: move |_: &tracing::Metadata<'_>, text: &str| lock(&told).push(text.to_owned()),
        })
    }

    async fn hang(budget: &Budget, limit: Duration) -> Cause {
        budget.wait("server", limit, pending::<()>()).await.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn tries_share_the_budget_and_an_answer_renews_it() {
        let _printing = print_to(&Arc::default());
        let budget = Budget::new(MINUTE);
        let begun = Instant::now();
        for silent_seconds in [20, 40] {
            assert_eq!(hang(&budget, MINUTE / 3).await, Cause::TimedOut(silent_seconds));
            assert!(!budget.is_used_up());
        }
        assert_eq!(hang(&budget, MINUTE).await, Cause::GivenUp(60));
        assert!(budget.is_used_up() && begun.elapsed().as_secs() == 60);
        // The server may be back: each further request gets a moment.
        assert_eq!(hang(&budget, MINUTE).await, Cause::GivenUp(60));
        assert_eq!(begun.elapsed().as_secs(), 61);
        assert_eq!(budget.wait("server", MINUTE, async { 7 }).await, Ok(7));
        budget.answered("server");
        assert!(!budget.is_used_up());

        budget.enter(Phase::Writing);
        let begun = Instant::now();
        let both = tokio::join!(hang(&budget, MINUTE * 9), hang(&budget, MINUTE * 9));
        assert_eq!(both, (Cause::GivenUp(120), Cause::GivenUp(120)));
        assert_eq!(begun.elapsed().as_secs(), 120);
    }

    /// Waiting requests are told apart from a server that answers others.
    #[tokio::test(start_paused = true)]
    async fn an_answer_to_another_request_extends_a_wait() {
        let _printing = print_to(&Arc::default());
        let budget = Budget::new(MINUTE);
        let begun = Instant::now();
        let answering = async {
            sleep(MINUTE / 2).await;
            budget.answered("server");
        };
        let (cause, ()) = tokio::join!(hang(&budget, MINUTE * 9), answering);
        assert_eq!((cause, begun.elapsed().as_secs()), (Cause::GivenUp(60), 90));
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupt_ends_waits_within_a_second() {
        let _printing = print_to(&Arc::default());
        let budget = Budget::new(MINUTE);
        let interrupt = |after: u64| {
            let budget = budget.clone();
            async move {
                sleep(Duration::from_secs(after)).await;
                budget.enter(Phase::Interrupted);
                Instant::now()
            }
        };
        let (cause, at) = tokio::join!(hang(&budget, MINUTE), interrupt(10));
        assert_eq!((cause, at.elapsed()), (Cause::GivenUp(1), Duration::ZERO));
        // No request of a run that should end waits for this server again.
        assert_eq!(hang(&budget, MINUTE).await, Cause::GivenUp(1));
        assert!(!budget.pause(MINUTE).await);
        assert!(at.elapsed().is_zero());

        // A server that answered just before has a second.
        budget.answered("server");
        assert_eq!(hang(&budget, MINUTE).await, Cause::GivenUp(1));
        assert_eq!(at.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_person_is_told_once_per_silence() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let _printing = print_to(&told);

        let budget = Budget::connecting(MINUTE);
        hang(&budget, TOLD_AFTER).await;
        hang(&budget, TOLD_AFTER).await;
        assert!(lock(&told).is_empty());
        budget.connected();
        budget.answered("server");
        tokio::join!(hang(&budget, TOLD_AFTER * 2), hang(&budget, TOLD_AFTER * 2));
        hang(&budget, MINUTE).await;
        assert_eq!(
            *lock(&told),
            ["no answer from server for 5 s; waiting for 60 s in all"]
        );
        budget.answered("server");
        assert_eq!(lock(&told).last().unwrap(), "server answers again");
        hang(&budget, MINUTE).await;
        assert_eq!(lock(&told).len(), 3);
    }
}
