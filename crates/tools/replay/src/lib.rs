//! Replays golden traces: recorded runs of real Calico's IPAM. A [`Trace`] says what the datastore held, what was asked,
//! what came back, what was written in which order, and what the datastore held after. [`replay`] does the same with
//! calipam's code on any [`Ground`] and tells each difference by step and field.
//!
//! The form of the files is described in `tests/traces/README.md`.

mod compare;
mod differences;
mod ground;
mod operation;
mod replay;
mod symbols;
mod trace;

pub use differences::{Known, known};
pub use ground::{Ground, MemoryGround, Output, Write};
pub use replay::{Difference, Outcome, replay};
pub use trace::{Step, Trace, TraceError};
