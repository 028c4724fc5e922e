//! Symbols: placeholders in traces for values that differ from run to run, and their values in this run.

use std::collections::BTreeMap;

use calipam_model::time::format_go_utc;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Symbol {
    /// `S2+3`: the first sequence number of the second block that was created, plus 3.
    Sequence(u32, u64),
    /// `T4`: a time in whole seconds.
    Time(u32),
    /// `N1`: a time in Go's format.
    GoTime(u32),
    /// `U1`: a UID.
    Uid(u32),
}

impl Symbol {
    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = (text.get(..1)?, text.get(1..)?);
        let number = |text: &str| {
            (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
        };
        match kind {
            "S" => {
                let (index, added) = rest.split_once('+')?;
                Some(Self::Sequence(number(index)?, u64::from(number(added)?)))
            }
            "T" => number(rest).map(Self::Time),
            "N" => number(rest).map(Self::GoTime),
            "U" => number(rest).map(Self::Uid),
            _ => None,
        }
    }
}

/// The largest difference between times that count as equal, since times are stored in whole seconds.
const SECOND_CROSSED: SignedDuration = SignedDuration::from_secs(1);

/// The values of symbols in this run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    sequences: BTreeMap<u32, u64>,
    times: BTreeMap<u32, String>,
    go_times: BTreeMap<u32, String>,
    uids: BTreeMap<u32, String>,
}

impl Symbols {
    /// Replaces the symbols in a value. A symbol without a value is assigned one of its kind, derived from the time
    /// `now`.
    pub(crate) fn fill(&mut self, value: &Value, now: Timestamp) -> Value {
        match value {
            Value::String(text) => match Symbol::parse(text) {
                Some(symbol) => self.value_of(symbol, now),
                None => value.clone(),
            },
            Value::Array(items) => items.iter().map(|item| self.fill(item, now)).collect(),
            Value::Object(fields) => {
                let filled = fields.iter().map(|(name, value)| (name.clone(), self.fill(value, now)));
                Value::Object(filled.collect())
            }
            other => other.clone(),
        }
    }

    fn value_of(&mut self, symbol: Symbol, now: Timestamp) -> Value {
        let nanos = now.as_nanosecond() as u64;
        match symbol {
            // The number is chosen as if the blocks had been created one after another a moment ago.
            Symbol::Sequence(index, added) => {
                let past = 1_000_000_000u64.saturating_sub(u64::from(index) * 1_000_000);
                let first = *self.sequences.entry(index).or_insert(nanos.saturating_sub(past));
                (first + added).into()
            }
            Symbol::Time(index) => {
                let text = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                self.times.entry(index).or_insert(text).as_str().into()
            }
            Symbol::GoTime(index) => {
                self.go_times.entry(index).or_insert_with(|| format_go_utc(nanos as i64)).as_str().into()
            }
            Symbol::Uid(index) => {
                let uid = || format!("{index:08x}-0000-4000-8000-{:012x}", nanos & 0xffff_ffff_ffff);
                self.uids.entry(index).or_insert_with(uid).as_str().into()
            }
        }
    }

    /// Compares a found value with a string in a trace. Returns `None` if the string is not a symbol. A symbol without
    /// a value is assigned the found value.
    pub(crate) fn matches(&mut self, expected: &str, found: &Value) -> Option<Result<(), String>> {
        let symbol = Symbol::parse(expected)?;
        Some(match symbol {
            Symbol::Sequence(index, added) => self.match_sequence(index, added, found),
            Symbol::Time(index) => self.match_time(index, found),
            Symbol::GoTime(index) => match_text(&mut self.go_times, index, found),
            Symbol::Uid(index) => match_text(&mut self.uids, index, found),
        })
    }

