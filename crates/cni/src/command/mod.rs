//! What the runtime can ask for, one file for each command.

pub(crate) mod add;
pub(crate) mod check;
pub(crate) mod del;
pub(crate) mod gc;
pub(crate) mod status;
