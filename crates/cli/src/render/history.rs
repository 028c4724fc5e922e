//! The output of `history`.

use calipam_history::timeline::{Event, Holder, Origin, Uncertainty, When};
use calipam_workflow::{History, Reach, Span};
use jiff::Timestamp;

use super::column::{Column, left, right};
use super::document::Document;
use super::header;
use super::output::Text;
use super::text::{count, dash, date_and_time, short_utc, to_seconds};

/// etcd's first revision. If it is still the oldest one, nothing was compacted.
pub(crate) const FIRST_REVISION: &str = "1";

/// Formats the period that a history covers, and what is not known about other times.
fn describe_reach(reach: &Reach) -> String {
    match reach {
        Reach::Etcd {
            oldest_revision,
            newest_revision,
            ..
        } => describe_revisions(oldest_revision, newest_revision),
        Reach::Archive { exports, recorded } => {
            if recorded.is_empty() {
                describe_exports(exports)
            } else {
                describe_recording(recorded)
            }
        }
        Reach::State { read_at } => format!("read at {}; nothing earlier is known", short_utc(*read_at)),
    }
}

/// Formats the range of revisions that etcd has.
fn describe_revisions(oldest: &str, newest: &str) -> String {
    if oldest == FIRST_REVISION {
        return format!("etcd has everything from the beginning up to revision {newest}");
    }
    format!("etcd keeps revisions {oldest} to {newest}; everything before {oldest} is compacted")
}

/// Formats the number of exports, the period that they cover, and the longest gap between two of them.
fn describe_exports(exports: &[Timestamp]) -> String {
    let (Some(first), Some(last)) = (exports.first(), exports.last()) else {
        return "no export".to_owned();
    };
    let number = count(exports.len(), "export", "exports");
    let mut line = format!(
        "{number} from {} to {}; changes between two exports, and after the last one, are not known",
        short_utc(*first),
        short_utc(*last)
    );
    let gap_between = |pair: &[Timestamp]| pair[1].duration_since(pair[0]);
    if let Some(pair) = exports.windows(2).max_by_key(|pair| gap_between(pair)) {
        let hours = jiff::SignedDuration::from_secs(gap_between(pair).as_secs());
        line.push_str(&format!(
            "; the longest gap is {hours:#}, from {} to {}",
            short_utc(pair[0]),
            short_utc(pair[1])
        ));
    }
    line
}

/// Formats the period in which every change was recorded, and the gaps in the recording.
fn describe_recording(recorded: &[Span]) -> String {
    let (Some(first), Some(last)) = (recorded.first(), recorded.last()) else {
        return String::new();
    };
    let mut line = format!(
        "every change was recorded from {} to {}",
        short_utc(first.from),
        short_utc(last.until)
    );
    // Between two spans, nothing was recorded.
    let mut gaps = Vec::new();
    for pair in recorded.windows(2) {
        gaps.push(format!(
            "{} to {}",
            short_utc(pair[0].until),
            short_utc(pair[1].from)
        ));
    }
    if gaps.is_empty() {
        line.push_str("; later changes are not known");
    } else {
        let word = if gaps.len() == 1 { "a gap" } else { "gaps" };
        let gaps = gaps.join(", ");
        line.push_str(&format!(
            ", with {word}: {gaps}; changes in a gap, and later ones, are not known"
        ));
    }
    line
}

impl Document for History {
    const KIND: &'static str = "History";

    /// Writes the reach of the history, and a table of events.
    fn text(&self, out: &mut Text) {
        let cluster = header::guid(&self.guid);
        let source = match &self.reach {
            Reach::Etcd { .. } => "etcd",
            Reach::Archive { .. } => "archive",
            Reach::State { .. } => "state",
        };
        out.line(format!("{cluster} · {source} {} · {}", self.location, self.about));
        let indent = 0;
        out.about(indent, describe_reach(&self.reach));
        out.blank();
        match self.events.as_slice() {
            [] => out.line(format!("Nothing is known about {}", self.about)),
            events => out.table(events, event_columns(out.page.wide)),
        }
    }
}

