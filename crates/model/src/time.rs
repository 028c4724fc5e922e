//! Times in Calico's forms. The attribute `timestamp` is a UTC time as printed by Go
//! (`2026-05-01 10:12:00.123456789 +0000 UTC`); block fields are RFC 3339.

use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

/// The most by which a writer's clock can be ahead of the reader's. Times further in the future are not credible.
pub const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);

/// Reads a time in either form, leniently: a fraction of any length, any offset, and Go's suffixes (a zone name, a
/// monotonic reading). `None` if the text is not a time.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Some((time, rest)) = split_civil(text) {
        let offset = SignedDuration::from_secs(parse_offset(rest)?);
        return time.checked_sub(offset).ok();
    }
    text.parse().ok()
}

/// Prints a time in whole seconds, as Calico does in block fields, and Kubernetes in objects: `2026-05-01T10:12:00Z`.
pub fn format_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Length of `2026-05-01 10:12:00.123456789 +0000 UTC`.
const LONGEST: usize = 39;

/// The end of a UTC time as Go prints it.
const GO_UTC: &str = " +0000 UTC";

/// Prints nanoseconds since 1970 like Go prints a UTC time. A block has such a time for each of its addresses.
pub fn format_go_utc(nanos: i64) -> String {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().separator(b' ');
    let time = Timestamp::from_nanosecond(nanos.into()).expect("years 1677 to 2262 can be represented");
    let mut text = String::with_capacity(LONGEST);
    PRINTER
        .print_timestamp(&time, &mut text)
        .expect("writing to memory cannot fail");
    // The printer ends UTC times with `Z`.
    text.pop();
    text.push_str(GO_UTC);
    text
}

/// Length of a date and a time in whole seconds.
pub const DATE_AND_TIME: usize = "2026-05-01 10:12:00".len();

/// Nanoseconds since 1970 if `text` is exactly what [`format_go_utc`] prints for a time from 1970 on.
pub(crate) fn parse_go_utc_canonical(text: &str) -> Option<i64> {
    if !text.as_bytes().first()?.is_ascii_digit() || !text.ends_with(GO_UTC) || text.len() > LONGEST {
        return None;
    }
    let (time, rest) = split_civil(text)?;
    let nanos = i64::try_from(time.as_nanosecond()).ok()?;
    let fraction = text.get(DATE_AND_TIME..text.len() - rest.len())?;
    let has_blank = text.as_bytes()[10] == b' ';
    let is_fraction_shortest = fraction != "." && !fraction.ends_with('0');
    if rest != GO_UTC || !has_blank || !is_fraction_shortest || nanos < 0 {
        return None;
    }
    Some(nanos)
}

/// Reads `YYYY-MM-DD` + blank or `T` + `hh:mm:ss[.fraction]` as UTC; returns the time and the rest of the text. `None`
/// if the text does not begin so.
fn split_civil(text: &str) -> Option<(Timestamp, &str)> {
    let bytes = text.as_bytes();
    if bytes.len() < DATE_AND_TIME {
        return None;
    }
    if bytes[4] != b'-' || bytes[7] != b'-' || bytes[13] != b':' || bytes[16] != b':' {
        return None;
    }
    if !matches!(bytes[10], b' ' | b'T' | b't') {
        return None;
    }

    let two_digits = |start: usize| -> Option<i8> {
        let number = parse_digits(&bytes[start..start + 2])?;
        number.try_into().ok()
    };
    let year = parse_digits(&bytes[..4])?;
    let month = two_digits(5)?;
    let day = two_digits(8)?;
    let hour = two_digits(11)?;
    let minute = two_digits(14)?;
    let second = two_digits(17)?;
    let (nanos, fraction_len) = parse_fraction(&bytes[DATE_AND_TIME..]);

    let civil = DateTime::new(year, month, day, hour, minute, second, nanos).ok()?;
    let time = Offset::UTC.to_timestamp(civil).ok()?;
    Some((time, text.get(DATE_AND_TIME + fraction_len..)?))
}

/// Reads a number of at most four digits; `None` if another byte is among them.
fn parse_digits(digits: &[u8]) -> Option<i16> {
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i16::from(digit - b'0');
    }
    Some(number)
}

/// The number of fractional digits of a second with nanoseconds.
const NANOS: u32 = 9;

