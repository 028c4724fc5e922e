//! Explores calipam's own code in small worlds: every order of requests, with lost answers, late writes and killed
//! processes.
//!
//! Actors run the code of the plugin and the allocator on a datastore ([`world`]). Each request waits until the
//! explorer decides on it. A [`run`] is one execution. [`search`] follows all executions, or many random ones, and
//! checks the invariants at each step. `docs/safety.md` describes the promises and the extent of the exploration.

pub mod actor;
mod calico;
mod invariants;
mod objects;
pub mod run;
pub mod scenario;
pub mod script;
pub mod search;
pub mod truth;
pub mod world;
