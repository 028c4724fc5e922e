//! The owners of orphan handles. If blocks were lost, the handles of the workloads and tunnels in them look like
//! orphans, but a rebuild needs them.

use calipam_check::claim::Claim;
use calipam_check::owner::Owners;
use calipam_check::{Code, Subject};
use calipam_model::node::TunnelKind;

use crate::basis::Basis;

/// Looks up the owners of a report's orphan handles.
pub(super) struct HandleOwners<'b, 's> {
    basis: &'b Basis<'s>,
    owners: Owners<'b, 's>,
}

impl<'b, 's> HandleOwners<'b, 's> {
    pub(super) fn new(basis: &'b Basis<'s>) -> Self {
        let orphans = basis.findings(Code::OrphanHandle).filter_map(|finding| finding.subject.handle());
        let claims: Vec<Claim<'_>> = orphans.map(Claim::of_handle).collect();
        Self { basis, owners: Owners::new(&basis.context, &claims) }
    }

    /// Returns the owner of an orphan handle: a workload that uses an address, or a tunnel with an unrecorded address.
    pub(super) fn owner_of(&self, id: &str) -> Option<String> {
        match Claim::of_handle(id) {
            Claim::Tunnel { kind, node } => self.unrecorded_tunnel(kind, &node),
            claim => {
                let workload = self.basis.context.index.workload(self.owners.user(&claim)?)?;
                let by_workload = || (workload.namespace.to_string(), workload.pod.to_string());
                let (namespace, pod) = claim.pod().unwrap_or_else(by_workload);
                Some(format!("{namespace}/{pod}"))
            }
        }
    }

    /// Returns a tunnel whose address no block records. A tunnel with a recorded address does not need the orphan, even
    /// if the record has no handle.
    fn unrecorded_tunnel(&self, kind: TunnelKind, node: &str) -> Option<String> {
        let found = self.basis.context.index.node(node)?;
        let mut addresses = found.tunnels.iter().filter(|(of, _)| *of == kind).map(|(_, address)| *address);
        let lost = |address| self.basis.finding(Code::UnallocatedInUse, &Subject::Address(address)).is_some();
        addresses.any(lost).then(|| format!("a tunnel of {node}"))
    }
}
