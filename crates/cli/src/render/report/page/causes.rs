//! The section of the page about causes and cures.

use calipam_check::{Code, FindingKey, Severity};
use calipam_plan::advice::{Advice, Cause, Cure};
use maud::{Markup, html};

use crate::hints::{cure, for_cluster, remedy};
use crate::render::html::{compact, head};
use crate::render::text::{escape, thousands};

/// The largest number of causes in the section.
const MOST: usize = 200;
/// The largest number of cures for a code.
const MOST_CURES: usize = 3;

/// Creates the section with a row for each cause, the worst first: what happened, and what helps. Each cluster comes
/// with its name, which is empty if there is only one.
pub(in crate::render) fn causes<'a>(clusters: impl Iterator<Item = (&'a str, &'a Advice)>) -> Markup {
    let mut causes: Vec<(&str, &Cause)> = Vec::new();
    for (name, advice) in clusters {
        for cause in &advice.causes {
            causes.push((name, cause));
        }
    }
    causes.sort_by_key(|(_, cause)| cause.severity);
    let table = html! {
        table #causes-table .cards {
            (head(&["Severity"], &["Findings"], &["What happened", "What helps"]))
            tbody { @for (name, cause) in causes.iter().take(MOST) { (row(name, cause)) } }
        }
    };
    html! {
        @if !causes.is_empty() {
            section #causes {
                h2 { "Causes" }
                div.scroll { (compact(table)) }
                @if causes.len() > MOST { p.dim { "and " (thousands(causes.len() - MOST)) " more" } }
            }
        }
    }
}

/// Creates the row of a cause, with its cures.
fn row(cluster: &str, cause: &Cause) -> Markup {
    let severity: Severity = cause.severity;
    html! {
        tr {
            td class=(severity) { (severity) }
            td.number { (thousands(cause.findings.len())) }
            td { @if !cluster.is_empty() { (escape(cluster)) ": " } (escape(&cause.says)) }
            td { @for cure in &cause.cures { (repair(cure, cluster)) } }
        }
    }
}

/// Returns the cures of the findings with a code, at most [`MOST_CURES`]: the first cure of each of their causes or, if
/// they have no cause, their own cures.
pub(super) fn cures_of(advice: &Advice, code: Code) -> Vec<&Cure> {
    let has_code = |findings: &[FindingKey]| findings.iter().any(|(other, _)| *other == code);
    let mut cures: Vec<&Cure> = Vec::new();
    for cause in &advice.causes {
        if has_code(&cause.findings) {
            cures.extend(cause.cures.first());
        }
    }
    if cures.is_empty() {
        let others = advice.others.iter().filter(|other| has_code(&other.of));
        cures.extend(others.map(|other| &other.cure));
    }
    // Several causes can have the same cure.
    let mut different: Vec<&Cure> = Vec::new();
    for cure in cures {
        if different.len() < MOST_CURES && different.iter().all(|other| other.remedy != cure.remedy) {
            different.push(cure);
        }
    }
    different
}

/// Formats a cure. In a fleet, also names the cluster that the command is for.
pub(super) fn repair(Cure { remedy, effect, .. }: &Cure, cluster: &str) -> Markup {
    html! {
        p.repair {
            @if !cluster.is_empty() { "in " (escape(cluster)) ": " }
            (remedy::purpose(remedy)) ": "
            code { (for_cluster(cluster, || remedy::in_document(remedy))) }
            @match effect {
                Some(effect) => { " " span.dim { (escape(&cure::outcome(effect))) } }
                None => { " " span.dim { "(cannot be tried in advance)" } }
            }
        }
    }
}
