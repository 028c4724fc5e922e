//! Explores what calipam's own code does in small worlds: every order of requests, lost answers, late writes and kills.
//!
//! Actors run the code of the plugin and the allocator on a datastore ([`world`]) whose every request waits until the explorer
//! says what becomes of it. A [`run`] is one execution; [`search`] goes through all of them, or through many by a seed, and
//! asks at each step what has to hold. `docs/safety.md` says what is promised and what was explored.

pub mod actor;
mod calico;
mod invariants;
pub mod run;
pub mod scenario;
pub mod script;
pub mod search;
pub mod truth;
pub mod world;
