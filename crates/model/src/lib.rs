//! Pure data of Calico IPAM.
