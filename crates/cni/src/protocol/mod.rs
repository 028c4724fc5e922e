//! The CNI protocol as an IPAM plugin speaks it: environment, versions, results and errors.
//!
//! A module of this crate and not a library: those for Rust either end with CNI 1.0 or bring a runtime of their own, and what
//! matters here are Calico's forms: the fields of each version in its order, errors without `cniVersion`.

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
pub use self::result::IpamResult;
pub use self::version::Version;

/// JSON as Go's CNI library prints it: indented by four spaces, without a final newline.
pub fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut json, PrettyFormatter::with_indent(b"    "));
    // Values of this crate have text keys only, and memory takes everything.
    match value.serialize(&mut serializer) {
        Ok(()) => json,
        Err(error) => error.to_string().into_bytes(),
    }
}
