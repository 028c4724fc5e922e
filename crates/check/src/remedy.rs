//! Remedies for findings.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::config::{IpamSetting, LOCKED_BY};
use calipam_model::names::namespaced;

use crate::claim::Claim;
use crate::code::Code;
use crate::finding::{AddressEvidence, Evidence, Finding, NeededBy, OwnerEvidence, OwnerKind, Subject};

/// An operation that repairs a finding, or whose plan says what a person has to decide first. Findings about pools and
/// configuration, among others, have no remedy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// Release every leaked address whose record names its owner.
    ReleaseLeaked,
    /// The same for the addresses of one node.
    ReleaseLeakedOf(String),
    /// Release everything that belongs to these nodes, which no longer exist. The remedy for a single finding names one
    /// node.
    ReleaseNodes(BTreeSet<String>),
    /// Delete every handle that no allocation refers to.
    ReleaseOrphanHandles,
    ReleaseAddress(IpAddr),
    /// Restart a pod, so that Calico's plugin gives it an address and writes its endpoint.
    RestartPod {
        reason: RestartReason,
        namespace: String,
        pod: String,
    },
    /// Restart calico-node on a node, so that its tunnel gets another address.
    RestartCalicoNode(String),
    /// Rebuild these blocks, their handles and their affinities; if empty, rebuild everything.
    Rebuild(BTreeSet<IpNet>),
    /// Undo the run that left its lock, which the list of journals shows.
    UndoRun,
    /// Read what helps.
    Explain(Topic),
    /// Change settings of the allocator.
    Configure(Vec<IpamSetting>),
    /// Change a field of the pool with this name.
    ChangePool {
        pool: String,
        change: PoolChange,
    },
}

/// A subject of `explain`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// A pod, as `namespace/name`.
    Pod(String),
    Node(String),
    Rule(Code),
}

/// A change of a pool that makes it serve more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolChange {
    Enable,
    /// The pool serves all nodes.
    SelectAllNodes,
    /// The pool serves pods and tunnels.
    AllowWorkloads,
    /// The pool serves requests that name no pool.
    AssignAutomatically,
}

/// The reason to restart a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RestartReason {
    /// Its address is recorded for another owner.
    RecordedForAnother,
    /// It is one of several users of an address that is recorded for none of them.
    RecordedForNone,
    /// It has no endpoint.
    NoEndpoint,
}

impl Finding {
    /// Returns the remedy, if calipam or a restart can repair the finding.
    pub fn remedy(&self) -> Option<Remedy> {
        match (self.code, &self.subject) {
            // The record names no owner, so a person has to decide.
            (Code::LeakedAddress, Subject::Address(address)) if self.is_owner_unknown() => {
                Some(Remedy::ReleaseAddress(*address))
            }
            (Code::LeakedAddress, _) => Some(Remedy::ReleaseLeaked),
            (Code::DuplicateAddress, _) => self.restart().or_else(|| self.restart_of_sharer()),
            (Code::PodWithoutEndpoint, _) => self.restart_for_endpoint(),
            (Code::ServiceAddressExtra, Subject::Address(address)) => Some(Remedy::ReleaseAddress(*address)),
            (Code::OrphanHandle, _) => match self.needed_by() {
                None => Some(Remedy::ReleaseOrphanHandles),
                // The owner's addresses are recorded again.
                Some(NeededBy::Owner(_)) => Some(Remedy::Rebuild(BTreeSet::new())),
                Some(NeededBy::Unknown(_)) => None,
            },
            (Code::AffinityOfMissingNode | Code::BlockOfMissingNode, _) => {
                Some(Remedy::ReleaseNodes(self.nodes.iter().cloned().collect()))
            }
            (Code::DatastoreLocked, _) if self.is_locked_by_run() => Some(Remedy::UndoRun),
            (code, _) if code.is_rebuilt() => Some(self.rebuild()),
            _ => None,
        }
    }