    fn match_sequence(&mut self, index: u32, added: u64, found: &Value) -> Result<(), String> {
        let first = found.as_u64().and_then(|number| number.checked_sub(added));
        let Some(first) = first else { return Err("a sequence number".into()) };
        if let Some(bound) = self.sequences.get(&index) {
            return if *bound == first { Ok(()) } else { Err(format!("{}", bound + added)) };
        }
        let before = self.sequences.range(..index).next_back();
        if before.is_some_and(|(_, earlier)| *earlier >= first) {
            return Err(format!("a number that is greater than that of S{}", index - 1));
        }
        self.sequences.insert(index, first);
        Ok(())
    }

    fn match_time(&mut self, index: u32, found: &Value) -> Result<(), String> {
        let Some((text, time)) =
            found.as_str().and_then(|text| Some((text, text.parse::<Timestamp>().ok()?)))
        else {
            return Err("a time".into());
        };
        if let Some(bound) = self.times.get(&index) {
            return if is_same_time(bound, time) { Ok(()) } else { Err(bound.clone()) };
        }
        let before =
            self.times.range(..index).next_back().and_then(|(_, text)| text.parse::<Timestamp>().ok());
        if before.is_some_and(|before| before.duration_since(time) > SignedDuration::ZERO) {
            return Err("a time that is not before those with lower numbers".into());
        }
        self.times.insert(index, text.to_owned());
        Ok(())
    }
}

/// True if a time equals the value of a symbol, or is at most a second apart. Times within the same second of the
/// recording may fall into adjacent seconds of the replay.
fn is_same_time(bound: &str, time: Timestamp) -> bool {
    let apart = bound.parse::<Timestamp>().map(|bound| bound.duration_since(time).abs());
    apart.is_ok_and(|apart| apart <= SECOND_CROSSED)
}

fn match_text(bound: &mut BTreeMap<u32, String>, index: u32, found: &Value) -> Result<(), String> {
    let Some(text) = found.as_str() else { return Err("a text".into()) };
    let known = bound.entry(index).or_insert_with(|| text.to_owned());
    if known == text { Ok(()) } else { Err(known.clone()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn symbols_are_bound_once_and_keep_their_relations() {
        let mut symbols = Symbols::default();
        assert_eq!(symbols.matches("S1+2", &json!(102)), Some(Ok(())));
        assert_eq!(symbols.matches("S1+0", &json!(100)), Some(Ok(())));
        assert_eq!(symbols.matches("S1+3", &json!(104)), Some(Err("103".into())));
        assert!(symbols.matches("S2+0", &json!(100)).unwrap().is_err(), "a later block has a greater number");
        assert_eq!(symbols.matches("T1", &json!("2026-05-01T10:00:00Z")), Some(Ok(())));
        assert_eq!(symbols.matches("T2", &json!("2026-05-01T10:00:00Z")), Some(Ok(())));
        assert!(symbols.matches("T3", &json!("2026-05-01T09:59:59Z")).unwrap().is_err());
        assert_eq!(
            symbols.matches("T1", &json!("2026-05-01T10:00:01Z")),
            Some(Ok(())),
            "a second was crossed"
        );
        assert!(symbols.matches("T1", &json!("2026-05-01T10:00:02Z")).unwrap().is_err());
        assert!(symbols.matches("T4", &json!(null)).unwrap().is_err());
        assert_eq!(symbols.matches("Total", &json!("Total")), None);
        assert_eq!(symbols.matches("h1", &json!("h1")), None);
    }

    #[test]
    fn filling_gives_what_then_matches() {
        let mut symbols = Symbols::default();
        let value = json!({"a": "S1+4", "b": ["T1", "U2", "N1"], "c": 1000, "d": "node"});
        let filled = symbols.fill(&value, "2026-05-01T10:00:00Z".parse().unwrap());
        assert_eq!(filled["c"], 1000);
        for (text, found) in [("S1+4", &filled["a"]), ("T1", &filled["b"][0]), ("U2", &filled["b"][1])] {
            assert_eq!(symbols.matches(text, found), Some(Ok(())), "{text}");
        }
    }
}
