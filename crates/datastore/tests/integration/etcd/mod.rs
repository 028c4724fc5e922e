//! Real etcd servers.

mod connect;
mod files;
mod lookup;
mod read;
mod support;
mod write;
