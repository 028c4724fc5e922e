//! Carrying out repairs against a real etcd.

mod cluster;
mod execute;
mod journal;
mod kill;
mod kubernetes;
mod live;
mod lock;
mod undo;
