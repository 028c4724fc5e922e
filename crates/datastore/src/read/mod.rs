//! The subjects of reads: an address or handle, names with a given prefix, and past states.

pub(crate) mod around;
pub(crate) mod names;
mod past;

pub use calipam_files::{Extent, Progress, ProgressFn, quiet};

pub use self::around::Lookup;
pub use self::names::NameKind;
pub use self::past::{Past, PastSubject};
