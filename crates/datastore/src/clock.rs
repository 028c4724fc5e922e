//! The current time, which tests can set ahead or back.

use std::cell::Cell;

use jiff::{SignedDuration, Timestamp};

thread_local! {
    static AHEAD: Cell<SignedDuration> = const { Cell::new(SignedDuration::ZERO) };
}

/// The current time by the machine's clock. It dates reads and journals, and ages are computed from it.
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    now.saturating_add(AHEAD.get()).unwrap_or(now)
}

/// Sets the clock of this thread ahead or back, for tests of clocks that jump.
pub fn set_ahead(by: SignedDuration) {
    AHEAD.set(by);
}
