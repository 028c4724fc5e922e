//! Files for `--ignore`: accepted findings, one per line, each forever or until a date.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;

use calipam_check::{Code, Finding, Report, UnknownCode};
use calipam_files::regular;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::exit::{Failure, Result};
use crate::render::text::{escape, is_unsafe};

/// An accepted finding.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    code: Code,
    /// The subject of the finding, unchanged or in the escaped form that tables show.
    subject: String,
    /// The cluster of a fleet; `None` for all clusters.
    cluster: Option<String>,
    /// The last day on which the entry is valid, in UTC.
    until: Option<Date>,
    /// The number of the line, from 1.
    line: usize,
}

/// The accepted findings of a file.
#[derive(Debug, Default)]
pub(crate) struct Ignored {
    file: String,
    entries: Vec<Entry>,
}

/// The positions of entries, by the rule and the subject that they accept.
type EntriesBySubject<'a> = HashMap<(Code, &'a str), Vec<usize>>;

impl Ignored {
    /// Reads the file of accepted findings.
    ///
    /// # Errors
    /// If it cannot be read, or one of its lines is invalid.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let text = regular::read_to_string(path).map_err(Failure::io_at("read", path))?;
        let entries = parse(&text).map_err(|(line, reason)| {
            Failure::usage(format!("{file}:{line}: {reason}")).hint(
                "a line has a rule and a subject, such as `leaked-address 10.244.1.7`, and can end with \
                 `until 2027-01-31`",
            )
        })?;
        Ok(Self { file, entries })
    }

    /// Removes accepted findings from the reports of clusters, and returns notes about entries that have expired or
    /// match no finding. Each report comes with the name of its cluster, which is empty if there is only one cluster.
    /// Call this before other filters, which can remove findings that entries match.
    pub(crate) fn apply(&self, reports: &mut [(&str, &mut Report)]) -> Vec<String> {
        // The positions of the entries that match a finding.
        let mut matching = BTreeSet::new();
        let mut newest = Timestamp::UNIX_EPOCH;
        let mut is_fleet = true;
        for (cluster, report) in reports {
            newest = newest.max(report.cluster.taken_at);
            is_fleet = !cluster.is_empty();
            matching.extend(self.remove_accepted(report, cluster));
        }

        let mut notes = Vec::new();
        for (position, entry) in self.entries.iter().enumerate() {
            // The file can be that of a fleet: entries for other clusters say nothing about a single one.
            if is_fleet || entry.cluster.is_none() {
                notes.extend(self.note(entry, matching.contains(&position), day(newest)));
            }
        }
        notes
    }

    /// Removes the findings of a cluster that an entry accepts and that has not expired. Returns the positions of all
    /// entries that match a finding, even of those that have expired.
    fn remove_accepted(&self, report: &mut Report, cluster: &str) -> BTreeSet<usize> {
        let mut matching = BTreeSet::new();
        // Saves the work of looking up each of many findings.
        let entries = self.entries_for(cluster);
        if entries.is_empty() {
            return matching;
        }
        let today = day(report.cluster.taken_at);
        report.retain(|finding| {
            let accepting = accepting_entries(&entries, finding);
            matching.extend(&accepting);
            accepting
                .iter()
                .all(|position| self.entries[*position].has_ended(today))
        });
        matching
    }

    /// Returns the positions of a cluster's entries, by the rule and the subject that they accept.
    fn entries_for(&self, cluster: &str) -> EntriesBySubject<'_> {
        let mut entries = EntriesBySubject::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let is_for_cluster = match &entry.cluster {
                Some(name) => name == cluster,
                None => true,
            };
            if is_for_cluster {
                let subject = (entry.code, entry.subject.as_str());
                entries.entry(subject).or_default().push(index);
            }
        }
        entries
    }

    /// Returns the note about an entry that has expired or matches no finding; `None` for any other entry.
    fn note(&self, entry: &Entry, is_matching: bool, today: Date) -> Option<String> {
        let place = format!("{}:{}", self.file, entry.line);
        if !is_matching {
            return Some(format!("{place}: {entry} matches no finding"));
        }
        match entry.until {
            Some(until) if entry.has_ended(today) => {
                Some(format!("{place}: {entry} was accepted until {until}"))
            }
            _ => None,
        }
    }
}

