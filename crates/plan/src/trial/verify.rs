//! Verifies that a tried plan does what it claims, and nothing else.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use calipam_check::{Code, Finding, FindingKey, Report, Subject};
use calipam_model::{IpNet, cidr};

use crate::plan::{Plan, Verb};

/// The reason why a plan must not be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialRefusal {
    /// Findings that the plan claims to repair, but that would remain.
    pub remaining: Vec<(Code, Subject)>,
    /// Findings that do not exist now, but would exist afterwards.
    pub new: Vec<Finding>,
}

impl std::error::Error for TrialRefusal {}

impl fmt::Display for TrialRefusal {
    /// Writes the first finding that the plan would create or would not repair, and the number of others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(finding) = self.new.first() {
            let message = finding.message();
            write!(
                f,
                "it would create {} {}: {message}",
                finding.code, finding.subject
            )?;
        } else if let Some((code, subject)) = self.remaining.first() {
            write!(f, "it would not repair {code} {subject}")?;
        } else {
            return f.write_str("it does what it claims");
        }

        let further = self.new.len() + self.remaining.len() - 1;
        if further > 0 {
            write!(f, " (and {further} more)")?;
        }
        Ok(())
    }
}

/// The findings of a report without their evidence.
pub struct FindingSet(HashSet<(Code, Subject)>);

impl From<&Report> for FindingSet {
    fn from(report: &Report) -> Self {
        Self(report.findings.iter().map(|f| f.key()).collect())
    }
}

impl From<Report> for FindingSet {
    fn from(report: Report) -> Self {
        Self(report.findings.into_iter().map(|f| (f.code, f.subject)).collect())
    }
}

impl FindingSet {
    /// Compares the report on the data of the trial with these findings, from which the plan was made. Both must be
    /// filtered and rechecked in the same way, or not at all.
    ///
    /// Findings that a corrupt block hid until the plan repaired it are not new. Neither are findings about forced
    /// addresses, nor those that appear only because the plan records an address in use. An affinity whose block was
    /// never its node's is no worse off when that block is deleted.
    pub fn verify(&self, plan: &Plan, after: &Report) -> Result<(), TrialRefusal> {
        let remaining = Self::from(after).claimed_by(plan);
        let revealed = self.revealed(plan);
        let forced: HashSet<IpAddr> = plan.forced.iter().copied().collect();
        let recorded = Recorded::new(plan);
        let mut new: Vec<Finding> = Vec::new();
        for finding in &after.findings {
            let is_known = self.0.contains(&finding.key())
                || revealed.contains(&finding.key_ref())
                || self.had_mismatch(finding);
            let is_about_forced = || finding.addresses().iter().any(|address| forced.contains(address));
            if !is_known && !recorded.explains(finding) && !is_about_forced() {
                new.push(finding.clone());
            }
        }

        if remaining.is_empty() && new.is_empty() {
            return Ok(());
        }
        Err(TrialRefusal { remaining, new })
    }

    /// Returns true if the finding is that an affinity has no block, and before, its block belonged to another node or
    /// to none. A block without owner is deleted with its last address, as in Calico.
    fn had_mismatch(&self, finding: &Finding) -> bool {
        finding.code == Code::AffinityWithoutBlock
            && self
                .0
                .contains(&(Code::AffinityBlockMismatch, finding.subject.clone()))
    }

    /// Returns those of these findings that the plan claims to repair.
    fn claimed_by(&self, plan: &Plan) -> Vec<FindingKey> {
        let repairs = plan.changes().flat_map(|change| &change.repairs);
        let mut claimed: Vec<FindingKey> = repairs
            .filter(|repair| self.0.contains(*repair))
            .cloned()
            .collect();
        claimed.sort();
        claimed.dedup();
        claimed
    }

    /// Returns the findings that corrupt blocks hid, if the plan repairs one of these blocks.
    fn revealed<'p>(&self, plan: &'p Plan) -> HashSet<(Code, &'p Subject)> {
        let mut repairs = plan.changes().flat_map(|change| &change.repairs);
        if !repairs.any(|repair| repair.0 == Code::CorruptBlock && self.0.contains(repair)) {
            return HashSet::new();
        }
        plan.revealed
            .iter()
            .map(|(code, subject)| (*code, subject))
            .collect()
    }
}

/// The networks and single addresses in which a plan only records the actual state.
struct Recorded {
    networks: HashSet<IpNet>,
}

impl Recorded {
    /// Collects the networks of the addresses, blocks and affinities that a plan records.
    fn new(plan: &Plan) -> Self {
        let mut recorded = Self {
            networks: Default::default(),
        };
        for change in plan.changes() {
            if matches!(
                change.action,
                Verb::AssignAddress | Verb::RewriteOwner | Verb::CreateBlock | Verb::CreateAffinity
            ) {
                recorded.networks.extend(change.subject.network());
            }
        }
        recorded
    }

    /// Returns true if the finding is new only because it counts what the plan records.
    fn explains(&self, finding: &Finding) -> bool {
        let is_about_counts = matches!(
            finding.code,
            Code::PoolNearlyFull
                | Code::NodeWithoutAddresses
                | Code::PodWithoutAddress
                | Code::NodeOverBlockLimit
                | Code::BorrowedUnderStrictAffinity
                | Code::BorrowedTunnelAddress
        );

        if !is_about_counts {
            return false;
        }

        if let Subject::Node(_) | Subject::Cluster(_) | Subject::Endpoint(_) = finding.subject {
            return !self.networks.is_empty();
        }
        let Some(network) = finding.subject.network() else {
            return false;
        };
        // Most findings are about an address, and most changes record one.
        if self.networks.contains(&network) {
            return true;
        }
        let mut recorded = self.networks.iter();
        recorded.any(|other| cidr::overlap(network, *other))
    }
}
