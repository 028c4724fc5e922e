//! Objects of the snapshot that cannot be decoded.

use std::collections::HashSet;

use calipam_model::key::Key;
use calipam_model::names::{EndpointName, KUBERNETES};
use calipam_model::snapshot::{DefectKind, Snapshot};

use super::BrokenWorkload;

/// The defects of a snapshot that owners and pools have.
#[derive(Debug, Default)]
pub(super) struct Broken<'s> {
    /// Endpoints and pods that cannot be decoded, or have an undecodable address.
    pub workloads: Vec<BrokenWorkload<'s>>,
    /// The names of nodes that cannot be decoded.
    pub nodes: HashSet<&'s str>,
    /// True if a pool cannot be decoded.
    pub has_pool: bool,
}

/// Sorts the defects of a snapshot by what they hide: users of addresses, nodes and pools. A pod stands for an endpoint
/// on an unknown node.
pub(super) fn find_broken(snapshot: &Snapshot) -> Broken<'_> {
    let mut broken = Broken::default();
    for defect in &snapshot.defects {
        let is_undecodable = matches!(defect.kind, DefectKind::Value(_));
        match &defect.key {
            Some(Key::Endpoint { namespace, name }) => {
                broken.workloads.push(BrokenWorkload {
                    namespace,
                    name: EndpointName::parse(name),
                });
            }
            Some(Key::Pod { namespace, name }) => {
                let name = EndpointName {
                    node: String::new(),
                    orchestrator: KUBERNETES.into(),
                    workload: name.clone(),
                    endpoint: String::new(),
                };
                broken.workloads.push(BrokenWorkload {
                    namespace,
                    name: Some(name),
                });
            }
            Some(Key::Node(name)) if is_undecodable => {
                broken.nodes.insert(name.as_str());
            }
            Some(Key::Pool(_)) if is_undecodable => broken.has_pool = true,
            _ => {}
        }
    }
    broken
}