/// Reads `.digits`; returns nanoseconds and the number of bytes read.
fn parse_fraction(bytes: &[u8]) -> (i32, usize) {
    if bytes.first() != Some(&b'.') {
        return (0, 0);
    }
    let mut digits = 0;
    let mut number = 0;
    for byte in bytes[1..].iter().take_while(|byte| byte.is_ascii_digit()) {
        // Digits below a nanosecond are cut off.
        if digits < NANOS {
            number = number * 10 + i32::from(byte - b'0');
        }
        digits += 1;
    }
    let nanos = number * 10i32.pow(NANOS.saturating_sub(digits));
    (nanos, 1 + digits as usize)
}

/// Reads `Z`, `+hh:mm` or ` +hhmm` and ignores any text that follows; returns seconds east of Greenwich, 0 for an empty
/// string, and `None` for any other one.
fn parse_offset(text: &str) -> Option<i64> {
    let text = text.trim_start();
    if text.starts_with(['Z', 'z']) || text.is_empty() {
        return Some(0);
    }
    let sign = match text.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let mut digits = text.bytes().skip(1).filter(|byte| *byte != b':');
    let mut number = 0;
    for _ in 0..4 {
        let digit = digits.next().filter(u8::is_ascii_digit)?;
        number = number * 10 + i64::from(digit - b'0');
    }
    let hours = number / 100;
    let minutes = number % 100;
    Some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_forms_are_read() {
        let expected: Timestamp = "2024-05-01T10:11:12.5Z".parse().unwrap();
        for text in [
            "2024-05-01 10:11:12.5 +0000 UTC",
            "2024-05-01T10:11:12.500Z",
            "2024-05-01T10:11:12.500000000999Z",
            "2024-05-01T12:11:12.5+02:00",
            "2024-05-01 05:11:12.5 -0500 EST m=+0.000001",
        ] {
            assert_eq!(parse_time(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_none() {
        for text in [
            "",
            "yesterday",
            "2024-13-01 10:11:12 +0000 UTC",
            "2024-02-30T10:11:12Z",
            "2024-05-01 10:11:12 x",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn only_the_canonical_form_is_packed() {
        assert!(parse_go_utc_canonical("2024-05-01 10:11:12 +0000 UTC").is_some());
        for text in [
            "2024-05-01 10:11:12.50 +0000 UTC",
            "2024-05-01 10:11:12.1234567891 +0000 UTC",
            "2024-05-01 10:11:12. +0000 UTC",
            "2024-05-01T10:11:12 +0000 UTC",
        ] {
            assert_eq!(parse_go_utc_canonical(text), None, "{text}");
        }
    }

    #[test]
    fn whole_seconds_have_no_fraction() {
        assert_eq!(format_go_utc(0), "1970-01-01 00:00:00 +0000 UTC");
        assert_eq!(
            format_go_utc(1_000_000_120),
            "1970-01-01 00:00:01.00000012 +0000 UTC"
        );
        assert_eq!(format_go_utc(-1), "1969-12-31 23:59:59.999999999 +0000 UTC");
        assert_eq!(format_go_utc(i64::MIN), "1677-09-21 00:12:43.145224192 +0000 UTC");
    }

    #[test]
    fn leap_seconds_and_hours_past_the_day_are_no_time() {
        for text in [
            "2016-12-31T23:59:60 +0000 UTC",
            "2024-05-01 24:00:00 +0000 UTC",
            "0000-00-00 00:00:00 +0000 UTC",
        ] {
            assert_eq!(parse_go_utc_canonical(text), None, "{text}");
        }
        assert!(parse_time("0001-01-01T00:00:00Z").is_some(), "Go's zero time");
    }

    proptest! {
        #[test]
        fn formatting_then_reading_gives_it_back(nanos in 0i64..=i64::MAX) {
            let text = format_go_utc(nanos);
            prop_assert_eq!(parse_go_utc_canonical(&text), Some(nanos));
            prop_assert_eq!(parse_time(&text).unwrap().as_nanosecond(), i128::from(nanos));
            prop_assert_eq!(Timestamp::from_nanosecond(nanos.into()).unwrap().strftime("%Y-%m-%d %H:%M:%S").to_string(), text[..19].to_owned());
        }
    }
}
