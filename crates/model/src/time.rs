//! Points in time as Calico writes them. Attribute `timestamp` is what Go prints for a UTC time
//! (`2026-05-01 10:12:00.123456789 +0000 UTC`); block fields are RFC 3339.

use jiff::Timestamp;

/// Reads a time in either form, leniently: a fraction of any length, any offset, and whatever Go may
/// append behind it (a zone name, a monotonic reading). `None` where there is no time in it.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Some((civil, rest)) = split_civil(text) {
        let offset = parse_offset(rest)?;
        return Timestamp::from_nanosecond(civil - i128::from(offset) * 1_000_000_000).ok();
    }
    text.parse().ok()
}

/// The time in the form in which Go prints a UTC time, from nanoseconds since 1970.
pub fn format_go_utc(nanos: i64) -> String {
    let seconds = nanos.div_euclid(1_000_000_000);
    let fraction = nanos.rem_euclid(1_000_000_000);
    let (year, month, day) = civil_of_days(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    if fraction != 0 {
        let digits = format!(".{fraction:09}");
        text.push_str(digits.trim_end_matches('0'));
    }
    text.push_str(" +0000 UTC");
    text
}

/// Nanoseconds since 1970 where `text` is exactly what [`format_go_utc`] would print.
pub(crate) fn parse_go_utc_canonical(text: &str) -> Option<i64> {
    if !text.as_bytes().first()?.is_ascii_digit() || !text.ends_with(" +0000 UTC") || text.len() > 40 {
        return None;
    }
    let (nanos, rest) = split_civil(text)?;
    let nanos = i64::try_from(nanos).ok()?;
    let fraction = text.get(19..text.len() - rest.len())?;
    let canonical =
        rest == " +0000 UTC" && fraction != "." && !fraction.ends_with('0') && text.as_bytes()[10] == b' ';
    (canonical && nanos >= 0).then_some(nanos)
}

/// Reads `YYYY-MM-DD` + blank or `T` + `hh:mm:ss[.fraction]` as if it were UTC; gives nanoseconds and
/// what follows.
fn split_civil(text: &str) -> Option<(i128, &str)> {
    let bytes = text.as_bytes();
    if bytes.len() < 19 || bytes[4] != b'-' || bytes[7] != b'-' || bytes[13] != b':' || bytes[16] != b':' {
        return None;
    }
    if !matches!(bytes[10], b' ' | b'T' | b't') {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        bytes[from..to].iter().try_fold(0, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days_of_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    let (fraction, used) = parse_fraction(&bytes[19..]);
    Some((i128::from(seconds) * 1_000_000_000 + i128::from(fraction), text.get(19 + used..)?))
}

/// Reads `.digits`; gives nanoseconds and the number of bytes used.
fn parse_fraction(bytes: &[u8]) -> (i64, usize) {
    if bytes.first() != Some(&b'.') {
        return (0, 0);
    }
    let digits = bytes[1..].iter().take_while(|b| b.is_ascii_digit()).count();
    let value = (0..9).fold(0, |n, i| n * 10 + if i < digits { i64::from(bytes[1 + i] - b'0') } else { 0 });
    (value, 1 + digits)
}

/// Reads `Z`, `+hh:mm`, ` +hhmm` and what may follow; gives seconds east of Greenwich.
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
    let mut digits = text.bytes().skip(1).filter(|b| *b != b':').take(4);
    let mut number = 0;
    for _ in 0..4 {
        let byte = digits.next().filter(u8::is_ascii_digit)?;
        number = number * 10 + i64::from(byte - b'0');
    }
    Some(sign * (number / 100 * 3600 + number % 100 * 60))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 of a date in the Gregorian calendar.
fn days_of_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date that lies `days` after 1970-01-01.
fn civil_of_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
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
            "2024-05-01T12:11:12.5+02:00",
            "2024-05-01 05:11:12.5 -0500 EST m=+0.000001",
        ] {
            assert_eq!(parse_time(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
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
            "2024-05-01 10:11:12. +0000 UTC",
            "2024-05-01T10:11:12 +0000 UTC",
        ] {
            assert_eq!(parse_go_utc_canonical(text), None, "{text}");
        }
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
