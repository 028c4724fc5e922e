//! A large cluster on Kubernetes, written straight into the API server's etcd.

pub(crate) mod names;
mod objects;
pub(crate) mod seed;
mod template;

/// Calico's kinds that addresses are assigned by, and the plugin therefore reads or writes.
pub(crate) const OF_ALLOCATION: [&str; 6] =
    ["ipamblocks", "ipamhandles", "blockaffinities", "ipamconfigs", "ippools", "ipreservations"];
