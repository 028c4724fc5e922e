//! Replays golden traces: recorded runs of real Calico's IPAM. A [`Trace`] contains the initial datastore, the
//! operations in order, each with its result and its writes, and the datastore after each operation. [`replay`] runs
//! the same operations with calipam's code in an [`Environment`] and reports each difference by step and field.
//!
//! The form of the files is described in `tests/traces/README.md`.

mod clock;
mod compare;
mod environment;
mod operation;
mod replay;
mod symbols;
mod trace;

pub use compare::{Difference, KnownDifference, known};
pub use environment::Environment;
pub use replay::{Outcome, replay};
pub use trace::{Step, Trace, traces};
