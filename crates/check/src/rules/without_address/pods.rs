//! Nodes with pods, and pods that are waiting for an address.

use std::collections::{HashMap, HashSet};

use calipam_model::node::Node;
use calipam_model::pod::Pod;
use calipam_model::text::Text;
use jiff::SignedDuration;

use crate::Context;

/// The age from which a pod without an address counts as waiting.
const PATIENCE: SignedDuration = SignedDuration::from_mins(1);

/// Nodes with pods, by packed name.
pub(super) struct PodsOfNodes<'s> {
    /// The nodes of all unfinished pods that do not use the host's network, and therefore have or need an address of
    /// their own.
    with_pods: HashSet<&'s [u8]>,
    waiting: HashMap<&'s [u8], Vec<&'s Pod>>,
}

impl<'s> PodsOfNodes<'s> {
    pub(super) fn new(context: &Context<'s>) -> Self {
        let pods = context.snapshot.pods.iter().map(|stored| &stored.value);
        let (mut with_pods, mut waiting) = (HashSet::new(), HashMap::<_, Vec<_>>::new());
        for pod in pods.filter(|pod| !pod.finished && !pod.host_network) {
            with_pods.insert(pod.node().packed());
            if pod.waits() && pod.is_older_than(PATIENCE, context.now) {
                waiting.entry(pod.node().packed()).or_default().push(pod);
            }
        }
        Self { with_pods, waiting }
    }

    pub(super) fn run_on(&self, node: &Node) -> bool {
        node.names().any(|name| self.with_pods.contains(Text::new(name).as_ref().packed()))
    }

    pub(super) fn waiting_on(&self, node: &Node) -> impl Iterator<Item = &'s Pod> {
        let found = node.names().find_map(|name| self.waiting.get(Text::new(name).as_ref().packed()));
        found.map_or(&[][..], Vec::as_slice).iter().copied()
    }
}
