//! What repairs a finding.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_model::IpNet;

use crate::code::Code;
use crate::finding::{Evidence, Finding, Subject};

/// What repairs a finding, or says in its plan what a person has to decide first. Findings without one
/// are about something that calipam does not write: pools, configuration, pods, services.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// Release every leaked address whose record says whose it was.
    ReleaseLeaked,
    /// Release everything of nodes that are gone: of one for one finding.
    ReleaseNodes(BTreeSet<String>),
    /// Delete every handle that no allocation refers to.
    ReleaseOrphanHandles,
    ReleaseAddress(IpAddr),
    /// Rebuild these blocks, their handles and their affinities; everything if there are none.
    Rebuild(BTreeSet<IpNet>),
}

impl Finding {
    /// What repairs it, where calipam can.
    pub fn remedy(&self) -> Option<Remedy> {
        match (self.code, &self.subject) {
            // The record does not say whose it was: a person has to.
            (Code::LeakedAddress, Subject::Address(address)) if self.is_owner_unknown() => {
                Some(Remedy::ReleaseAddress(*address))
            }
            (Code::LeakedAddress, _) => Some(Remedy::ReleaseLeaked),
            (Code::ServiceAddressExtra, Subject::Address(address)) => Some(Remedy::ReleaseAddress(*address)),
            (Code::OrphanHandle, _) => Some(Remedy::ReleaseOrphanHandles),
            (Code::AffinityOfMissingNode, Subject::Affinity { node, .. }) => {
                Some(Remedy::ReleaseNodes(BTreeSet::from([node.clone()])))
            }
            (Code::BlockOfMissingNode, _) => {
                self.owning_node().map(|node| Remedy::ReleaseNodes(BTreeSet::from([node])))
            }
            (code, _) if is_rebuilt(code) => Some(self.rebuild()),
            _ => None,
        }
    }

    fn owning_node(&self) -> Option<String> {
        match &self.evidence {
            Evidence::Block(evidence) => evidence.owner.as_ref()?.host().map(str::to_owned),
            _ => None,
        }
    }

    /// The rebuild of the blocks that it is about; of everything if there is none yet.
    fn rebuild(&self) -> Remedy {
        let blocks: BTreeSet<IpNet> = match (&self.subject, &self.evidence) {
            (Subject::Block(cidr) | Subject::Affinity { cidr, .. }, _) => {
                return Remedy::Rebuild(BTreeSet::from([*cidr]));
            }
            (_, Evidence::Address(evidence)) => evidence.records.iter().map(|r| r.block).collect(),
            (_, Evidence::Handle(evidence)) => evidence.blocks.iter().map(|b| b.block).collect(),
            _ => BTreeSet::new(),
        };
        Remedy::Rebuild(blocks)
    }
}

/// True for what a rebuild mends, or of which its plan says what is in the way.
fn is_rebuilt(code: Code) -> bool {
    matches!(
        code,
        Code::UnallocatedInUse
            | Code::OwnerMismatch
            | Code::CorruptBlock
            | Code::EmptyUnownedBlock
            | Code::BlockWithoutAffinity
            | Code::AffinityBlockMismatch
            | Code::AffinityConflict
            | Code::UnsettledAffinity
            | Code::AffinityLabels
            | Code::UnexpectedAffinityType
            | Code::MissingHandle
            | Code::HandleCount
            | Code::HalfDeleted
    )
}
