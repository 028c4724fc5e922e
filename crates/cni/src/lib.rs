//! The CNI plugin `calico-ipam`: a drop-in for Calico's own that assigns addresses to pods and releases them.
//!
//! [`main`] is the program. It reads the runtime's input ([`protocol`], [`config`]), performs one command ([`command`])
//! with the allocator, and prints the result or the error; or it [installs](install) itself, or [takes over](upgrade)
//! the addresses of host-local. "Facts of the plugin" in comments means the notes on Calico's own plugin on which
//! `docs/cni.md` is based.

mod call;
mod command;
pub mod config;
mod failure;
mod host;
mod identity;
pub mod install;
mod lock;
mod log;
mod machine;
mod netns;
mod notes;
mod ownership;
mod pools;
mod process;
pub mod protocol;
mod run;
pub mod upgrade;

pub use run::{main, run};