/// Returns the positions of the entries that accept a finding. An entry can name the finding's subject unchanged or,
/// with escapes, as tables show it.
fn accepting_entries(entries: &EntriesBySubject<'_>, finding: &Finding) -> Vec<usize> {
    let subject = finding.subject.to_string();
    if let Some(positions) = entries.get(&(finding.code, &*subject)) {
        return positions.clone();
    }
    let shown = escape(&subject);
    match entries.get(&(finding.code, &*shown)) {
        Some(positions) => positions.clone(),
        None => Vec::new(),
    }
}

impl Entry {
    fn has_ended(&self, today: Date) -> bool {
        self.until.is_some_and(|until| today > until)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.subject)?;
        if let Some(name) = &self.cluster {
            write!(f, " cluster {name}")?;
        }
        Ok(())
    }
}

/// Formats the line that accepts a finding, safe for a terminal. An ambiguous subject becomes a JSON string. `cluster`
/// is empty if there is only one cluster.
pub(crate) fn line(finding: &Finding, cluster: &str) -> String {
    let line = subject_line(finding);
    if cluster.is_empty() {
        return line;
    }
    format!("{line} cluster {cluster}")
}

/// Formats a finding as an entry of the file. The subject is quoted if it could be read as something else.
fn subject_line(finding: &Finding) -> String {
    let subject = finding.subject.to_string();
    let plain = format!("{} {subject}", finding.code);
    let entry = Entry {
        code: finding.code,
        subject,
        cluster: None,
        until: None,
        line: 1,
    };
    if escape(&plain) == plain && parse(&plain).is_ok_and(|entries| entries == [entry.clone()]) {
        return plain;
    }

    format!("{} {}", entry.code, quoted(entry.subject))
}

/// Formats a text as a JSON string that is safe for a terminal.
fn quoted(text: String) -> String {
    let json = serde_json::Value::from(text).to_string();
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if !is_unsafe(c) {
            safe.push(c);
            continue;
        }
        // JSON leaves some unsafe characters as they are, such as those that reverse the direction of text.
        for unit in c.encode_utf16(&mut [0; 2]) {
            safe.push_str(&format!("\\u{unit:04x}"));
        }
    }
    safe
}

/// Parses the lines. An error contains the number of the first invalid line, and the reason.
fn parse(text: &str) -> Result<Vec<Entry>, (usize, String)> {
    let mut entries = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        let number = index + 1;
        let entry = parse_line(line, number).map_err(|reason| (number, reason))?;
        entries.extend(entry);
    }
    Ok(entries)
}

/// Parses a line; `None` if it is empty or a comment.
fn parse_line(line: &str, number: usize) -> Result<Option<Entry>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (code, after_code) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (quoted_subject, content) = split_subject(after_code.trim());
    // An unquoted subject can contain blanks, so the words after it are read from the end.
    let (content, until) = split_until(content)?;
    let (content, cluster) = split_cluster(content);

    if quoted_subject.is_some() && !content.is_empty() {
        return Err(format!("unexpected {content:?} after the subject"));
    }
    if quoted_subject.is_none() && content.is_empty() {
        return Err(format!("{line:?} has no subject"));
    }
    let subject = quoted_subject.unwrap_or_else(|| content.to_owned());
    let code = code.parse().map_err(|unknown: UnknownCode| unknown.to_string())?;
    Ok(Some(Entry {
        code,
        subject,
        cluster,
        until,
        line: number,
    }))
}

/// Splits off the subject if it is quoted. Returns it, and the rest without a comment.
fn split_subject(text: &str) -> (Option<String>, &str) {
    match split_quoted(text) {
        // After a quoted subject, `#` begins a comment even without a blank before it.
        Some((subject, after)) if after.trim_start().starts_with('#') => (Some(subject), ""),
        Some((subject, after)) => (Some(subject), without_comment(after)),
        None => (None, without_comment(text)),
    }
}

