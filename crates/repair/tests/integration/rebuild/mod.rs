//! Rebuilds on real servers: every fault is planned, tried, carried out and checked again, and only objects of the plan
//! have changed.

mod etcd;
mod guards;
mod kubernetes;
mod support;
mod users;
