//! The journal of a run: one file of JSON lines, in which everything stands before it is written.
//!
//! An [`Intent`] is on disk before its write begins, an [`Outcome`] follows it. After a crash,
//! [`settle`] finds out what became of the intents that have no outcome.

mod entry;
mod file;
mod place;
mod read;
mod settle;

pub use self::entry::{
    ChangeRecord, Entry, FORMAT, GuardRecord, Header, Intent, LockMark, Outcome, Value, Version,
};
pub use self::file::Journal;
pub use self::place::{default_directory, default_path};
pub use self::read::{JournalError, Recorded};
pub use self::settle::{Fate, settle};
pub(crate) use self::settle::{fate, key_of};
