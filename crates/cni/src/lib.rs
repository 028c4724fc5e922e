//! The CNI plugin `calico-ipam`: gives addresses to pods and takes them back, as a drop-in for Calico's own.

pub mod config;
pub mod identity;
pub mod lock;
pub mod log;
pub mod netns;
pub mod protocol;
