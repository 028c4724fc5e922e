//! The sections of the page about findings: what to do about each kind of finding, the list of findings with evidence
//! and repair commands, and explanations of the codes.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::{Changes, Code, EarlierFinding, Finding, Remedy, Report, Severity, Subject};
use calipam_plan::advice::Advice;
use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::causes::{self, cures_of};
use crate::hints::{self, for_cluster, remedy};
use crate::render::explanation;
use crate::render::findings::Found;
use crate::render::html::{compact, evidence, head, long};
use crate::render::report::changes;
use crate::render::text::{escape, thousands};
use crate::render::wrap::shorten_handles;

/// The maximum number of findings in the table. If there are more, each code gets a share.
const ROWS: usize = 6_000;
/// The maximum number of findings with evidence.
const DETAILED: usize = 1_000;

/// Creates a table with a row for each kind of finding: the count, an example, and what to do.
pub(in crate::render) fn kinds(findings: &[Found<'_>], advice: &[&Advice]) -> Markup {
    let kinds = Found::kinds(findings);
    let table = html! {
        table #kinds-table .cards {
            (head(&["Severity", "Code"], &["Count"], &["For example", "What to do"]))
            tbody { @for kind in &kinds { (row_of_kind(kind, advice)) } }
        }
    };
    html! {
        section #kinds {
            h2 { "What to do" }
            @if kinds.is_empty() { p { "Nothing: there are no findings." } } @else { div.scroll { (compact(table)) } }
        }
    }
}

