//! Second reads: `--settle` for findings that a half-done Calico operation could explain, `--confirm` for all findings,
//! and `--grace` before an address is released.

mod confirm;
mod grace;
pub(crate) mod settle;

pub use self::confirm::check_and_confirm;
pub(crate) use self::grace::{Planned, plan_after_grace, seen_once, warn_of_short_grace};
