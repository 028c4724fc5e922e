//! From the steps of a plan to tasks of the engine.

mod parts;
mod split;
mod task;

pub(crate) use self::split::groups;
