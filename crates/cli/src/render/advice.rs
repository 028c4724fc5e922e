//! Causes and cures: as lines of text, and in documents.

use std::collections::BTreeSet;

use calipam_check::{Code, FindingKey, Severity};
use calipam_plan::advice::{Advice, Cause, Cure, Effect, OtherCure};
use serde::Serialize;

use super::document::is_zero;
use super::output::Text;
use super::wrap::on_page;
use crate::hints::{Reader, cure, for_cluster, remedy};

/// The largest number of lines about causes and cures, unless the page is wide.
const LINES: usize = 10;
/// The width of the column with the severity.
const INDENT: usize = 10;
/// The largest number of nodes and pods that a document names.
const NAMED: usize = 20;

/// Writes causes and cures. The short form has at most [`LINES`] lines.
pub(super) fn text(advice: &Advice, text: &mut Text) {
    let entries = entries(advice, "", Reader::Operator);
    write(&entries, text);
}

/// Writes the causes and cures of clusters, each with the cluster's name, the worst first. Each command is for its
/// cluster alone.
pub(super) fn text_of_fleet<'a>(clusters: impl Iterator<Item = (&'a str, &'a Advice)>, text: &mut Text) {
    let mut entries: Vec<Entry> = Vec::new();
    for (name, advice) in clusters {
        let prefix = format!("{name}: ");
        entries.extend(for_cluster(name, || {
            self::entries(advice, &prefix, Reader::Document)
        }));
    }
    entries.sort_by_key(|entry| entry.severity);
    write(&entries, text);
}

/// A cause with its cures, or a cure without a cause.
struct Entry {
    severity: Severity,
    lines: Vec<String>,
}

impl Entry {
    /// Creates an entry with one line: the severity in its column, the text in `cluster`, and `text`.
    fn new(severity: Severity, cluster: &str, text: &str) -> Self {
        let line = format!("{:INDENT$}{cluster}{text}", severity.to_string());
        Self {
            severity,
            lines: vec![line],
        }
    }
}

/// Returns the entries of a cluster, the worst first; of one severity, causes come first. Each begins with the text in
/// `cluster`, which is empty if there is only one.
fn entries(advice: &Advice, cluster: &str, reader: Reader) -> Vec<Entry> {
    let mut entries = Vec::new();
    for cause in &advice.causes {
        let mut entry = Entry::new(cause.severity, cluster, &cause.says);
        for cure in &cause.cures {
            let sentence = cure::sentence(cure, reader);
            entry.lines.push(format!("{:INDENT$}{sentence}", ""));
        }
        entries.push(entry);
    }
    for other in &advice.others {
        // A cure can also be that of a cause.
        if !is_printed_above(advice, other) {
            let sentence = cure::sentence(&other.cure, reader);
            entries.push(Entry::new(other.severity, cluster, &sentence));
        }
    }
    entries.sort_by_key(|entry| entry.severity);
    entries
}

/// True if a cause that is printed above has the same command: running it once serves both.
fn is_printed_above(advice: &Advice, other: &OtherCure) -> bool {
    let causes = advice.causes.iter();
    let causes_above = causes.filter(|cause| cause.severity <= other.severity);
    let mut cures_above = causes_above.flat_map(|cause| &cause.cures);
    cures_above.any(|cure| cure.remedy == other.cure.remedy)
}

/// Writes the entries, on a page that is not wide only those that fit.
fn write(entries: &[Entry], text: &mut Text) {
    if entries.is_empty() {
        return;
    }

    let shown = if text.page.wide {
        entries.len()
    } else {
        number_that_fits(entries, text)
    };
    for entry in &entries[..shown] {
        for line in &entry.lines {
            text.hanging(INDENT, line);
        }
    }
    let not_shown = entries.len() - shown;
    if not_shown > 0 {
        text.line(format!("{:INDENT$}{not_shown} more with -o wide", "…"));
    }
    text.blank();
}

/// Returns the number of entries that fit into [`LINES`]. The first one is always shown. If not all fit, the last line
/// says how many more there are.
fn number_that_fits(entries: &[Entry], text: &Text) -> usize {
    let heights: Vec<usize> = entries.iter().map(|entry| height(&entry.lines, text)).collect();
    if heights.iter().sum::<usize>() <= LINES {
        return entries.len();
    }

    let mut written = 0;
    for (position, height) in heights.into_iter().enumerate() {
        written += height;
        // One line is left for the number of the others.
        if position > 0 && written > LINES - 1 {
            return position;
        }
    }
    entries.len()
}

