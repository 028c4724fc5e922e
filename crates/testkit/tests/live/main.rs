//! Generated clusters in a real etcd or behind a real API server, read by calipam.

mod churn;
mod kubernetes;
mod reader;
mod ways;
