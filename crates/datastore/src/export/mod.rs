//! Exporting a datastore: the entries of a whole read go to the file as they come.

pub(crate) mod etcd;
pub(crate) mod etcdv2;
pub(crate) mod kubernetes;
