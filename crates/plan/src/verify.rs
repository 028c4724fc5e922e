//! Whether a simulated plan does what it claims, and nothing else.

use std::collections::HashSet;
use std::fmt;

use calipam_check::{Code, Finding, Report, Subject};

use crate::plan::{Change, Plan, Verb};

/// Why a plan must not be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Findings that it claims to repair and that would still be there.
    pub remaining: Vec<(Code, Subject)>,
    /// Findings that are not there now and would be afterwards.
    pub new: Vec<Finding>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = match (self.new.first(), self.remaining.first()) {
            (Some(finding), _) => {
                format!("it would create {} {}: {}", finding.code, finding.subject, finding.message)
            }
            (None, Some((code, subject))) => format!("it would not repair {code} {subject}"),
            (None, None) => return f.write_str("it does what it claims"),
        };
        let more = self.new.len() + self.remaining.len() - 1;
        f.write_str(&first)?;
        if more > 0 { write!(f, " (and {more} more)") } else { Ok(()) }
    }
}

/// Compares the report on the simulated data with the one that the plan was made from, both of which must
/// be whole: neither filtered nor settled in different ways. What lay under a block that could not be
/// judged, and is judged after the plan has mended it, is nothing new; nor is what shows only because an
/// address in use is recorded at last.
///
/// # Errors
/// Where a finding that the plan claims to repair remains, or a new one appears.
pub fn verify(before: &Report, plan: &Plan, after: &Report) -> Result<(), Refusal> {
    let found = |report: &Report| -> HashSet<(Code, Subject)> {
        report.findings.iter().map(|f| (f.code, f.subject.clone())).collect()
    };
    let (earlier, later) = (found(before), found(after));
    let claimed = plan.changes().flat_map(|change| &change.repairs);
    let mut remaining: Vec<_> = claimed.filter(|repair| later.contains(*repair)).cloned().collect();
    remaining.sort();
    remaining.dedup();
    let revealed = revealed(before, plan);
    let new: Vec<Finding> = after
        .findings
        .iter()
        .filter(|f| !earlier.contains(&(f.code, f.subject.clone())))
        .filter(|f| !revealed.contains(&(f.code, &f.subject)))
        .filter(|f| !is_told_now(plan, f) && !is_forced(plan, f))
        .cloned()
        .collect();
    if remaining.is_empty() && new.is_empty() { Ok(()) } else { Err(Refusal { remaining, new }) }
}

/// True where the finding is about an address on which the operator insists.
fn is_forced(plan: &Plan, finding: &Finding) -> bool {
    finding.addresses().iter().any(|address| plan.forced.contains(address))
}

/// What corrupt blocks have hidden from the earlier report, where the plan mends any that it found.
fn revealed<'p>(before: &Report, plan: &'p Plan) -> HashSet<(Code, &'p Subject)> {
    let corrupt = before.findings.iter().filter(|found| found.code == Code::CorruptBlock);
    let corrupt: HashSet<&Subject> = corrupt.map(|found| &found.subject).collect();
    let mut repairs = plan.changes().flat_map(|change| &change.repairs);
    if !repairs.any(|(code, subject)| *code == Code::CorruptBlock && corrupt.contains(subject)) {
        return HashSet::new();
    }
    plan.revealed.iter().map(|(code, subject)| (*code, subject)).collect()
}

/// True where the finding counts or places what is recorded, and the plan records what was so already: a pool was
/// as full before, and a node had as many blocks.
fn is_told_now(plan: &Plan, finding: &Finding) -> bool {
    let counts = matches!(
        finding.code,
        Code::PoolNearlyFull
            | Code::StrandedAddresses
            | Code::NodeOverBlockLimit
            | Code::BorrowedUnderStrictAffinity
            | Code::BorrowedTunnelAddress
    );
    let records = |change: &Change| {
        let verb = matches!(
            change.action,
            Verb::AssignAddress | Verb::RewriteOwner | Verb::CreateBlock | Verb::CreateAffinity
        );
        let changed = change.subject.network();
        verb && match &finding.subject {
            Subject::Node(_) => true,
            subject => subject
                .network()
                .zip(changed)
                .is_some_and(|(found, changed)| calipam_model::cidr::overlap(found, changed)),
        }
    };
    counts && plan.changes().any(records)
}
