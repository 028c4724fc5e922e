//! Connections to servers, and single requests.

pub(crate) mod etcd;
pub(crate) mod etcdv2;
pub(crate) mod kubernetes;
pub(crate) mod pace;
