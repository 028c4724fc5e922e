//! Durations as people write them.

use jiff::SignedDuration;

/// Reads `30s`, `15m`, `1h30m`, `500ms`, or `0`.
///
/// # Errors
/// Where the text is something else, or negative.
pub fn parse(text: &str) -> Result<SignedDuration, String> {
    let expected = || "expected a duration such as `30s`, `15m`, `1h30m` or `0`".to_owned();
    if text.trim() == "0" {
        return Ok(SignedDuration::ZERO);
    }
    let duration: SignedDuration = text.parse().map_err(|_| expected())?;
    if duration.is_negative() { Err(expected()) } else { Ok(duration) }
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
        for bad in ["", "15", "-5s", "5 parsecs", "s", "99999999999999999999h"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
