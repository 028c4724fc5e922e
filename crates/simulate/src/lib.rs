//! What if: Calico's allocator against a simulated datastore, with a virtual clock.
//!
//! A simulation is a [`Scenario`] and gives a [`Run`]: the real allocator (`calipam-assign`) makes every request of every
//! pod's ADD and DEL, and a model of the datastore says when each is done. One seed gives one run, on any machine. The
//! questions of [`answer`] are experiments of many runs.
//!
//! "Facts" in the documentation of this crate means `docs/calico-ipam.md` of the project.

pub mod answer;
mod cluster;
mod datastore;
mod engine;
mod random;
mod scenario;
mod time;

pub use self::datastore::{Costs, CostsError, Latency};
pub use self::scenario::{
    Event, Families, NotARate, Planned, PoolSpec, Rate, Scenario, ScenarioError, Start, StartPod,
};
pub use self::time::{Micros, NotADuration};