/// Creates the row of a kind of finding. `findings` are those of this kind; the first one is the example. `advice` is
/// that of each cluster. The commands are for the cluster of the example, since others have other nodes and blocks.
fn row_of_kind(findings: &[Found<'_>], advice: &[&Advice]) -> Markup {
    let Some(example) = findings.first() else {
        return html! {};
    };
    let Found {
        finding,
        cluster,
        place,
        ..
    } = *example;

    let message = finding.message();
    let short_message = shorten_handles(&message).unwrap_or(message);

    html! {
        tr {
            td class=(finding.severity) { (finding.severity) }
            td { (code(finding)) }
            td.number { (number_of_findings(finding.code, findings)) }
            td { @if !cluster.is_empty() { (escape(cluster)) ": " } (escape(&short_message)) }
            td { (what_to_do(finding.code, cluster, advice.get(place).copied())) }
        }
    }
}

/// Formats the number of the findings with a code, as a link that filters the list. If some are new, or they are in
/// several clusters, adds these numbers.
fn number_of_findings(code: Code, findings: &[Found<'_>]) -> Markup {
    let number_new = findings.iter().filter(|found| found.is_new_or_worse()).count();
    let clusters: BTreeSet<usize> = findings.iter().map(|found| found.place).collect();
    html! {
        a href="#findings" data-filter=(code) title={ "show " (code) } { (thousands(findings.len())) }
        @if number_new > 0 { " (" (thousands(number_new)) " new)" }
        @if clusters.len() > 1 { " in " (thousands(clusters.len())) " clusters" }
    }
}

/// Formats the cures of the findings with a code or, if there are none, the advice in the code's documentation.
fn what_to_do(code: Code, cluster: &str, advice: Option<&Advice>) -> Markup {
    let cures = advice.map(|advice| cures_of(advice, code)).unwrap_or_default();
    html! {
        @if cures.is_empty() { (documented(code)) }
        @for cure in &cures { (causes::repair(cure, cluster)) }
    }
}

fn code(finding: &Finding) -> Markup {
    html! { a href={ "#code-" (finding.code) } { (finding.code) } }
}

/// Formats the command of a remedy. In a fleet, also names the cluster that the command is for.
fn repair(remedy: &Remedy, cluster: &str) -> Markup {
    html! {
        p.repair {
            @if !cluster.is_empty() { "in " (escape(cluster)) ": " }
            (remedy::purpose(remedy)) ": "
            code { (for_cluster(cluster, || remedy::in_document(remedy))) }
        }
    }
}

/// Formats the first sentence of a code's documentation about what to do, with a link to the rest if there is more.
fn documented(code: Code) -> Markup {
    // An explanation without this part is replaced by the summary.
    let advice = match explanation::text(code).split_once("**What to do.** ") {
        Some((_, advice)) => advice,
        None => code.summary(),
    };
    let Some(first_sentence) = first_of_several_sentences(advice) else {
        return markdown(advice);
    };
    html! {
        (markdown(&format!("{first_sentence}.")))
        " "
        a href={ "#code-" (code) } { "More" }
    }
}

/// Returns the first sentence of a text without its full stop, or without the colon before a list. Returns `None` if
/// the text is a single sentence.
fn first_of_several_sentences(text: &str) -> Option<&str> {
    let ends_of_sentences = [". ", ".\n", ":\n"];
    let first_end = ends_of_sentences
        .into_iter()
        .filter_map(|end| text.find(end))
        .min()?;
    Some(&text[..first_end])
}

/// Creates the list of findings: the first ones of each code, some of them with evidence.
pub(in crate::render) fn list(findings: &[Found<'_>]) -> Markup {
    let Some(first) = findings.first() else {
        return html! { p { "No findings." } };
    };

    let mut numbers: BTreeMap<Code, usize> = BTreeMap::new();
    for found in findings {
        *numbers.entry(found.finding.code).or_default() += 1;
    }
    // Each code gets a share of the rows, and of those with evidence.
    let rows_of_code = shares_of_codes(&numbers, ROWS);
    let detailed_of_code = shares_of_codes(&numbers, DETAILED);

    let mut rows = Vec::new();
    let mut last_positions: BTreeMap<Code, usize> = BTreeMap::new();
    for found in findings {
        let code = found.finding.code;
        let position = last_positions.entry(code).or_default();
        *position += 1;
        if *position <= rows_of_code[&code] {
            let is_detailed = *position <= detailed_of_code[&code];
            rows.push(row(*found, is_detailed));
        }
    }

    let mut titles = vec!["Severity", "Code", "Subject", "Finding"];
    let is_fleet = !first.cluster.is_empty();
    if is_fleet {
        titles.insert(0, "Cluster");
    }
    let table = html! {
        table #findings-table .cards data-filtered="findings" {
            (head(&titles, &[], &[]))
            tbody { @for row in rows { (row) } }
        }
    };

    let mut left_out = Vec::new();
    for (code, number) in &numbers {
        let shown = rows_of_code[code];
        if shown < *number {
            left_out.push(format!("{} × {code}", thousands(number - shown)));
        }
    }
    html! {
        @if !left_out.is_empty() {
            p.notice {
                "This page shows the first findings of each code. Left out: " (left_out.join(", ")) ". All of them: "
                code { (hints::findings_in_document()) }
            }
        }
        (filtered("findings", table))
    }
}

/// Adds a button to a table whose rows the controls filter. The first hundred rows are shown until the button shows
/// all.
pub(in crate::render) fn filtered(name: &str, table: Markup) -> Markup {
    html! {
        p.script.dim id={ (name) "-shown" } aria-live="polite" {}
        div.scroll { (compact(table)) }
        p.script { button id={ (name) "-all" } type="button" hidden {} }
    }
}

/// Creates the section about changes since the earlier report.
pub(super) fn changes(changes: &Changes, report: &Report) -> Markup {
    html! {
        section #changes {
            h2 { "Changes" }
            @for line in changes::lines(report) { p { (line) } }
            @for (title, findings) in [("Gone", &changes.gone), ("Not checked", &changes.not_checked)] {
                @if !findings.is_empty() { (absent(title, findings)) }
            }
        }
    }
}

/// Lists findings that only the earlier report has.
fn absent(title: &str, findings: &[EarlierFinding]) -> Markup {
    html! {
        details {
            summary { (title) ": " (thousands(findings.len())) }
            ul { @for finding in findings.iter().take(DETAILED) {
                li { (escape(&finding.code)) " " span.mono { (escape(&finding.subject.name)) } ": " (escape(&finding.message)) }
            } }
            @if findings.len() > DETAILED { p.dim { "and " (thousands(findings.len() - DETAILED)) " more" } }
        }
    }
}

/// Creates the section with the documentation of the codes.
pub(in crate::render) fn meanings(findings: &[Found<'_>]) -> Markup {
    let codes: BTreeSet<Code> = findings.iter().map(|found| found.finding.code).collect();
    html! {
        @if !codes.is_empty() {
            section #codes {
                h2 { "What the codes mean" }
                @for code in codes { (meaning(code)) }
            }
        }
    }
}

/// Divides `places` among the codes by their numbers of findings; see [`share`].
fn shares_of_codes(numbers: &BTreeMap<Code, usize>, places: usize) -> BTreeMap<Code, usize> {
    let shares = share(numbers.values().copied(), places);
    numbers.keys().copied().zip(shares).collect()
}

/// Divides `places` among codes with these numbers of findings, and returns the number of places of each code. Codes
/// with few findings get a place for all of them, and the others equal shares.
fn share(numbers: impl Iterator<Item = usize> + Clone, places: usize) -> Vec<usize> {
    let fits = |share: usize| numbers.clone().map(|number| number.min(share)).sum::<usize>() <= places;
    // Searches for the largest share that fits, by halving the interval in which it is.
    let mut largest = 0;
    let mut limit = places;
    while largest < limit {
        let middle = (largest + limit).div_ceil(2);
        if fits(middle) {
            largest = middle;
        } else {
            limit = middle - 1;
        }
    }
    numbers.map(|number| number.min(largest)).collect()
}

/// Creates the inputs that filter findings.
pub(in crate::render) fn controls() -> Markup {
    html! {
        div.controls.script {
            label { "Filter " input #filter type="search" placeholder="10.244.1.7, node-1, leaked"; }
            label { "Severity " select #severity {
                option value="" { "all" }
                @for severity in Severity::ALL { option value=(severity) { (severity) } }
            } }
        }
    }
}

/// Creates a row without redundant attributes, since a page has thousands of rows. The script takes the severity, code
/// and subject from the cells. Most subjects are addresses, so only other subjects have an attribute for their kind.
fn row(found: Found<'_>, is_detailed: bool) -> Markup {
    let Found {
        finding,
        cluster,
        change,
        ..
    } = found;
    let subject = finding.subject.to_string();
    let is_address = matches!(finding.subject, Subject::Address(_));
    let kind = if is_address {
        None
    } else {
        Some(finding.subject.kind())
    };
    html! {
        tr data-kind=[kind] {
            @if !cluster.is_empty() { td class=[long(cluster)] { (escape(cluster)) } }
            td class=(finding.severity) { (finding.severity) }
            td { (code(finding)) }
            td class=[long(&subject)] { (escape(&subject)) }
            td {
                @if let Some(change) = change && change.is_new_or_worse() { strong { (change) } " " }
                (message(finding, cluster, is_detailed))
            }
        }
    }
}

/// Formats the message of a finding. The repair command and the evidence are folded below it, if it `is_detailed`.
fn message(finding: &Finding, cluster: &str, is_detailed: bool) -> Markup {
    let message = finding.message();
    if !is_detailed {
        return html! { (escape(&message)) };
    }
    html! {
        details {
            summary { (escape(&message)) }
            @if let Some(remedy) = finding.remedy() { (repair(&remedy, cluster)) }
            (evidence(&finding.evidence))
        }
    }
}

/// Creates the explanation of a code from its section in `docs/findings.md`.
fn meaning(code: Code) -> Markup {
    html! {
        details #{ "code-" (code) } {
            summary { strong { (code) } ": " (code.summary()) }
            (markdown(explanation::text(code)))
        }
    }
}

