//! Searches through the choices of a scenario.

mod exhaustive;
mod random;
mod shrink;

pub use self::exhaustive::{Explored, exhaustive};
pub use self::random::random;
pub use self::shrink::{replay, shrink};
pub use crate::run::Violation;
