//! The clock of a replay.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use calipam_assign::{Entry, KnownState, ListsSince, Query, Store, StoreError, Swap};
use calipam_model::snapshot::Revision;
use jiff::{SignedDuration, Timestamp};

/// The time by which a clock of its own advances with each look at it, so that no two blocks get the same sequence
/// number.
const TICK: Duration = Duration::from_millis(1);

/// The time at which a clock of its own begins, in seconds since 1970: 1 May 2026, 10:00 UTC.
const BEGIN: i64 = 1_777_629_600;

/// The clock by which a trace is replayed.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The machine's clock, which the plugin and the drop-in go by.
    Machine { begun: Instant, slept: Duration },
    /// A clock of its own, in nanoseconds since 1970. It goes on only while the trace sleeps, so that a replay on a busy
    /// machine releases no address too late for the cooldown of another.
    Own(AtomicI64),
}

impl Clock {
    /// The machine's clock.
    pub(crate) fn of_machine() -> Self {
        Self::Machine {
            begun: Instant::now(),
            slept: Duration::ZERO,
        }
    }

    /// A clock of its own.
    pub(crate) fn own() -> Self {
        Self::Own(AtomicI64::new(BEGIN * 1_000_000_000))
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Machine { .. } => Timestamp::now(),
            Self::Own(nanoseconds) => {
                let now = nanoseconds.fetch_add(TICK.as_nanos() as i64, Ordering::Relaxed);
                Timestamp::from_nanosecond(now.into()).expect("the time is of this century")
            }
        }
    }

    /// Lets time pass, as it did in the recording.
    pub(crate) async fn sleep(&mut self, time: Duration) {
        match self {
            Self::Machine { slept, .. } => {
                tokio::time::sleep(time).await;
                *slept += time;
            }
            Self::Own(nanoseconds) => *nanoseconds.get_mut() += time.as_nanos() as i64,
        }
    }

    /// The time that the replay has taken for what took the recording hardly any. On a busy machine, times that were
    /// equal in the recording differ by as much.
    pub(crate) fn taken(&self) -> SignedDuration {
        let taken = match self {
            Self::Machine { begun, slept } => begun.elapsed().saturating_sub(*slept),
            Self::Own(_) => Duration::ZERO,
        };
        SignedDuration::try_from(taken).unwrap_or(SignedDuration::MAX)
    }
}

/// A datastore whose allocator goes by the clock of a replay.
pub(crate) struct Timed<'r, S> {
    pub(crate) store: &'r S,
    pub(crate) clock: &'r Clock,
}

impl<S: Store> Store for Timed<'_, S> {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        self.store.read(queries).await
    }

    async fn read_since(
        &self,
        queries: &[Query],
        known: Option<&KnownState>,
    ) -> Result<ListsSince, StoreError> {
        self.store.read_since(queries, known).await
    }

    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        self.store.swap(swap).await
    }
}
