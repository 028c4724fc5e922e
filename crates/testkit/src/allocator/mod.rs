//! A stand-in for Calico's allocator: it changes an etcd one key at a time, in Calico's order (facts 3.14), each write a
//! compare-and-swap, with pauses between them and several workers at once. Tests read the datastore meanwhile.
//!
//! | Operation | Order of the writes |
//! |---|---|
//! | CNI ADD | handle up → block → endpoint |
//! | CNI DEL | endpoint gone → block → handle down |
//! | claim a block | affinity `pending` → block → affinity `confirmed` |
//! | release one | affinity `pendingDeletion` → block gone → affinity gone |
//!
//! It uses no writer of calipam. Whoever stops it in the middle finds the half-done states that a real crash leaves.

mod affinity;
mod churn;
mod handle;
mod pod;
mod store;

pub use self::churn::{Churn, ChurnLog};
