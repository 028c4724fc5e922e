//! Calico 2.x data on etcd v2 (docs/etcdv2.md): the paths of its objects, and their conversion.
//!
//! Data is converted to etcd v3 entries, as in Calico's own upgrade to 3.0, so one decoder serves both versions of
//! Calico. Keys below `/calico/ipam/v2` are the same in both.

mod convert;
mod path;

pub(crate) use self::convert::convert;
pub(crate) use self::path::{CONFIG, POOLS, READY, host_paths, path, pod_path, sources};
use crate::client::etcdv2::Node;

/// The parts of the tree that a whole read needs.
pub(crate) const PARTS: [&str; 5] = [path::IPAM, path::HOSTS, POOLS, CONFIG, READY];

/// A key of the tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaf {
    pub key: String,
    /// `None` for a directory.
    pub value: Option<String>,
    pub index: i64,
}

/// Adds a key, if it exists, and all keys below it to `out`.
pub(crate) fn flatten(node: Option<Node>, out: &mut Vec<Leaf>) {
    let Some(Node { key, value, nodes, modified_index }) = node else { return };
    out.push(Leaf { key, value, index: modified_index });
    nodes.into_iter().for_each(|node| flatten(Some(node), out));
}
