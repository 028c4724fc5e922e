//! Names, IDs and addresses of the generated cluster; all of one kind have the same length.

/// Addresses of pods in a block of 64; with the node's tunnel 61 are taken.
pub(crate) const PODS: usize = 60;

/// Number of three-digit numbers that fit in a byte.
const DIGITS: usize = 156;

pub(crate) fn node(node: usize) -> String {
    format!("node-{node:05}")
}

/// The address of the node itself.
pub(crate) fn host(node: usize) -> String {
    format!("192.168.{}.{}", 100 + node / DIGITS, 100 + node % DIGITS)
}

/// The limit of pod numbers, since names have seven digits. It is a multiple of [`PODS`], so that the number determines
/// the place in a block.
pub(crate) const MOST_PODS: usize = 9_999_960;

pub(crate) fn pod(pod: usize) -> String {
    format!("checkout-5d4f8c7b9d-p{pod:07}")
}

/// Number of namespaces; pods use them in turn.
pub(crate) const NAMESPACES: usize = 100;

pub(crate) fn namespace(pod: usize) -> String {
    format!("shop-{:03}", pod % NAMESPACES)
}

pub(crate) fn container(pod: usize) -> String {
    format!("{:016x}{:048x}", (pod as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15), pod)
}

/// A UID; `kind` distinguishes kinds of objects.
pub(crate) fn uid(kind: u32, number: usize) -> String {
    format!("{kind:08x}-0000-4000-8000-{number:012x}")
}

/// The first three bytes and the first address of a node's block. All addresses of these blocks have three digits.
fn block_start(node: usize) -> (String, usize) {
    let (half, network) = (node % 2, node / 2);
    (format!("10.{}.{}", 100 + network / DIGITS, 100 + network % DIGITS), 128 + 64 * half)
}

pub(crate) fn block(node: usize) -> String {
    let (network, first) = block_start(node);
    format!("{network}.{first}/26")
}

/// The object name of the block.
pub(crate) fn block_object(node: usize) -> String {
    block(node).replace(['.', '/'], "-")
}

/// The object name of the affinity.
pub(crate) fn affinity(node: usize) -> String {
    format!("{}-{}", self::node(node), block_object(node))
}

/// The address at an ordinal of the node's block.
pub(crate) fn address(node: usize, ordinal: usize) -> String {
    let (network, first) = block_start(node);
    format!("{network}.{}", first + ordinal)
}

/// The handle of a pod.
pub(crate) fn handle(pod: usize) -> String {
    format!("k8s-pod-network.{}", container(pod))
}

pub(crate) fn tunnel_handle(node: usize) -> String {
    format!("ipip-tunnel-addr-{}", self::node(node))
}
