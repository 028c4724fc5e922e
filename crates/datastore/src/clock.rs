//! What time it is.

use std::cell::Cell;

use jiff::{SignedDuration, Timestamp};

thread_local! {
    static AHEAD: Cell<SignedDuration> = const { Cell::new(SignedDuration::ZERO) };
}

/// The time by the clock of the machine: of what is read, recorded in a journal, and compared with ages.
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    now.saturating_add(AHEAD.get()).unwrap_or(now)
}

/// Sets the clock ahead, or back, for what runs on this thread: a test of clocks that jump.
pub fn set_ahead(by: SignedDuration) {
    AHEAD.set(by);
}
