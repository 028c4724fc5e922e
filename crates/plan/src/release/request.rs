//! What somebody asks to release.

use std::net::IpAddr;

/// What to release. Several kinds add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// These addresses.
    pub addresses: Vec<IpAddr>,
    /// Everything under these handles.
    pub handles: Vec<String>,
    /// Everything of these nodes, which must be gone.
    pub nodes: Vec<String>,
    /// Every leaked address whose record says whose it was.
    pub leaked: bool,
    /// Every handle that no allocation refers to.
    pub orphan_handles: bool,
    /// Release the one address or handle whatever says that it is in use.
    pub force: bool,
}
