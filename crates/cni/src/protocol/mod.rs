//! The CNI protocol for an IPAM plugin: environment, versions, results and errors.
//!
//! No library is used: the CNI libraries for Rust either support only versions up to 1.0, or bring their own runtime.
//! The output must be like Calico's, with the same order of fields in each version, and errors without `cniVersion`.

pub mod args;
pub mod environment;
pub mod error;
pub mod result;
pub mod version;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::PrettyFormatter;

pub use self::args::Arguments;
pub use self::environment::{Command, Environment};
pub use self::error::{CniError, Code};
pub use self::version::Version;

/// JSON as Go's CNI library prints it: indented by four spaces, without a final newline.
pub fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut json, PrettyFormatter::with_indent(b"    "));
    // Serializing this crate's types to memory does not fail.
    match value.serialize(&mut serializer) {
        Ok(()) => json,
        Err(error) => error.to_string().into_bytes(),
    }
}
