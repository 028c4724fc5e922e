//! The datastore against real servers, and against servers that misbehave. `calipam-testkit` starts them and says what to
//! do if one is missing.

mod etcd;
mod etcdv2;
mod generated;
mod kube;
mod support;