/// Returns the text up to a comment, which begins with `#` after a blank.
fn without_comment(text: &str) -> &str {
    match text.split_once(" #") {
        Some((content, _)) => content.trim(),
        None => text.trim(),
    }
}

/// Splits off the JSON string at the beginning.
fn split_quoted(text: &str) -> Option<(String, &str)> {
    let mut strings = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let first = strings.next()?.ok()?;
    Some((first, &text[strings.byte_offset()..]))
}

/// Returns the day of a time, in UTC as in the file.
fn day(time: Timestamp) -> Date {
    TimeZone::UTC.to_datetime(time).date()
}

/// Splits off `cluster NAME` at the end.
fn split_cluster(text: &str) -> (&str, Option<String>) {
    let mut words = text.rsplitn(3, char::is_whitespace);
    match (words.next(), words.next()) {
        (Some(name), Some("cluster")) => (words.next().unwrap_or_default().trim(), Some(name.to_owned())),
        _ => (text, None),
    }
}

/// Splits `until DATE` off the end of a text, and returns what is before it, and the date if there is one.
fn split_until(text: &str) -> Result<(&str, Option<Date>), String> {
    let mut words = text.rsplitn(3, char::is_whitespace);
    let (Some(date), Some("until")) = (words.next(), words.next()) else {
        return Ok((text, None));
    };
    let date = date
        .parse()
        .map_err(|_| format!("until {date:?}: expected a date such as 2027-01-31"))?;
    Ok((words.next().unwrap_or_default().trim(), Some(date)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use calipam_check::{Evidence, Subject};

    use super::*;

    fn entry(code: Code, subject: &str, until: Option<&str>, line: usize) -> Entry {
        let until = until.map(|date| date.parse().unwrap());
        Entry {
            code,
            subject: subject.into(),
            cluster: None,
            until,
            line,
        }
    }

    #[test]
    fn codes_subjects_dates_and_comments() {
        let text = "# known\n\nleaked-address 10.244.1.7  # a test pod\r\norphan-handle\ta b\n\
                    leaked-address 10.244.1.8 until 2027-01-31 # ours\n\
                    orphan-handle \"a # until 2027-01-31\" until 2026-12-01 # x\norphan-handle \"b\\r\\neth0\"# y";
        let expected = [
            entry(Code::LeakedAddress, "10.244.1.7", None, 3),
            entry(Code::OrphanHandle, "a b", None, 4),
            entry(Code::LeakedAddress, "10.244.1.8", Some("2027-01-31"), 5),
            entry(Code::OrphanHandle, "a # until 2027-01-31", Some("2026-12-01"), 6),
            entry(Code::OrphanHandle, "b\r\neth0", None, 7),
        ];
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let reason = |text| parse(text).unwrap_err();
        assert_eq!(reason("\nleaked-address").0, 2);
        assert_eq!(reason("leaked 10.0.0.1"), (1, "unknown rule \"leaked\"".into()));
        assert!(
            reason("leaked-address until 2027-01-31")
                .1
                .contains("has no subject")
        );
        assert!(
            reason("leaked-address 10.0.0.1 until tomorrow")
                .1
                .contains("such as 2027-01-31")
        );
        assert!(
            reason("leaked-address 10.0.0.1 until 2027-02-30")
                .1
                .contains("such as 2027-01-31")
        );
        assert!(reason("orphan-handle \"a\" b").1.contains("after the subject"));
    }

    #[test]
    fn a_line_accepts_its_finding_whatever_the_subject() {
        for subject in [
            "10.244.1.7",
            "a b",
            "a #b",
            "a until 2027-01-31",
            " a ",
            "x\r\neth0",
            "\"a\"",
            "#",
            "a\tb",
            "\u{202e}a",
            "",
        ] {
            let evidence = Evidence::Configuration(BTreeMap::new());
            let subject = Subject::Handle(subject.into());
            let finding = Finding::new(Code::OrphanHandle, subject, "", evidence);
            let line = line(&finding, "");
            let parsed = parse(&line).unwrap();
            assert_eq!(
                parsed,
                [entry(Code::OrphanHandle, &finding.subject.to_string(), None, 1)],
                "{line}"
            );
            assert_eq!(escape(&line), line);
        }
    }
}
