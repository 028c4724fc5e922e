//! The datastore against real etcd servers. Servers come from `calipam-testkit`, which says what to do
//! where one is missing.

mod cluster;
mod connect;
mod files;
mod narrow;
mod read;
mod write;
