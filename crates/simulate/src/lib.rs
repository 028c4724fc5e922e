//! Simulations of Calico's allocator on a simulated datastore, with a virtual clock.
//!
//! Simulating a [`Scenario`] produces a [`Run`](answer::Run). The real allocator (`calipam-assign`) sends every request
//! of every pod's ADD and DEL; a model of the datastore decides when each request completes. The same seed gives the
//! same run on any machine. The functions in [`answer`] are experiments with one or more runs.
//!
//! "Facts" in the documentation of this crate means `docs/calico-ipam.md` of the project.

pub mod answer;
mod cluster;
mod datastore;
mod engine;
mod error;
mod random;
mod scenario;
mod time;

pub use self::datastore::{Costs, Latency};
pub use self::error::ScenarioError;
pub use self::scenario::{Event, Families, NotARate, Planned, PoolSpec, Rate, Scenario, Start, StartPod};
pub use self::time::{Micros, NotADuration};
