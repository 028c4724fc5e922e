//! The rules on generated clusters: a healthy cluster has no findings, and a fault causes exactly the expected ones.

mod allocatable;
mod each_fault;
mod expected;
mod fleets;
mod golden;
mod healthy;
mod hostile;
mod many_addresses;
mod many_faults;
mod one_answer;
