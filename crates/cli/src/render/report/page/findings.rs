//! The findings of the page, each with evidence and the command that repairs it, and explanations of their codes.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::{Changes, Code, EarlierFinding, Finding, Report, Severity, Subject};
use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{compact, long};
use crate::hints::{self, remedy};
use crate::render::explanation;
use crate::render::findings::Found;
use crate::render::report::changes;
use crate::render::text::{escape, thousands};
use crate::render::yaml;

/// The maximum number of findings in the table. If there are more, each code gets a share.
const ROWS: usize = 6_000;
/// The maximum number of findings with evidence.
const DETAILED: usize = 1_000;

/// The findings of a page by code: their number, and how many of them the page omits.
pub(in crate::render) type Numbers = BTreeMap<Code, [usize; 2]>;

/// Returns the numbers, and the rows: the first findings of each code, some of them with evidence.
pub(in crate::render) fn rows(
    findings: &[Found<'_>],
    row: impl Fn(Found<'_>, bool) -> Markup,
) -> (Numbers, Vec<Markup>) {
    let mut numbers: BTreeMap<Code, usize> = BTreeMap::new();
    findings.iter().for_each(|of| *numbers.entry(of.finding.code).or_default() += 1);
    let shares = |places| -> BTreeMap<Code, usize> {
        numbers.keys().copied().zip(share(numbers.values().copied(), places)).collect()
    };
    let (shown, detailed) = (shares(ROWS), shares(DETAILED));
    let mut written: BTreeMap<Code, usize> = BTreeMap::new();
    let rows = findings.iter().filter_map(|of| {
        let code = of.finding.code;
        let number = written.entry(code).or_default();
        *number += 1;
        (*number <= shown[&code]).then(|| row(*of, *number <= detailed[&code]))
    });
    let rows = rows.collect();
    (numbers.iter().map(|(code, number)| (*code, [*number, number - shown[code]])).collect(), rows)
}

pub(super) fn section(report: &Report) -> Markup {
    let (numbers, rows) = rows(&Found::all_of(report, 0, "").collect::<Vec<_>>(), row);
    if numbers.is_empty() {
        return html! { section #findings { h2 { "Findings" } p { "No findings." } } };
    }
    let table = html! {
        table #findings-table {
            thead { tr { th scope="col" { "Severity" } th scope="col" { "Code" } th scope="col" { "Subject" } th scope="col" { "Finding" } } }
            tbody { @for row in rows { (row) } }
        }
    };
    html! {
        section #findings {
            h2 { "Findings" }
            (controls(&numbers))
            (left_out(&numbers))
            div.scroll { (compact(table)) }
            p #findings-more hidden { button #findings-all type="button" {} }
        }
    }
}

/// The changes since the earlier report.
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

pub(in crate::render) fn meanings(codes: BTreeSet<Code>) -> Markup {
    html! {
        @if !codes.is_empty() {
            section #codes {
                h2 { "What the codes mean" }
                @for code in codes { (meaning(code)) }
            }
        }
    }
}

/// Divides `places` among codes: those with few findings are shown completely, and the others get equal shares.
fn share(numbers: impl Iterator<Item = usize> + Clone, places: usize) -> Vec<usize> {
    let sum_up_to = |limit: usize| numbers.clone().map(|number| number.min(limit)).sum::<usize>();
    let (mut low, mut high) = (0, places);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if sum_up_to(middle) <= places { low = middle } else { high = middle - 1 }
    }
    numbers.map(|number| number.min(low)).collect()
}

fn controls(numbers: &Numbers) -> Markup {
    html! {
        div.controls.script {
            label { "Filter " input #filter type="search" placeholder="10.244.1.7, node-1, default/web"; }
            (choice_of_severity())
            label { "Code " select #code {
                option value="" { "all" }
                @for (code, [number, _]) in numbers { option value=(code) { (code) " (" (thousands(number)) ")" } }
            } }
            span #findings-shown .dim aria-live="polite" {}
        }
    }
}

pub(in crate::render) fn choice_of_severity() -> Markup {
    html! {
        label { "Severity " select #severity {
            option value="" { "all" }
            @for severity in Severity::ALL { option value=(severity) { (severity) } }
        } }
    }
}

/// The numbers of findings that the page omits, by code.
fn left_out(numbers: &Numbers) -> Markup {
    let left_out: Vec<_> = numbers.iter().filter(|(_, [_, left_out])| *left_out > 0).collect();
    html! {
        @if !left_out.is_empty() {
            p.notice {
                "This page shows the first findings of each code. Left out: "
                @for (index, (code, [_, number])) in left_out.iter().enumerate() {
                    @if index > 0 { ", " } (thousands(number)) " × " (code)
                }
                ". All of them: " code { (hints::command_in_document(&["check", "-o", "json"])) }
            }
        }
    }
}

/// A row without any repetition, since there are thousands: the script takes severity, code and subject from the cells.
/// Most subjects are addresses; only other subjects name their kind.
fn row(of: Found<'_>, detailed: bool) -> Markup {
    let finding = of.finding;
    let subject = &finding.subject;
    let kind = (!matches!(subject, Subject::Address(_))).then(|| subject.kind());
    html! {
        tr data-kind=[kind] {
            td class=(finding.severity) { (finding.severity) }
            td { a href={ "#code-" (finding.code) } { (finding.code) } }
            td class=[long(&subject.to_string())] { (escape(&subject.to_string())) }
            (says(of, detailed))
        }
    }
}

/// The cell with the message of a finding, its change and its evidence.
pub(in crate::render) fn says(of: Found<'_>, detailed: bool) -> Markup {
    let message = of.finding.message();
    html! {
        td {
            @if let Some(change) = of.change.filter(|change| change.is_news()) { strong { (change) } " " }
            @if detailed { details { summary { (escape(&message)) } (details(of.finding)) } } @else { (escape(&message)) }
        }
    }
}

fn details(finding: &Finding) -> Markup {
    let mut evidence = Vec::new();
    // Neither serializing evidence, as `-o yaml` does, nor writing to memory can fail.
    let _ = yaml::write(&finding.evidence, &mut evidence);
    let evidence = String::from_utf8_lossy(&evidence);
    let evidence: Vec<_> = evidence.lines().map(escape).collect();
    html! {
        @if let Some(remedy) = finding.remedy() {
            p { "Repair: " code { (remedy::in_document(&remedy)) } }
        }
        pre { (evidence.join("\n")) }
    }
}

/// A section of `docs/findings.md`.
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
    fn documentation_becomes_html_without_links() {
        let page = markdown("A *b* [c](d.md).\n\n| x |\n|---|\n| `<y>` |\n").into_string();
        assert!(page.contains("<em>b</em> c.") && page.contains("<code>&lt;y&gt;</code>"), "{page}");
        assert!(!page.contains("href"), "{page}");
    }
}
