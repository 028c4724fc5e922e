//! A large cluster on Kubernetes, written straight into the API server's etcd.

pub mod names;
mod objects;
pub mod seed;
mod template;
