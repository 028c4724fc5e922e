//! The CNI plugin `calico-ipam`: gives addresses to pods and takes them back, as a drop-in for Calico's own.
//!
//! [`main`] is the program: it reads what the runtime says ([`protocol`], [`config`]), performs one command ([`command`]) with the
//! allocator, and prints the result or the error; or it [installs](install) itself. "Facts of the plugin" in comments means the notes on Calico's
//! own plugin from which `docs/cni.md` is drawn.

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
mod pools;
pub mod protocol;
mod run;
pub mod upgrade;

pub use run::{main, run};
