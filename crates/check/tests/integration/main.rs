//! The rules on generated clusters: a healthy one has no finding, and a fault causes exactly its own.

mod allocatable;
mod each_fault;
mod expected;
mod fleets;
mod healthy;
mod hostile;
mod many_addresses;
mod many_faults;
