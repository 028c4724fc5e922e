//! Which handles belong to something that lives, although no block records an address under them.

use std::collections::{HashMap, HashSet};

use calipam_check::record::Claim;
use calipam_check::{Code, Subject};
use calipam_model::node::TunnelKind;

use crate::basis::Basis;

/// Workloads and tunnels that live, by what a handle says of its owner. Where blocks were lost, the handles of
/// all of them look like orphans, and a rebuild needs them.
pub(super) struct Living<'b, 's> {
    basis: &'b Basis<'s>,
    /// Names of workloads, by the IDs of their containers.
    containers: HashMap<String, String>,
    /// `<namespace>.<pod>` of workloads.
    pods: HashSet<String>,
}

impl<'b, 's> Living<'b, 's> {
    /// Looks at all that lives, where there are orphan handles at all.
    pub fn new(basis: &'b Basis<'s>) -> Self {
        let mut living = Self { basis, containers: HashMap::new(), pods: HashSet::new() };
        if basis.findings(Code::OrphanHandle).next().is_none() {
            return living;
        }
        for used in &basis.context.index.uses {
            let Some(workload) = basis.context.index.workload(used.owner) else { continue };
            let name = format!("{}/{}", workload.namespace, workload.pod);
            living.pods.insert(format!("{}.{}", workload.namespace, workload.pod));
            if !workload.container_id.is_empty() {
                living.containers.insert(workload.container_id.to_string(), name);
            }
        }
        living
    }

    /// The one whose handle it is, where that lives and none of its addresses is recorded elsewhere.
    pub fn owner_of(&self, id: &str) -> Option<String> {
        match Claim::of_handle(id) {
            Claim::Container(container) => self.containers.get(&container).cloned(),
            Claim::LegacyPod { namespace, pod } => {
                self.pods.contains(&format!("{namespace}.{pod}")).then(|| format!("{namespace}/{pod}"))
            }
            Claim::Tunnel { kind, node } => self.unrecorded_tunnel(kind, &node),
            _ => None,
        }
    }

    /// A tunnel whose address no block records. One that is recorded, be it without a handle, does not need
    /// the orphan.
    fn unrecorded_tunnel(&self, kind: TunnelKind, node: &str) -> Option<String> {
        let found = self.basis.context.index.node(node)?;
        let mut addresses = found.tunnels.iter().filter(|(of, _)| *of == kind).map(|(_, address)| *address);
        let lost = |address| self.basis.finding(Code::UnallocatedInUse, &Subject::Address(address)).is_some();
        addresses.any(lost).then(|| format!("a tunnel of {node}"))
    }
}
