//! The rules, tried on generated clusters: a healthy one has no finding, and what a fault breaks is found exactly.

mod healthy;
mod hostile;
mod judge;
mod manifold;
mod single;
