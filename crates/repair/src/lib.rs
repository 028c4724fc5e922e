//! Carries out repairs. Every write is recorded in a [`journal`] before it happens, is made by compare-and-swap under
//! guards, and can be undone.
//!
//! "Facts" in the documentation of this crate means `docs/calico-ipam.md` of the project.

mod engine;
mod error;
mod interrupt;
pub mod journal;
mod lock;
mod session;
mod stale_lock;
mod step;
mod undo;

pub use self::engine::{Conflict, Event, EventFn, Execution};
pub use self::error::{LockAction, LockFailure, RepairError, Result};
pub use self::interrupt::Interrupt;
pub use self::lock::set_lock;
pub use self::session::{Options, execute};
pub use self::stale_lock::{LockState, StaleLock, stale_lock, stale_locks};
pub use self::undo::{LeftVersion, NotUndone, UndoObject, UndoPlan, UndoStep, undo};