/// Returns the columns of the table of events.
fn event_columns<'a>(wide: bool) -> Vec<Column<'a, &'a Event>> {
    vec![
        right("REVISION", |event: &Event| dash(event.revision)),
        left("TIME", |event: &Event| time(&event.time)),
        left("EVENT", |event: &Event| event.what.words()),
        left("OF", |event: &Event| &event.subject),
        left("WHO", move |event: &Event| who(event, wide)),
    ]
}

/// Formats an event in one line.
pub(crate) fn line(event: &Event, wide: bool) -> String {
    let mut line = format!("{} {}", time(&event.time), event.what.words());
    let who = who(event, wide);
    if !who.is_empty() {
        line.push_str(&format!(": {who}"));
    }
    if let Some(revision) = event.revision {
        line.push_str(&format!(" (revision {revision})"));
    }
    line
}

/// Formats `2026-11-20 03:12:05Z`, or the bounds of the time.
fn time(when: &When) -> String {
    let text = match when.at {
        Some(at) => short_utc(at),
        None => bounds(when.after, when.before),
    };
    let reason = match when.uncertainty {
        None => return text,
        Some(Uncertainty::ClocksDisagree) => "clocks disagree",
        Some(Uncertainty::Copied) => "as recorded; stored later",
        Some(Uncertainty::NoZone) => "recorded without a time zone",
    };
    format!("{text} ({reason})")
}

/// Formats the bounds of a time that is not known exactly, as far as they are known.
fn bounds(after: Option<Timestamp>, before: Option<Timestamp>) -> String {
    let Some(after) = after.map(short_utc) else {
        return match before {
            Some(before) => format!("before {}", short_utc(before)),
            None => "not known".to_owned(),
        };
    };
    let Some(before) = before.map(short_utc) else {
        return format!("after {after}");
    };
    // Both times can be within the printed second.
    if after == before {
        return after;
    }
    format!("between {after} and {before}")
}

/// Describes who had the address or block of an event before, who has it after, and which run of calipam changed it.
/// Empty if nothing of this is known.
fn who(event: &Event, wide: bool) -> String {
    let mut parts = Vec::new();
    parts.extend(holders(event, wide));
    if !event.detail.is_empty() {
        parts.push(event.detail.clone());
    }
    if let Some(run) = &event.by {
        let started_at = date_and_time(&run.started_at);
        parts.push(format!("by calipam, run of {started_at}: {}", run.command));
    }
    if event.origin == Origin::Journal {
        parts.push("known only from a journal".to_owned());
    }
    parts.join("; ")
}

/// Formats the holders before and after an event; `None` if neither is known.
fn holders(event: &Event, wide: bool) -> Option<String> {
    if let Some(before) = &event.before
        && let Some(after) = &event.after
        && before != after
    {
        return Some(format!("{} → {}", holder(before, wide), holder(after, wide)));
    }
    // A holder that has not changed is shown once.
    let only = event.before.as_ref().or(event.after.as_ref())?;
    Some(holder(only, wide))
}

/// Formats `pod default/web-0 on node-1`. A wide table also shows the handle and the time in the record.
fn holder(holder: &Holder, wide: bool) -> String {
    // An address that is cooling down no longer has a holder.
    if let Some(released_at) = &holder.released_at
        && holder.kind == "cooling"
    {
        return format!("since {released_at}");
    }
    let mut text = holder.kind.to_owned();
    if !holder.allocated_to.is_empty() {
        text.push_str(&format!(" {}", holder.allocated_to));
    }
    if let Some(node) = &holder.node {
        text.push_str(&format!(" on {node}"));
    }
    if wide {
        text.push_str(&details(holder));
    }
    text
}

/// Formats the handle and the time in the record of a holder, as far as it has them.
fn details(holder: &Holder) -> String {
    let mut text = String::new();
    if let Some(handle) = &holder.handle {
        text.push_str(&format!(", handle {handle}"));
    }
    if let Some(timestamp) = &holder.timestamp {
        text.push_str(&format!(", recorded {}", to_seconds(timestamp)));
    }
    text
}
