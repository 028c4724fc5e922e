//! The process of the program: its exit codes, its version, and its runtime.

use tokio::runtime::{Builder, Runtime};

pub(crate) const SUCCESS: u8 = 0;
pub(crate) const FAILURE: u8 = 1;
pub(crate) const USAGE: u8 = 2;

/// The program's name and version, as in its annotation of a node.
pub(crate) fn version() -> String {
    format!("calipam {}", env!("CARGO_PKG_VERSION"))
}

/// Creates a runtime with one thread, which is enough: a call mostly waits for the network.
pub(crate) fn runtime() -> Result<Runtime, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot start: {error}"))
}
