//! The basis of a plan: the snapshot and its findings.

pub(crate) mod handles;
pub(crate) mod preconditions;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::OnceLock;

use calipam_check::index::{Index, IndexedBlock};
use calipam_check::{Code, Context, Finding, Options, Report, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::Affinity;
use calipam_model::block::Allocation;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, Versioned};

use crate::release::Observations;

/// The input of planners. The report decides what may change, and the snapshot contains the present state.
pub struct Basis<'s> {
    pub snapshot: &'s Snapshot,
    /// The findings, without those that the recheck dropped.
    pub report: &'s Report,
    pub context: Context<'s>,
    findings: HashMap<(Code, &'s Subject), &'s Finding>,
    /// A kind of object that is completely missing, which makes addresses look leaked.
    pub(crate) missing_evidence: Option<&'static str>,
    /// Earlier reads of the cluster: of the same run, or from files that `--from-report` names.
    pub(crate) observations: &'s [Observations],
    /// The number of seconds for which a released address cools down: the cluster's setting, or 0 if its schema has no
    /// field for it.
    pub(crate) cooldown: i64,
    affinities: OnceLock<HashMap<IpNet, Vec<&'s Versioned<Affinity>>>>,
    undecodable: OnceLock<Undecodable<'s>>,
}

/// Objects that cannot be decoded, and whose keys are known.
pub(crate) struct Undecodable<'s> {
    pub keys: HashSet<&'s Key>,
    pub by_path: HashMap<&'s str, &'s Key>,
}

/// Returns the records of an address in sound blocks.
pub(crate) fn sound_records<'i>(
    index: &'i Index<'_>,
    address: IpAddr,
) -> impl Iterator<Item = Allocation<'i>> {
    index
        .blocks_around(address)
        .filter_map(move |block| block.sound?.allocation_of(address))
}

/// The number of leaked addresses from which on they are suspicious. In a small cluster, fewer addresses may all be
/// leaked.
const FEW_LEAKS: usize = 50;

/// Returns a kind of object of which none exists, although many addresses look leaked. A cluster without a single node
/// or workload has lost these objects, for example in an incomplete restore, so every address looks unused.
fn missing_evidence(snapshot: &Snapshot, report: &Report) -> Option<&'static str> {
    if report.leaked().take(FEW_LEAKS).count() < FEW_LEAKS {
        return None;
    }
    if snapshot.nodes.is_empty() {
        return Some("node");
    }
    if snapshot.endpoints.is_empty() && snapshot.pods.is_empty() {
        return Some("workload endpoint or pod");
    }
    None
}

impl<'s> Basis<'s> {
    /// Prepares planning from the report of a check; `options` are those of the check. The report must not be filtered:
    /// anything that it does not list counts as healthy. The basis has no earlier reads and a cooldown of 0 until
    /// [`Self::with`] adds them.
    pub fn new(snapshot: &'s Snapshot, report: &'s Report, options: &Options) -> Self {
        Self::of_check(Context::new(snapshot, options), report)
    }

    /// Prepares planning from the context of a check and its report, as [`Self::new`] does.
    pub fn of_check(context: Context<'s>, report: &'s Report) -> Self {
        let snapshot = context.snapshot;
        Self {
            snapshot,
            report,
            context,
            missing_evidence: missing_evidence(snapshot, report),
            findings: report.findings.iter().map(|f| (f.key_ref(), f)).collect(),
            observations: &[],
            cooldown: 0,
            affinities: OnceLock::new(),
            undecodable: OnceLock::new(),
        }
    }

    /// Adds earlier reads of the cluster, and the cooldown of released addresses in seconds.
    #[must_use]
    pub fn with(self, observations: &'s [Observations], cooldown: i64) -> Self {
        Self {
            observations,
            cooldown,
            ..self
        }
    }

    pub fn finding(&self, code: Code, subject: &Subject) -> Option<&'s Finding> {
        self.findings.get(&(code, subject)).copied()
    }

    /// Returns the code of the worst finding about a subject.
    pub fn worst(&self, subject: &Subject) -> Option<Code> {
        let findings = Code::ALL.iter().filter_map(|code| self.finding(*code, subject));
        let worst = findings.min_by_key(|finding| (finding.severity, finding.code))?;
        Some(worst.code)
    }

    /// Returns the findings with this code, in the order of the report.
    pub fn findings(&self, code: Code) -> impl Iterator<Item = &'s Finding> {
        self.report
            .findings
            .iter()
            .filter(move |finding| finding.code == code)
    }

    /// Returns the affinity of a block's owner for that block, unless it is marked deleted.
    pub(crate) fn affinity_of(&self, block: &IndexedBlock<'_>) -> Option<&'s Versioned<Affinity>> {
        let mut of_block = self.affinities_for(block.key).iter().copied();
        of_block.find(|affinity| affinity.value.key.is_of(block.owner) && !affinity.value.deleted)
    }

    /// Returns the affinities for a block, of all holders.
    pub(crate) fn affinities_for(&self, block: IpNet) -> &[&'s Versioned<Affinity>] {
        let by_block = self.affinities.get_or_init(|| {
            let mut by_block: HashMap<IpNet, Vec<&Versioned<Affinity>>> = HashMap::new();
            for affinity in &self.snapshot.affinities {
                by_block
                    .entry(affinity.value.key.cidr)
                    .or_default()
                    .push(affinity);
            }
            by_block
        });
        by_block.get(&block).map_or(&[], Vec::as_slice)
    }

    /// Returns the objects that cannot be decoded.
    pub(crate) fn undecodable(&self) -> &Undecodable<'s> {
        self.undecodable.get_or_init(|| {
            let mut by_path: HashMap<&str, &Key> = HashMap::new();
            for defect in &self.snapshot.defects {
                if let Some(key) = &defect.key {
                    by_path.insert(&defect.path, key);
                }
            }
            Undecodable {
                keys: by_path.values().copied().collect(),
                by_path,
            }
        })
    }

    /// Counts the findings by code.
    pub fn counts(&self) -> BTreeMap<Code, usize> {
        let mut counts = BTreeMap::new();
        for finding in &self.report.findings {
            *counts.entry(finding.code).or_default() += 1;
        }
        counts
    }
}