    /// Returns true if the lock of the datastore names a run of calipam.
    fn is_locked_by_run(&self) -> bool {
        match &self.evidence {
            Evidence::Configuration(settings) => settings.contains_key(LOCKED_BY),
            _ => false,
        }
    }

    /// Returns the user of an orphan handle.
    pub fn needed_by(&self) -> Option<&NeededBy> {
        match &self.evidence {
            Evidence::Handle(evidence) => evidence.needed_by.as_ref(),
            _ => None,
        }
    }

    /// Returns the restart that makes a user of the address without a record get another address. `None` unless the
    /// address is recorded for another user, or if an annotation of the pod names it.
    fn restart(&self) -> Option<Remedy> {
        let Evidence::Address(evidence) = &self.evidence else {
            return None;
        };
        let is_recorded = |user: &OwnerEvidence| is_recorded_for(evidence, user);
        let unrecorded = evidence.owners.iter().find(|user| !is_recorded(user))?;

        // If another plugin gave the only user its address, the recorded pod can be one that has no address yet.
        let is_only_user = evidence.owners.len() == 1;
        let is_recorded_for_other = if is_only_user {
            evidence.holding().next().is_some()
        } else {
            evidence.owners.iter().any(|user| is_recorded(user))
        };
        if !is_recorded_for_other || unrecorded.annotation.is_some() {
            return None;
        }

        let restart = restart_of(unrecorded, RestartReason::RecordedForAnother);
        if restart.is_none() && unrecorded.kind == OwnerKind::Tunnel {
            return Some(Remedy::RestartCalicoNode(unrecorded.node.clone()));
        }
        restart
    }

    /// Returns the restart of one of several users of an address, if it is recorded for none of them. Once only one user
    /// is left, a rebuild records the address for it. A pod whose annotation names the address would get it again.
    fn restart_of_sharer(&self) -> Option<Remedy> {
        let Evidence::Address(evidence) = &self.evidence else {
            return None;
        };
        let is_recorded = evidence.owners.iter().any(|user| is_recorded_for(evidence, user));
        if is_recorded || evidence.owners.len() < 2 {
            return None;
        }

        let mut restartable = evidence.owners.iter().filter(|user| user.annotation.is_none());
        restartable.find_map(|user| restart_of(user, RestartReason::RecordedForNone))
    }

    /// Returns the restart of a pod without an endpoint. Only Calico's plugin writes the endpoint, for a new sandbox.
    fn restart_for_endpoint(&self) -> Option<Remedy> {
        let Evidence::Endpoint(owner) = &self.evidence else {
            return None;
        };
        restart_of(owner, RestartReason::NoEndpoint)
    }

    /// Returns the remedy that rebuilds the finding's blocks, or everything if the finding names no block.
    fn rebuild(&self) -> Remedy {
        let blocks: BTreeSet<IpNet> = match (&self.subject, &self.evidence) {
            (Subject::Block(cidr) | Subject::Affinity { cidr, .. }, _) => BTreeSet::from([*cidr]),
            (_, Evidence::Address(evidence)) => evidence.records.iter().map(|record| record.block).collect(),
            (_, Evidence::Handle(evidence)) => evidence.blocks.iter().map(|count| count.block).collect(),
            _ => BTreeSet::new(),
        };
        Remedy::Rebuild(blocks)
    }
}

/// Returns the restart of the pod of an owner; `None` if the owner is not a pod.
fn restart_of(owner: &OwnerEvidence, reason: RestartReason) -> Option<Remedy> {
    let (namespace, pod) = namespaced(&owner.pod)?;
    Some(Remedy::RestartPod {
        reason,
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
    })
}

/// Returns true if a record of the address names this user.
fn is_recorded_for(evidence: &AddressEvidence, user: &OwnerEvidence) -> bool {
    let mut records = evidence.records.iter();
    records.any(|record| user.is_named_by(&Claim::of(&record.record.as_ref())))
}
