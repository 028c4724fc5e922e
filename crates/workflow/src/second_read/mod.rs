//! Second reads of everything: `--confirm` for all findings, and `--grace` before an address is released.

mod confirm;
mod grace;
mod parts;

pub use self::confirm::check_and_confirm;
pub(crate) use self::grace::{Planned, plan_after_grace, warn_of_short_grace};
pub(crate) use self::parts::{Part, write_in_parts};
