//! The journal of a run: one compressed file of JSON lines that records every write before it happens.
//!
//! An [`Intent`] is on disk before its write begins, and an [`Outcome`] follows it. After a crash, [`resolve`]
//! determines the outcomes that are missing.

mod append;
mod default_path;
mod disk;
mod entry;
mod error;
mod file;
mod frames;
mod line;
mod list;
mod read;
mod resolve;

pub use self::append::headers;
pub(crate) use self::append::{append, journals, marks_if_over};
pub use self::default_path::{VARIABLES, check_place, default_directory, default_path};
pub use self::disk::{Disk, JournalFile};
pub(crate) use self::entry::same_value;
pub use self::entry::{
    ChangeRecord, Entry, FORMAT, GuardRecord, Header, Intent, LockMark, Outcome, Value, Version,
};
pub use self::error::JournalError;
pub use self::file::Journal;
pub use self::list::{JournalState, Listed, later, list, undo_command, unfinished_runs, unreadable};
pub use self::read::Recorded;
pub use self::resolve::{IntentOutcome, Resolved, resolve, resolve_killed};
pub(crate) use self::resolve::{compared_by_value, intent_outcome, key_of};
