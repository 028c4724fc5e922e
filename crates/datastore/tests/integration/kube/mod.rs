//! Real API servers, and servers that misbehave.

mod access;
mod added_to_etcd;
mod faults;
mod follow_faults;
mod one_connection;
mod order;
mod paging;
mod pods;
mod read;
mod schema;
mod support;
mod write;
