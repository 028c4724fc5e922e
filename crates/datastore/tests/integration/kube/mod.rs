//! Real API servers, and servers that misbehave.

mod access;
mod added_to_etcd;
mod cache;
mod cache_faults;
mod faults;
mod one_connection;
mod order;
mod paging;
mod pods;
mod read;
mod schema;
mod support;
mod write;
