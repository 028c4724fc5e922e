//! Rebuilds on real servers: every fault is planned, tried, carried out and checked again, and nothing but what the plan
//! names has changed.

mod etcd;
mod guards;
mod kubernetes;
mod mend;
mod users;