fn height(lines: &[String], text: &Text) -> usize {
    lines
        .iter()
        .map(|line| on_page(line, INDENT, text.page).lines().count())
        .sum()
}

/// Formats causes and cures for a document: a line for each cause and each cure. The commands are for the cluster,
/// whose name is empty if there is only one.
pub(super) fn plain(cluster: &str, advice: &Advice) -> Vec<String> {
    let entries = for_cluster(cluster, || entries(advice, "", Reader::Document));
    entries.into_iter().flat_map(|entry| entry.lines).collect()
}

/// Causes and cures in documents.
#[derive(Serialize)]
pub(super) struct ShownAdvice<'a> {
    causes: Vec<ShownCause<'a>>,
    cures: Vec<ShownOther<'a>>,
}

#[derive(Serialize)]
struct ShownOther<'a> {
    severity: Severity,
    findings: usize,
    codes: BTreeSet<Code>,
    #[serde(flatten)]
    cure: ShownCure<'a>,
}

#[derive(Serialize)]
struct ShownCause<'a> {
    cause: &'static str,
    severity: Severity,
    message: &'a str,
    /// The number of its findings.
    findings: usize,
    codes: BTreeSet<Code>,
    cures: Vec<ShownCure<'a>>,
}

#[derive(Serialize)]
pub(super) struct ShownCure<'a> {
    purpose: &'static str,
    command: String,
    tried: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<ShownEffect<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownEffect<'a> {
    findings: usize,
    addresses: usize,
    addresses_at_once: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    second_check_after: Option<i64>,
    #[serde(skip_serializing_if = "is_zero")]
    cooldown: i64,
    #[serde(skip_serializing_if = "is_zero")]
    borrowed: usize,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    endpoints_only: bool,
    nodes: usize,
    pods: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    node_names: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pod_names: Vec<&'a str>,
}

fn codes(findings: &[FindingKey]) -> BTreeSet<Code> {
    findings.iter().map(|(code, _)| *code).collect()
}

impl<'a> ShownAdvice<'a> {
    /// Shows the advice of a check: its causes, and the cures of the other findings.
    pub(super) fn new(advice: &'a Advice) -> Self {
        let mut cures = Vec::new();
        for other in &advice.others {
            cures.push(ShownOther {
                severity: other.severity,
                findings: other.of.len(),
                codes: codes(&other.of),
                cure: ShownCure::new(&other.cure),
            });
        }
        Self {
            causes: advice.causes.iter().map(ShownCause::new).collect(),
            cures,
        }
    }
}

impl<'a> ShownCause<'a> {
    /// Shows a cause with its cures.
    fn new(cause: &'a Cause) -> Self {
        Self {
            cause: cause.name,
            severity: cause.severity,
            message: &cause.says,
            findings: cause.findings.len(),
            codes: codes(&cause.findings),
            cures: cause.cures.iter().map(ShownCure::new).collect(),
        }
    }
}

impl<'a> ShownCure<'a> {
    /// Shows a cure with the command that carries it out.
    pub(super) fn new(cure: &'a Cure) -> Self {
        Self {
            purpose: remedy::purpose(&cure.remedy),
            command: remedy::in_document(&cure.remedy),
            tried: cure.effect.is_some(),
            effect: cure.effect.as_deref().map(ShownEffect::new),
        }
    }
}

impl<'a> ShownEffect<'a> {
    /// Shows the effect of a cure. Only the first nodes and pods are named.
    fn new(effect: &'a Effect) -> Self {
        Self {
            findings: effect.resolved.len(),
            addresses: effect.addresses,
            addresses_at_once: effect.at_once,
            second_check_after: effect.second_check.map(|after| after.as_secs()),
            cooldown: effect.cooldown,
            borrowed: effect.borrowed,
            endpoints_only: effect.endpoints_only,
            nodes: effect.nodes.len(),
            pods: effect.pods.len(),
            node_names: effect.nodes.iter().take(NAMED).map(String::as_str).collect(),
            pod_names: effect.pods.iter().take(NAMED).map(String::as_str).collect(),
        }
    }
}
