//! Whether a simulated plan does what it claims, and nothing else.

use std::collections::HashSet;
use std::fmt;

use calipam_check::{Code, Finding, Report, Subject};

use crate::plan::Plan;

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
/// judged, and is judged after the plan has mended it, is nothing new.
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
    let new: Vec<Finding> = after
        .findings
        .iter()
        .filter(|f| !earlier.contains(&(f.code, f.subject.clone())))
        .filter(|f| !was_hidden(before, f) && !is_forced(plan, f))
        .cloned()
        .collect();
    if remaining.is_empty() && new.is_empty() { Ok(()) } else { Err(Refusal { remaining, new }) }
}

/// True where the finding is about an address on which the operator insists.
fn is_forced(plan: &Plan, finding: &Finding) -> bool {
    finding.addresses().iter().any(|address| plan.forced.contains(address))
}

/// True where the finding is about something that a broken block hid from the earlier report.
fn was_hidden(before: &Report, finding: &Finding) -> bool {
    let broken = before.findings.iter().filter(|f| f.code == Code::CorruptBlock);
    let mut broken = broken.filter_map(|f| f.subject.network());
    let addresses = finding.addresses();
    broken.any(|block| {
        finding.subject.network().is_some_and(|network| calipam_model::cidr::overlap(block, network))
            || addresses.iter().any(|address| block.contains(address))
    })
}
