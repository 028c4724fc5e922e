//! The process of the program: its exit codes, its version, and its runtime.

use tokio::runtime::{Builder, Runtime};

pub(crate) const SUCCESS: u8 = 0;
pub(crate) const FAILURE: u8 = 1;
pub(crate) const USAGE: u8 = 2;

/// The program's name and version, as in its annotation of a node.
pub(crate) fn version() -> String {
    format!("calipam {}", env!("CARGO_PKG_VERSION"))
}

/// The path or name by which this program was called, for command lines in hints: packages call it `calipam-cni`.
pub(crate) fn called_as() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    if name.is_empty() {
        return "calico-ipam".to_owned();
    }
    name.to_string_lossy().into_owned()
}

/// Creates a runtime with one thread, which is enough: a call mostly waits for the network.
pub(crate) fn runtime() -> Result<Runtime, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot start: {error}"))
}
