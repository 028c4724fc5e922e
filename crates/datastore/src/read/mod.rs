//! Reads a datastore: all of it, data around one address or handle, some objects again, names, or past states.

pub(crate) mod again {
    pub(crate) mod etcd;
    pub(crate) mod kubernetes;
}
pub(crate) mod around;
mod names;
pub(crate) mod namespaces;
mod past;
pub(crate) mod whole;
pub(crate) mod with_kubernetes;

pub use calipam_files::{Extent, Progress, ProgressFn};

pub use self::around::Lookup;
pub use self::names::NameKind;
pub use self::past::{Past, PastOf};
