//! Real etcd servers.

mod cache;
mod connect;
mod files;
mod lookup;
mod read;
mod support;
mod write;
