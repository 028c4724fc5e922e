//! What to do next, in the words of this program: only this crate names commands and flags. Libraries give typed causes
//! and remedies.

pub mod datastore;
