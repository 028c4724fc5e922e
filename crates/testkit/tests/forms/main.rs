//! One generated cluster in etcd and in both API groups of Kubernetes: a check must find the same.

mod beside;
mod differences;
mod judge;
mod lists;
mod objects;
mod server;
