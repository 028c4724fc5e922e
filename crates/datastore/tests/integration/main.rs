//! The datastore with real servers, and with servers that misbehave. `calipam-testkit` starts them, and explains what
//! to do if one is missing.

mod etcd;
mod etcdv2;
mod generated;
mod kube;
mod support;
