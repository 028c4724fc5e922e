//! Earlier reads of the cluster. An address usually has to be seen unused twice before it is released: every normal
//! deletion of a pod passes through a state with an allocation, but no endpoint.

use std::collections::HashMap;
use std::net::IpAddr;

use calipam_check::{Code, Evidence, Finding, Report, Subject};
use calipam_model::attributes::PackedAttribute;
use calipam_model::edit::AllocationGuard;
use calipam_model::key::Key;
use calipam_model::text::TextRef;
use jiff::Timestamp;

/// The record that an address had at the time when it was seen unused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The handle, and the owner's attributes if the report has them.
    pub record: PackedAttribute,
    /// False if the report has only the handle.
    pub has_owner: bool,
    /// The per-ordinal sequence number. `None` if the report lacks it: the observation then matches no allocation.
    pub sequence: Option<u64>,
}

impl Observation {
    /// Returns true if the same allocation still holds the address.
    pub(crate) fn matches(&self, held: &AllocationGuard) -> bool {
        let seen = self.record.as_ref();
        let now = held.record.as_ref();
        seen.handle().unwrap_or(TextRef::EMPTY) == now.handle().unwrap_or(TextRef::EMPTY)
            && self.sequence == Some(held.sequence)
            && (!self.has_owner || seen.owner().to_map() == now.owner().to_map())
    }
}

/// One earlier read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations {
    /// The time of the read.
    pub at: Timestamp,
    /// The name of the read in messages: the path of a report.
    pub name: String,
    /// The GUID of the cluster.
    pub cluster: String,
    /// True if the release is limited to the addresses and handles that this read lists. False for the first of two
    /// reads in one run.
    pub narrows: bool,
    /// Addresses that were seen unused. Where blocks overlap, one address has several observations.
    pub addresses: HashMap<IpAddr, Vec<Observation>>,
    /// Revisions of handles that no allocation referred to.
    pub handles: HashMap<String, String>,
    /// Revisions of handles whose counts differed from the blocks, and of affinities in the middle of a Calico
    /// operation.
    pub unsettled: HashMap<Key, String>,
}

impl Observations {
    /// Returns the observations of an earlier read of the same run.
    pub fn of_report(report: &Report) -> Self {
        let mut observations = Self {
            at: report.cluster.taken_at,
            cluster: report.cluster.guid.clone(),
            ..Self::default()
        };
        for finding in &report.findings {
            observations.note(finding);
        }
        observations
    }

    /// Notes the records and revisions in a finding, if another read is needed before its objects may be changed.
    fn note(&mut self, finding: &Finding) {
        match finding.code {
            Code::LeakedAddress => self.note_address(finding),
            Code::OrphanHandle | Code::HandleCount => self.note_handle(finding),
            Code::UnsettledAffinity => self.note_affinity(finding),
            _ => {}
        }
    }

    /// Notes the records of a leaked address.
    fn note_address(&mut self, finding: &Finding) {
        let (Subject::Address(address), Evidence::Address(evidence)) = (&finding.subject, &finding.evidence)
        else {
            return;
        };
        let records = evidence.records.iter().map(|record| Observation {
            record: record.record.clone(),
            has_owner: true,
            sequence: Some(record.sequence_number),
        });
        self.addresses.entry(*address).or_default().extend(records);
    }

    /// Notes the revision of a handle that no allocation refers to, or that has wrong counts.
    fn note_handle(&mut self, finding: &Finding) {
        let (Subject::Handle(id), Evidence::Handle(evidence)) = (&finding.subject, &finding.evidence) else {
            return;
        };
        let revision = evidence.revision.clone().unwrap_or_default();
        if finding.code == Code::OrphanHandle {
            self.handles.insert(id.clone(), revision);
        } else {
            self.unsettled.insert(Key::Handle(id.clone()), revision);
        }
    }

    /// Notes the revision of an unconfirmed affinity.
    fn note_affinity(&mut self, finding: &Finding) {
        let Evidence::Affinity(evidence) = &finding.evidence else {
            return;
        };
        let mut keys = finding.depends_on.iter();
        if let Some(key) = keys.find(|key| matches!(key, Key::Affinity(_))) {
            self.unsettled.insert(key.clone(), evidence.revision.clone());
        }
    }

    /// Returns true if the allocation was seen unused.
    pub(crate) fn saw(&self, address: IpAddr, held: &AllocationGuard) -> bool {
        self.addresses
            .get(&address)
            .is_some_and(|seen| seen.iter().any(|observation| observation.matches(held)))
    }
}
