//! The rules, tried on generated clusters: a healthy one has no finding, and what a fault breaks is found exactly.

mod each_fault;
mod expected;
mod fleets;
mod healthy;
mod hostile;
mod many_addresses;
mod many_faults;
