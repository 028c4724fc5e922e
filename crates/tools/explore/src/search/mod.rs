//! Searches through the choices of a scenario.

mod exhaustive;
mod random;
mod shrink;

use std::fmt;

pub use self::exhaustive::{Explored, exhaustive};
pub use self::random::random;
pub use self::shrink::{replay, shrink};
use crate::run::Choice;

/// A schedule that ends with a violation.
#[derive(Clone, Debug)]
pub struct Violation {
    pub schedule: Vec<Choice>,
    /// A description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} steps: {}", self.schedule.len(), self.what)
    }
}
