//! Symbols: placeholders in traces for values that differ from run to run, and their values in this run.

use std::collections::BTreeMap;

use calipam_model::time::format_go_utc;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// A symbol. `S2+3` is the first sequence number of the second block that was created, plus 3. `T4` is a time in whole
/// seconds, `N1` a time in Go's format, and `U1` a UID.
#[derive(Clone, Copy)]
struct Symbol {
    /// The letter.
    kind: char,
    index: u32,
    /// The number after the plus sign.
    added: u64,
}

impl Symbol {
    fn parse(text: &str) -> Option<Self> {
        let kind = text.chars().next().filter(|kind| "STNU".contains(*kind))?;
        let (index, added) = if kind == 'S' {
            text[1..].split_once('+')?
        } else {
            (&text[1..], "0")
        };
        let number = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| text.parse::<u32>().ok())?
        };
        Some(Self {
            kind,
            index: number(index)?,
            added: number(added)?.into(),
        })
    }
}

/// The largest difference between times that count as equal, if the replay takes no time. Times are stored in whole
/// seconds, and times within the same second of the recording may fall into adjacent seconds of the replay.
const SECOND_CROSSED: SignedDuration = SignedDuration::from_secs(1);

/// The values of symbols in this run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    /// The values by letter and number, each with the time that the replay had taken when the value was first found.
    bound: BTreeMap<(char, u32), (Value, SignedDuration)>,
    /// The time that the replay [has taken](crate::clock::Clock::taken) until the last comparison.
    taken: SignedDuration,
}

impl Symbols {
    /// Takes the time that the replay has taken so far. Values that are found from now on were found at that time.
    pub(crate) fn advance_to(&mut self, taken: SignedDuration) {
        self.taken = taken;
    }

    /// Replaces the symbols in a value. A symbol without a value is assigned one of its kind, derived from the time
    /// `now`.
    pub(crate) fn fill(&mut self, value: &Value, now: Timestamp) -> Value {
        match value {
            Value::String(text) if let Some(symbol) = Symbol::parse(text) => self.value_of(symbol, now),
            Value::Array(items) => items.iter().map(|item| self.fill(item, now)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (name.clone(), self.fill(value, now)))
                .collect(),
            other => other.clone(),
        }
    }

    fn value_of(&mut self, Symbol { kind, index, added }: Symbol, now: Timestamp) -> Value {
        let nanos = now.as_nanosecond() as u64;
        let new = || match kind {
            // The number is chosen as if the blocks had been created one after another a moment ago.
            'S' => nanos
                .saturating_sub(1_000_000_000_u64.saturating_sub(u64::from(index) * 1_000_000))
                .into(),
            'T' => now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into(),
            'N' => format_go_utc(nanos as i64).into(),
            _ => format!("{index:08x}-0000-4000-8000-{:012x}", nanos & 0xffff_ffff_ffff).into(),
        };
        let (bound, _) = self
            .bound
            .entry((kind, index))
            .or_insert_with(|| (new(), self.taken));
        plus(bound, added)
    }

    /// Compares a found value with a string in a trace. Returns `None` if the string is not a symbol. A symbol without
    /// a value is assigned the found value.
    pub(crate) fn matches(&mut self, expected: &str, found: &Value) -> Option<Result<(), String>> {
        Some(self.bind(Symbol::parse(expected)?, found))
    }

    fn bind(&mut self, Symbol { kind, index, added }: Symbol, found: &Value) -> Result<(), String> {
        let found = match kind {
            'S' => found
                .as_u64()
                .and_then(|number| number.checked_sub(added))
                .ok_or("a sequence number")?
                .into(),
            'T' if time(found).is_none() => return Err("a time".into()),
            _ if !found.is_string() => return Err("a text".into()),
            _ => found.clone(),
        };
        if let Some((bound, then)) = self.bound.get(&(kind, index)) {
            let is_same = *bound == found || kind == 'T' && is_same_time(bound, &found, self.taken - *then);
            return if is_same {
                Ok(())
            } else {
                Err(text(&plus(bound, added)))
            };
        }
        let earlier = self.bound.range((kind, 0)..(kind, index)).next_back();
        let in_order = earlier.is_none_or(|(_, (earlier, _))| match kind {
            'S' => earlier.as_u64() < found.as_u64(),
            'T' => time(earlier) <= time(&found),
            _ => true,
        });
        if !in_order {
            return Err(format!("a value after that of {kind}{}", index - 1));
        }
        self.bound.insert((kind, index), (found, self.taken));
        Ok(())
    }
}

/// The value of a symbol with its added number, which only sequence numbers have.
fn plus(bound: &Value, added: u64) -> Value {
    bound
        .as_u64()
        .map_or_else(|| bound.clone(), |first| (first + added).into())
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// True if two times are at most a second apart, and the time that the replay has taken between them.
fn is_same_time(one: &Value, other: &Value, taken: SignedDuration) -> bool {
    let times = time(one).zip(time(other));
    times.is_some_and(|(one, other)| one.duration_since(other).abs() <= SECOND_CROSSED.saturating_add(taken))
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
        assert!(
            symbols.matches("S2+0", &json!(100)).unwrap().is_err(),
            "a later block has a greater number"
        );
        assert_eq!(
            symbols.matches("T1", &json!("2026-05-01T10:00:00Z")),
            Some(Ok(()))
        );
        assert_eq!(
            symbols.matches("T2", &json!("2026-05-01T10:00:00Z")),
            Some(Ok(()))
        );
        assert!(
            symbols
                .matches("T3", &json!("2026-05-01T09:59:59Z"))
                .unwrap()
                .is_err()
        );
        assert_eq!(
            symbols.matches("T1", &json!("2026-05-01T10:00:01Z")),
            Some(Ok(())),
            "a second was crossed"
        );
        assert!(
            symbols
                .matches("T1", &json!("2026-05-01T11:00:00Z"))
                .unwrap()
                .is_err()
        );
        assert!(symbols.matches("T4", &json!(null)).unwrap().is_err());
        assert_eq!(symbols.matches("Total", &json!("Total")), None);
        assert_eq!(symbols.matches("h1", &json!("h1")), None);
    }

    #[test]
    fn equal_times_differ_by_what_the_replay_takes() {
        let [first, later] = ["2026-05-01T10:00:00Z", "2026-05-01T10:00:04Z"].map(|time| json!(time));
        assert!(!is_same_time(&first, &later, SignedDuration::from_millis(2_900)));
        assert!(is_same_time(&later, &first, SignedDuration::from_secs(3)));
    }

    #[test]
    fn filling_gives_what_then_matches() {
        let mut symbols = Symbols::default();
        let value = json!({"a": "S1+4", "b": ["T1", "U2", "N1"], "c": 1000, "d": "node"});
        let filled = symbols.fill(&value, "2026-05-01T10:00:00Z".parse().unwrap());
        assert_eq!(filled["c"], 1000);
        for (text, found) in [
            ("S1+4", &filled["a"]),
            ("T1", &filled["b"][0]),
            ("U2", &filled["b"][1]),
        ] {
            assert_eq!(symbols.matches(text, found), Some(Ok(())), "{text}");
        }
    }
}
