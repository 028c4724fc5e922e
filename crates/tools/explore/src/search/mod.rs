//! Ways through the choices of a scenario.

mod exhaustive;
mod random;
mod shrink;

use std::fmt;

pub use self::exhaustive::{Explored, exhaustive};
pub use self::random::random;
pub use self::shrink::{replay, shrink};
use crate::run::Choice;

/// A schedule at whose end something does not hold.
#[derive(Clone, Debug)]
pub struct Found {
    pub schedule: Vec<Choice>,
    /// What does not hold.
    pub what: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} steps: {}", self.schedule.len(), self.what)
    }
}
