//! When something is read a second time before it counts: by `--settle` what a half-done operation of Calico could explain, by
//! `--confirm` everything, and by `--grace` everything before an address is released.

mod confirm;
mod grace;
pub(crate) mod settle;

pub use self::confirm::check_and_confirm;
pub(crate) use self::grace::{Planned, plan_after_grace, seen_once, warn_of_short_grace};
