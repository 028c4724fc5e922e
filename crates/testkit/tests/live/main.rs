//! Generated clusters in a real etcd, read by calipam.

mod churn;
mod reader;
mod ways;
