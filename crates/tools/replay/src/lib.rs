//! Replays golden traces: recorded runs of real Calico's IPAM. A [`Trace`] has the datastore before, the operations
//! with their results and writes in order, and the datastore after each. [`replay`] runs the same operations with
//! calipam's code in any [`Environment`] and reports each difference by step and field.
//!
//! The form of the files is described in `tests/traces/README.md`.

mod compare;
mod differences;
mod environment;
mod operation;
mod replay;
mod symbols;
mod trace;

pub use differences::{KnownDifference, known};
pub use environment::{Environment, MemoryEnvironment, Output, Write};
pub use replay::{Difference, Outcome, replay};
pub use trace::{Step, Trace, TraceError, traces};
