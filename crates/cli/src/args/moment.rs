//! Points in time on the command line.

use jiff::civil::{Date, DateTime, Time};
use jiff::{Timestamp, Zoned};

use super::duration;

/// The help of options that take a time.
pub(super) const MOMENT: &str = "A time: `1h ago`, `yesterday 14:00` or `2026-11-20 04:12` in local time, or with its zone, such as 2026-11-20T03:12Z";

/// Reads a time. Without a zone, it is in the time zone of this machine or of the variable TZ.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    read(text.trim(), &Zoned::now()).ok_or_else(|| {
        "expected a time such as `1h ago`, `yesterday 14:00`, `2026-11-20 04:12` or `2026-11-20T03:12Z`"
            .to_owned()
    })
}

/// Reads a time stamp, a time such as `2 h ago`, or a local time. Returns `None` for any other text.
fn read(text: &str, now: &Zoned) -> Option<Timestamp> {
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    if let Some(since) = text.strip_suffix(" ago") {
        return now.timestamp().checked_sub(duration::parse(since).ok()?).ok();
    }
    read_local(text, now)
}

/// Reads a day, a time or both in the local time zone: `today`, `yesterday 14:00`, `2026-11-20`, `09:30`. A missing day
/// means today, a missing time the beginning of the day.
fn read_local(text: &str, now: &Zoned) -> Option<Timestamp> {
    let (day, time) = match text.split_once([' ', 'T']) {
        Some((day, time)) => (day, time.trim()),
        None if text.contains(':') => ("today", text),
        None => (text, "00:00"),
    };
    let day = read_day(day, now.date())?;
    let time: Time = time.parse().ok()?;
    let local = DateTime::from_parts(day, time)
        .to_zoned(now.time_zone().clone())
        .ok()?;
    Some(local.timestamp())
}

/// Reads a date, `today` or `yesterday`.
fn read_day(text: &str, today: Date) -> Option<Date> {
    match text {
        "today" => Some(today),
        "yesterday" => today.yesterday().ok(),
        date => date.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::{TimeZone, offset};

    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let now: Timestamp = "2026-11-20T23:30:00Z".parse().unwrap();
        // An hour before UTC: the local day is the 21st.
        let now = now.to_zoned(TimeZone::fixed(offset(1)));
        for (text, expected) in [
            ("2026-11-20T03:12Z", "2026-11-20T03:12:00Z"),
            ("2026-11-20T04:12:30+01:00", "2026-11-20T03:12:30Z"),
            ("2026-11-20T04:12", "2026-11-20T03:12:00Z"),
            ("2026-11-20 04:12:30", "2026-11-20T03:12:30Z"),
            ("2026-11-20", "2026-11-19T23:00:00Z"),
            ("today", "2026-11-20T23:00:00Z"),
            ("00:10", "2026-11-20T23:10:00Z"),
            ("yesterday 14:00", "2026-11-20T13:00:00Z"),
            ("yesterday", "2026-11-19T23:00:00Z"),
            ("1h ago", "2026-11-20T22:30:00Z"),
            ("2 hours ago", "2026-11-20T21:30:00Z"),
            ("1h30m ago", "2026-11-20T22:00:00Z"),
            ("2d ago", "2026-11-18T23:30:00Z"),
        ] {
            assert_eq!(read(text, &now), Some(expected.parse().unwrap()), "{text}");
        }
        for bad in [
            "",
            "soon",
            "1h",
            "-1h ago",
            "ago",
            "yesterday 25:00",
            "2026-13-01",
            "14",
            "tomorrow 10:00",
        ] {
            assert_eq!(read(bad, &now), None, "{bad}");
        }
    }
}
