//! Causes and cures: what happened to a cluster, and what helps.
//!
//! A cause gathers findings of a report. A cure is a remedy that was tried in memory: the planners that carry it out
//! make the edits, and the allocator is asked again on the changed data. A remedy without an effect is no cure.

mod causes;
mod cure;
mod refusal;
mod trial;

use std::collections::HashSet;

use calipam_check::views::{Asking, Explanation};
use calipam_check::{Code, Context, Finding, FindingKey, Remedy, Report, Scope, Severity};
use jiff::Timestamp;

pub use self::causes::Cause;
use self::causes::Facts;
pub use self::cure::{Cure, Effect, OtherCure};
use self::trial::Trials;
use crate::basis::Basis;
use crate::release::Observations;

/// The largest number of remedies that are tried for one report.
const MOST_TRIALS: usize = 16;

/// The causes of a report's findings, and the cures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    /// The causes, the worst and largest first.
    pub causes: Vec<Cause>,
    /// The cures of findings without a known cause, the worst first.
    pub others: Vec<OtherCure>,
}

impl Advice {
    pub fn is_empty(&self) -> bool {
        self.causes.is_empty() && self.others.is_empty()
    }

    /// Keeps the causes and cures of findings that are still in the report.
    pub fn narrow(&mut self, report: &Report) {
        let remaining: HashSet<_> = report.findings.iter().map(Finding::key_ref).collect();
        let remains = |(code, subject): &FindingKey| remaining.contains(&(*code, subject));
        self.causes.retain(|cause| cause.findings.iter().any(remains));
        self.others.retain(|other| other.of.iter().any(remains));
    }

    /// Returns the first cure of the cause that explains a finding, or else the finding's own cure; `None` if there is
    /// none.
    pub fn cure_of(&self, finding: &Finding) -> Option<&Cure> {
        let is_finding = |(code, subject): &FindingKey| (*code, subject) == finding.key_ref();
        for cause in &self.causes {
            if cause.findings.iter().any(is_finding) {
                return cause.cures.first();
            }
        }
        for other in &self.others {
            if other.of.iter().any(is_finding) {
                return Some(&other.cure);
            }
        }
        None
    }
}

/// Finds causes and cures from the context of a check and its report, which must be complete: not filtered yet.
/// Commands are limited to `scope`.
pub fn advise(context: Context<'_>, report: &Report, scope: &Scope) -> Advice {
    if report.findings.is_empty() {
        return Advice::default();
    }
    let snapshot = context.snapshot;
    let seen = seen_before(report, &context);
    let mut trials = Trials::new(basis(context, report), &seen, scope);
    let mut facts = Facts::new(snapshot, report);

    let mut causes = causes::all(&mut facts);
    for cause in &mut causes {
        cause.try_all(&mut trials);
    }
    for cause in &mut causes {
        cause.gather_symptoms(&mut facts);
    }

    // The refusals come second: only those that are no symptom of another cause have a cause of their own.
    for mut cause in refusal::causes(&mut facts, &trials) {
        cause.try_all(&mut trials);
        cause.gather_symptoms(&mut facts);
        causes.push(cause);
    }
    for cause in &mut causes {
        cause.add_next_step(report);
    }

    let others = others(&facts, &mut trials);
    causes.sort_by_key(|cause| (cause.severity, std::cmp::Reverse(cause.findings.len())));
    Advice { causes, others }
}

/// The cures for a request that gets no address, in the order in which they help: those that act at once come first.
/// `report`, of a check with this context, must be complete. Empty if the request gets an address.
pub fn cures_for(
    context: Context<'_>,
    report: &Report,
    explained: &Explanation,
    asking: Asking<'_>,
) -> Vec<Cure> {
    if !explained.is_refused() {
        return Vec::new();
    }
    let seen = seen_before(report, &context);
    let scope = Scope::default();
    let mut trials = Trials::new(basis(context, report), &seen, &scope).asking(asking, explained);

    let mut cures: Vec<Cure> = Vec::new();
    for remedy in refusal::remedies(explained, report) {
        cures.extend(trials.cure(remedy));
    }
    // A remedy that could not be tried may help.
    cures.retain(|cure| {
        let effect = cure.effect.as_ref();
        effect.is_none_or(|effect| effect.serves_explained())
    });
    cures.sort_by_key(Cure::delay);
    cures
}

/// Tries the remedies of the findings that no cause explains.
fn others(facts: &Facts<'_>, trials: &mut Trials<'_, '_>) -> Vec<OtherCure> {
    let mut open: Vec<(&Finding, Remedy)> = Vec::new();
    for (_, finding) in facts.open(Code::ALL) {
        if let Some(remedy) = finding.remedy() {
            open.push((finding, remedy));
        }
    }

    let remedies = open.iter().map(|(_, remedy)| remedy.clone()).collect();
    let mut others = Vec::new();
    for merged in cure::merged(remedies, trials.rebuild_scope()) {
        let findings = findings_covered(&open, &merged);
        if let Some(cure) = trials.cure(merged) {
            others.push(OtherCure {
                severity: worst(findings.iter().copied()),
                of: findings.into_iter().map(Finding::key).collect(),
                cure,
            });
        }
    }
    others.sort_by_key(|other| (other.severity, std::cmp::Reverse(other.of.len())));
    others
}

/// Returns the findings whose remedies are part of a merged one.
fn findings_covered<'f>(open: &[(&'f Finding, Remedy)], merged: &Remedy) -> Vec<&'f Finding> {
    let mut findings = Vec::new();
    for (finding, remedy) in open {
        if cure::is_part_of(remedy, merged) {
            findings.push(*finding);
        }
    }
    findings
}

/// Returns the findings as if an earlier read had seen them, as in the second read of `release` and `rebuild`.
fn seen_before(report: &Report, context: &Context<'_>) -> Vec<Observations> {
    let observations = Observations::of_report(report);
    let at = context
        .now
        .saturating_sub(context.grace)
        .unwrap_or(Timestamp::MIN);
    vec![Observations { at, ..observations }]
}

/// Prepares trials with the cluster's cooldown, and without earlier reads.
fn basis<'s>(context: Context<'s>, report: &'s Report) -> Basis<'s> {
    let config = context.snapshot.effective_ipam_config();
    let cooldown = config.map_or(0, |config| config.cooldown_seconds.max(0));
    Basis::of_check(context, report).with(&[], cooldown)
}

/// The worst severity of findings.
fn worst<'f>(findings: impl Iterator<Item = &'f Finding>) -> Severity {
    findings
        .map(|finding| finding.severity)
        .min()
        .unwrap_or(Severity::Info)
}

/// True for what cannot be tried: the effect is outside the datastore.
fn is_outside(remedy: &Remedy) -> bool {
    matches!(
        remedy,
        Remedy::RestartPod { .. } | Remedy::RestartCalicoNode(_) | Remedy::UndoRun | Remedy::Explain(_)
    )
}
