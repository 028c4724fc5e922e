//! Plans that are made on generated clusters, simulated, and checked again.

mod advice;
mod assign;
mod checked;
mod migrate;
mod rebuild;
mod release;
