//! Nodes at work: calipam's allocator (`crates/assign`), which recorded runs of real Calico prove, gives pods addresses and
//! takes them back, claims blocks and gives them up, one write at a time, each a compare-and-swap, with pauses between
//! them and several workers at once. Tests read the datastore meanwhile, or repair it.
//!
//! | Operation | Order of the writes |
//! |---|---|
//! | CNI ADD | pod created → handle up → block → endpoint, or the pod's annotations and status |
//! | CNI DEL | endpoint gone, or the pod's annotations blank → block → handle down → pod gone or finished |
//! | claim a block | affinity `pending` → block → affinity `confirmed` |
//! | release one | affinity `pendingDeletion` → block gone → affinity gone |
//!
//! On Kubernetes every deletion takes two steps: a mark, which is the compare-and-swap, and the deletion by UID.
//!
//! The requests to the servers, the form of Kubernetes objects, pods and endpoints are written here, without calipam's
//! clients. A test that stops it in the middle finds the half-done states that a real crash leaves.
//!
//! To try repairs at the same time, let a [`Churn`] leak some addresses and run it in a thread of its own. Its [`Ledger`] says
//! which addresses each live pod was given, and [`Ledger::verify`] afterwards whether one was freed or given twice. It
//! looks at blocks and handles with the decoders of the tests.

mod activity;
mod churn;
mod etcd;
mod etcd_with_pods;
mod kubernetes;
#[cfg(test)]
mod kubernetes_tests;
mod ledger;
#[cfg(test)]
mod ledger_tests;
mod look;
mod pods;
mod records;
mod store;
mod worker;

pub use self::activity::Activity;
pub use self::churn::{Churn, ChurnLog};
pub use self::ledger::{Ledger, Tenant, Violation};
pub use self::store::Target;
