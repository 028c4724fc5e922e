//! Durations on the command line.

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// Reads `30s`, `15m`, `1h30m`, `90d`, `1w`, `500ms`, or `0`. A day has 24 hours.
///
/// # Errors
/// If the text has another form, or the duration is negative.
pub(crate) fn parse(text: &str) -> Result<SignedDuration, String> {
    match read_signed(text) {
        Some(duration) if !duration.is_negative() => Ok(duration),
        _ => Err("expected a duration such as `30s`, `15m`, `1h30m`, `2d` or `0`".to_owned()),
    }
}

/// Reads a duration, which may be negative.
fn read_signed(text: &str) -> Option<SignedDuration> {
    if text.trim() == "0" {
        return Some(SignedDuration::ZERO);
    }
    let span: Span = text.parse().ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse("0"), Ok(SignedDuration::ZERO));
        assert_eq!(parse("0s"), Ok(SignedDuration::ZERO));
        assert_eq!(parse("30s"), Ok(SignedDuration::from_secs(30)));
        assert_eq!(parse("15m"), Ok(SignedDuration::from_mins(15)));
        assert_eq!(parse("1h30m"), Ok(SignedDuration::from_mins(90)));
        assert_eq!(parse("500ms"), Ok(SignedDuration::from_millis(500)));
        assert_eq!(parse("2d"), Ok(SignedDuration::from_hours(48)));
        assert_eq!(parse("1d12h"), Ok(SignedDuration::from_hours(36)));
        assert_eq!(parse("90d"), parse("12w6d"));
        for bad in [
            "2mo",
            "1y",
            "-1d",
            "",
            "15",
            "-5s",
            "5 parsecs",
            "s",
            "99999999999999999999h",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
