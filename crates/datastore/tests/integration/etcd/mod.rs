//! Real etcd servers.

mod connect;
mod files;
mod follow;
mod lookup;
mod read;
mod support;
mod write;
