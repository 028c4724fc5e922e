//! The journal of a run: one file of JSON lines, in which everything stands before it is written.
//!
//! An [`Intent`] is on disk before its write begins, an [`Outcome`] follows it. After a crash,
//! [`settle`] finds out what became of the intents that have no outcome.

mod append;
mod entry;
mod file;
mod place;
mod read;
mod settle;

pub(crate) use self::append::{append, journals, open_if_over};
pub use self::entry::{
    ChangeRecord, Entry, FORMAT, GuardRecord, Header, Intent, LockMark, Outcome, Value, Version,
};
pub use self::file::Journal;
pub use self::place::{default_directory, default_path};
pub use self::read::{JournalError, Recorded};
pub use self::settle::{Fate, settle, settle_left};
pub(crate) use self::settle::{fate, key_of};
