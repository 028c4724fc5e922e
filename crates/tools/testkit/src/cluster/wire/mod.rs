//! Values as Calico writes them to etcd (facts 1.3–1.13). Nothing here uses calipam's model, so that tests do not
//! compare it with itself.

mod block;
mod block_value;
mod config;
mod endpoint;
mod handle;
pub mod key;
mod node;
mod pool;
mod resource;

pub use self::block::{Attribute, Block, Entries, Era};
pub use self::config::{
    IpamSettings, cluster_information, ipam_config, ipam_configuration, kube_controllers,
};
pub use self::endpoint::{Endpoint, EndpointSpec, Nat};
pub use self::handle::{Handle, affinity};
pub use self::node::{Node, NodeAddress, OrchRef, Tunnel};
pub use self::pool::{Pool, reservation};
pub use self::resource::{Metadata, Resource};

use serde::Serialize;

fn is_false(value: &bool) -> bool {
    !value
}

/// The bytes that Go's `encoding/json` writes: no spaces, `<`, `>` and `&` escaped.
pub fn go_json(value: &impl Serialize) -> Vec<u8> {
    let plain = serde_json::to_vec(value).expect("these values have text keys only");
    if !plain.iter().any(|b| matches!(b, b'<' | b'>' | b'&')) {
        return plain;
    }
    let mut escaped = Vec::with_capacity(plain.len() + 16);
    for byte in plain {
        // These characters occur in strings only, so escaping them anywhere is right.
        match byte {
            b'<' => escaped.extend(br"\u003c"),
            b'>' => escaped.extend(br"\u003e"),
            b'&' => escaped.extend(br"\u0026"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_go() {
        assert_eq!(go_json(&"a<b>&c"), br#""a\u003cb\u003e\u0026c""#);
        assert_eq!(go_json(&["plain"]), br#"["plain"]"#);
    }
}
