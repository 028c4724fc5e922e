//! Formatting of text and numbers.

use std::fmt::Display;

use calipam_files::objects::names::object_name;
use calipam_model::key::Key;
use calipam_model::snapshot::DatastoreKind;
use calipam_model::time::DATE_AND_TIME;
use jiff::Timestamp;
use jiff::tz::TimeZone;

pub(crate) use calipam_model::words::{
    count, escape, is_unsafe, join, joined, quoted, shell_word, thousands,
};

/// Formats a time in the user's time zone, with the zone's offset: `2026-11-20 04:12:30 +01:00`.
pub(crate) fn local(time: Timestamp) -> String {
    time.to_zoned(TimeZone::system())
        .strftime("%Y-%m-%d %H:%M:%S %:z")
        .to_string()
}

/// Formats a time in UTC, for readers whose time zone is not known: `2026-11-20 03:12:30 UTC`.
pub(crate) fn utc(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Formats a time in UTC for a table: `2026-11-20 03:12:30Z`.
pub(crate) fn short_utc(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Returns the name under which people find an object: its key in etcd, its kind and name in Kubernetes.
pub(crate) fn object_in(datastore: DatastoreKind, key: &Key) -> String {
    match datastore {
        DatastoreKind::Kubernetes => object_name(key),
        DatastoreKind::Etcd | DatastoreKind::EtcdV2 => key.to_string(),
    }
}

/// Returns a time of Calico or of a journal without the fraction of its second.
pub(crate) fn to_seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((begin, rest)) => format!("{begin}{}", rest.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => time.to_owned(),
    }
}

/// Formats the start of a run, such as `2026-11-20T03:12:05.123Z`, as `2026-11-20 03:12:05`.
pub(crate) fn date_and_time(started_at: &str) -> String {
    let up_to_seconds = started_at.get(..DATE_AND_TIME).unwrap_or(started_at);
    up_to_seconds.replace('T', " ")
}

/// Returns `text`, or a dash if `text` is empty.
pub(crate) fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// Formats a value, or a dash if there is no value or its text is empty.
pub(crate) fn dash(value: Option<impl Display>) -> String {
    match value {
        Some(value) => or_dash(&value.to_string()).to_owned(),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_end_with_seconds() {
        assert_eq!(
            to_seconds("2026-05-15 11:26:19.503170346 +0000 UTC"),
            "2026-05-15 11:26:19 +0000 UTC"
        );
        assert_eq!(to_seconds("2026-05-15T11:26:19.5Z"), "2026-05-15T11:26:19Z");
        assert_eq!(to_seconds("2026-05-15T11:26:19Z"), "2026-05-15T11:26:19Z");
        assert_eq!(date_and_time("2026-11-20T03:12:05.123Z"), "2026-11-20 03:12:05");
        assert_eq!(date_and_time("2026-11-20"), "2026-11-20", "a journal with less");
    }
}
