//! Simulates working nodes. calipam's allocator (`crates/assign`), which is verified against recorded runs of real
//! Calico, assigns and releases addresses, and claims and releases blocks. Each write is a compare-and-swap. Several
//! workers run concurrently and pause between writes, while tests read the datastore or repair it.
//!
//! | Operation | Order of the writes |
//! |---|---|
//! | CNI ADD | pod created → handle up → block → endpoint, or the pod's annotations and status |
//! | CNI DEL | endpoint deleted, or the pod's annotations blank → block → handle down → pod deleted or finished |
//! | claim a block | affinity `pending` → block → affinity `confirmed` |
//! | release a block | affinity `pendingDeletion` → block deleted → affinity deleted |
//!
//! On Kubernetes, every deletion takes two steps: the object is marked with a compare-and-swap, and then deleted by
//! UID.
//!
//! calipam's datastore reads and writes blocks, affinities and handles; this module writes pods and endpoints. A test
//! that stops a churn in the middle finds the same half-done states as after a real crash.
//!
//! To test repairs at the same time, run a [`Churn`] that leaks some addresses in a separate thread. Its [`Ledger`]
//! records the addresses that each live pod was assigned. [`Ledger::verify`] finds addresses that were freed or
//! assigned twice.

mod churn;
mod ledger;
#[cfg(test)]
mod ledger_tests;
mod run;
mod scene;
mod store;
mod users;
#[cfg(test)]
mod users_tests;
mod worker;

pub use self::churn::{Activity, Churn, ChurnLog};
pub use self::ledger::{Ledger, Tenant, Violation};
pub use self::scene::Scene;
pub use self::store::Target;
