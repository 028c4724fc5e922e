//! Verifies that a tried plan does what it claims, and nothing else.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use calipam_check::{Code, Finding, Report, Subject};
use calipam_model::{IpNet, cidr};

use crate::plan::{Change, Plan, Verb};

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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = match (self.new.first(), self.remaining.first()) {
            (Some(finding), _) => {
                format!(
                    "it would create {} {}: {}",
                    finding.code,
                    finding.subject,
                    finding.message()
                )
            }
            (None, Some((code, subject))) => format!("it would not repair {code} {subject}"),
            (None, None) => return f.write_str("it does what it claims"),
        };
        let more = self.new.len() + self.remaining.len() - 1;
        f.write_str(&first)?;
        if more > 0 {
            write!(f, " (and {more} more)")
        } else {
            Ok(())
        }
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
    /// addresses, nor those that appear only because the plan records an address in use.
    pub fn verify(&self, plan: &Plan, after: &Report) -> Result<(), TrialRefusal> {
        let later = Self::from(after);
        let claimed = plan.changes().flat_map(|change| &change.repairs);
        let mut remaining: Vec<_> = claimed
            .filter(|repair| later.0.contains(*repair))
            .cloned()
            .collect();
        remaining.sort();
        remaining.dedup();
        let revealed = self.revealed(plan);

        let forced: HashSet<IpAddr> = plan.forced.iter().copied().collect();
        let recorded = Recorded::new(plan);
        let new: Vec<Finding> = after
            .findings
            .iter()
            .filter(|f| !self.0.contains(&f.key()))
            .filter(|f| !revealed.contains(&f.key_ref()))
            .filter(|f| {
                !recorded.explains(f) && !f.addresses().iter().any(|address| forced.contains(address))
            })
            .cloned()
            .collect();

        if remaining.is_empty() && new.is_empty() {
            Ok(())
        } else {
            Err(TrialRefusal { remaining, new })
        }
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
    fn new(plan: &Plan) -> Self {
        let records = |change: &&Change| {
            matches!(
                change.action,
                Verb::AssignAddress | Verb::RewriteOwner | Verb::CreateBlock | Verb::CreateAffinity
            )
        };
        let changes = plan.changes().filter(records);
        Self {
            networks: changes.filter_map(|change| change.subject.network()).collect(),
        }
    }

    /// Returns true if the finding is new only because it counts what the plan records.
    fn explains(&self, finding: &Finding) -> bool {
        let counts = matches!(
            finding.code,
            Code::PoolNearlyFull
                | Code::NodeWithoutAddresses
                | Code::PodWithoutAddress
                | Code::NodeOverBlockLimit
                | Code::BorrowedUnderStrictAffinity
                | Code::BorrowedTunnelAddress
        );

        counts
            && match (&finding.subject, finding.subject.network()) {
                (Subject::Node(_) | Subject::Cluster(_) | Subject::Endpoint(_), _) => {
                    !self.networks.is_empty()
                }
                (_, Some(found)) => {
                    // Most findings are about an address, and most changes record one.
                    self.networks.contains(&found)
                        || self
                            .networks
                            .iter()
                            .any(|recorded| cidr::overlap(found, *recorded))
                }
                _ => false,
            }
    }
}
