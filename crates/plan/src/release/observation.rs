//! Earlier reads of the cluster. An address counts as leaked for a release only if it was seen unused twice,
//! since every normal deletion of a pod passes through "allocated, but no endpoint".

use std::collections::HashMap;
use std::net::IpAddr;

use calipam_check::{Code, Evidence, Report, Subject};
use calipam_model::attributes::PackedAttribute;
use calipam_model::edit::Held;
use calipam_model::key::Key;
use calipam_model::text::TextRef;
use jiff::Timestamp;

/// An address that was seen unused, and what was recorded about it then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The record as far as the report tells it.
    pub record: PackedAttribute,
    /// False if the report tells the handle alone.
    pub tells_owner: bool,
    /// The per-ordinal sequence number; `None` if the report does not tell it: it may have been any allocation then.
    pub sequence: Option<u64>,
}

impl Observation {
    /// True if the address is still held by the same allocation.
    pub(crate) fn is_of(&self, held: &Held) -> bool {
        let (seen, now) = (self.record.as_ref(), held.record.as_ref());
        seen.handle().unwrap_or(TextRef::EMPTY) == now.handle().unwrap_or(TextRef::EMPTY)
            && self.sequence == Some(held.sequence)
            && (!self.tells_owner || seen.owner().to_map() == now.owner().to_map())
    }
}

/// One earlier read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations {
    /// When it was.
    pub at: Timestamp,
    /// What it is called in messages: the path of a report.
    pub name: String,
    /// The GUID of the cluster.
    pub cluster: String,
    /// Nothing that it does not list is released. False for the first of two reads of one run.
    pub narrows: bool,
    /// Addresses that were seen unused; several observations where blocks overlap.
    pub addresses: HashMap<IpAddr, Vec<Observation>>,
    /// Handles that no allocation referred to, and their revisions.
    pub handles: HashMap<String, String>,
    /// Handles that counted another number of addresses than the blocks recorded, and affinities between two steps of Calico, with
    /// their revisions.
    pub unsettled: HashMap<Key, String>,
}

impl Observations {
    /// What the report of an earlier read of the same run saw.
    pub fn of_report(report: &Report) -> Self {
        let mut observations =
            Self { at: report.cluster.taken_at, cluster: report.cluster.guid.clone(), ..Self::default() };
        for finding in &report.findings {
            match (finding.code, &finding.subject, &finding.evidence) {
                (Code::LeakedAddress, Subject::Address(address), Evidence::Address(evidence)) => {
                    let records = evidence.records.iter().map(|record| Observation {
                        record: record.record.clone(),
                        tells_owner: true,
                        sequence: Some(record.sequence_number),
                    });
                    observations.addresses.entry(*address).or_default().extend(records);
                }
                (Code::OrphanHandle, Subject::Handle(id), Evidence::Handle(evidence)) => {
                    let revision = evidence.revision.clone().unwrap_or_default();
                    observations.handles.insert(id.clone(), revision);
                }
                (Code::HandleCount, Subject::Handle(id), Evidence::Handle(evidence)) => {
                    let revision = evidence.revision.clone().unwrap_or_default();
                    observations.unsettled.insert(Key::Handle(id.clone()), revision);
                }
                (Code::UnsettledAffinity, _, Evidence::Affinity(evidence)) => {
                    let key = finding.depends_on.iter().find(|key| matches!(key, Key::Affinity(_)));
                    let seen = key.map(|key| (key.clone(), evidence.revision.clone()));
                    observations.unsettled.extend(seen);
                }
                _ => {}
            }
        }

        observations
    }

    /// True if the allocation was seen unused.
    pub(crate) fn saw(&self, address: IpAddr, held: &Held) -> bool {
        self.addresses
            .get(&address)
            .is_some_and(|seen| seen.iter().any(|observation| observation.is_of(held)))
    }
}