/// Converts documentation to HTML. Links to other files do not work in a single page, so only their text is kept.
fn markdown(text: &str) -> Markup {
    let parser = Parser::new_ext(text, Options::ENABLE_TABLES);
    let events = parser.filter(|event| {
        !matches!(
            event,
            Event::Start(Tag::Link { .. }) | Event::End(TagEnd::Link) | Event::Html(_) | Event::InlineHtml(_)
        )
    });
    let mut page = String::new();
    pulldown_cmark::html::push_html(&mut page, events);
    PreEscaped(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_codes_are_shown_whole_and_large_ones_share_the_rest() {
        let share = |numbers: &[usize], places| share(numbers.iter().copied(), places);
        assert_eq!(share(&[3, 100_000, 5, 900], 1000), [3, 496, 5, 496]);
        assert_eq!(share(&[3, 5], 1000), [3, 5]);
        assert_eq!(share(&[3, 5], 1), [0, 0]);
        assert_eq!(share(&[], 10), [] as [usize; 0]);
    }

    #[test]
    fn every_code_has_short_advice() {
        for code in Code::ALL {
            let text = documented(*code).into_string();
            assert!(
                text.starts_with("<p>") && text.contains(".</p>\n"),
                "{code}: {text}"
            );
            assert!(text.len() < 300, "{code}: {text}");
        }
        assert_eq!(
            documented(Code::PodWithoutEndpoint).into_string(),
            "<p>Restart the pod.</p>\n"
        );
        let begun = "<p>Disable the pool, and drain one of the two blocks, if possible the smaller one, until it is empty and\n\
                     released.</p>\n <a href=\"#code-overlapping-blocks\">More</a>";
        assert_eq!(documented(Code::OverlappingBlocks).into_string(), begun);
    }

    #[test]
    fn documentation_becomes_html_without_links() {
        let page = markdown("A *b* [c](d.md).\n\n| x |\n|---|\n| `<y>` |\n").into_string();
        assert!(
            page.contains("<em>b</em> c.") && page.contains("<code>&lt;y&gt;</code>"),
            "{page}"
        );
        assert!(!page.contains("href"), "{page}");
    }
}
