//! A large cluster on Kubernetes, written straight into the API server's etcd.

pub(crate) mod names;
mod objects;
pub(crate) mod seed;
mod template;

/// Calico's kinds for the allocation of addresses, which the plugin reads or writes.
pub(crate) const OF_ALLOCATION: [&str; 6] =
    ["ipamblocks", "ipamhandles", "blockaffinities", "ipamconfigs", "ippools", "ipreservations"];
