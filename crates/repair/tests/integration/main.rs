//! Repairs on real servers.

mod cluster;
mod execute;
mod journal;
mod kill;
mod kubernetes;
mod live;
mod lock;
mod meanwhile;
mod rebuild;
mod torn;
mod undo;
