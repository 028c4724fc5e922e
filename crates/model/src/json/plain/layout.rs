//! Objects that are laid out as an earlier one was: the same text but for what some strings hold.
//!
//! A large cluster has a million endpoints and as many owner records, nearly all with the same fields in the same order. Holding
//! one against an earlier one is quicker than reading it: only the ends of its strings have to be found. That the rest is
//! the same, byte for byte, proves that it would be read in the same way: names, numbers and literals are the same, and
//! no string holds a quote or an escape ([`Quotes`](super::quotes::Quotes)).

use super::{Plain, Result, Unusual};

/// How an object is laid out.
pub(crate) struct Layout {
    /// What has to be the same, one part after the other.
    same: Box<[u8]>,
    parts: Box<[Part]>,
}

#[derive(Clone, Copy)]
struct Part {
    /// Where it ends in [`Layout::same`].
    end: usize,
    /// What comes after it.
    then: Then,
}

#[derive(Clone, Copy)]
enum Then {
    /// A string that is wanted, up to its closing quote: which one of these it is.
    Wanted(usize),
    /// Another string, up to its closing quote.
    Other,
    /// A value that is passed over, whatever it is.
    Value,
    /// Nothing more.
    End,
}

impl Layout {
    /// The layout of an object that was read as plain JSON. `wanted` are the strings in it that are wanted, as parts of `text`;
    /// `passed_over` the names of fields of which nothing is wanted, whatever they hold.
    ///
    /// `None` if one of them is not a string value of the text.
    pub(crate) fn of(text: &str, wanted: &[Option<&str>], passed_over: &[&str]) -> Option<Self> {
        let mut reader = Plain::of(text);
        let (mut same, mut parts, mut start) = (Vec::with_capacity(text.len()), Vec::new(), 0);
        let mut found = 0;
        while let Ok((open, close)) = reader.quotes.pair() {
            let string = text.get(open + 1..close)?;
            reader.at = close + 1;
            let is_name = matches!(reader.peek(), Ok(b':'));
            if is_name && !passed_over.contains(&string) {
                continue;
            }
            let (until, then) = if is_name {
                let value = reader.at + 1;
                reader.at = value;
                reader.skip().ok()?;
                (value, Then::Value)
            } else {
                reader.at = close;
                let place = wanted.iter().position(|one| one.is_some_and(|one| std::ptr::eq(one, string)));
                found += usize::from(place.is_some());
                (open + 1, place.map_or(Then::Other, Then::Wanted))
            };
            same.extend_from_slice(text.as_bytes().get(start..until)?);
            parts.push(Part { end: same.len(), then });
            start = reader.at;
        }
        same.extend_from_slice(text.as_bytes().get(start..)?);
        parts.push(Part { end: same.len(), then: Then::End });
        let all = wanted.iter().flatten().count();
        (found == all).then(|| Self { same: same.into(), parts: parts.into() })
    }

    /// Takes the next value where it is laid out like this, and gives the strings that are wanted to `take`. False, with the
    /// reader where it was, if it is laid out in another way; some strings may have been given then.
    pub(crate) fn read<'de>(&self, reader: &mut Plain<'de>, take: impl FnMut(usize, &'de str)) -> bool {
        let before = reader.clone();
        let is_alike = self.take_all(reader, take).is_ok();
        if !is_alike {
            *reader = before;
        }
        is_alike
    }

    fn take_all<'de>(&self, reader: &mut Plain<'de>, mut take: impl FnMut(usize, &'de str)) -> Result<()> {
        let mut start = 0;
        for part in &self.parts {
            reader.same(self.same.get(start..part.end).ok_or(Unusual)?)?;
            start = part.end;
            match part.then {
                Then::Wanted(place) => take(place, reader.up_to_quote()?),
                Then::Other => drop(reader.up_to_quote()?),
                Then::Value => reader.skip()?,
                Then::End => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::document;
    use super::*;

    const EARLIER: &str = r#"{"a":{"node":"n1","n":1},"labels":{"x":"y"},"pod":"p1","other":"o"}"#;

    fn layout(text: &str) -> Option<Layout> {
        let part = |part: &str| text.find(part).map(|at| &text[at..at + part.len()]);
        Layout::of(text, &[part("n1"), part("p1"), None], &["labels"])
    }

    /// The strings that are wanted, where the text is laid out as [`EARLIER`].
    fn read(text: &str) -> Option<Vec<&str>> {
        let mut taken = vec![""; 3];
        let read = document(text.as_bytes(), |reader| {
            let is_alike = layout(EARLIER).unwrap().read(reader, |place, string| taken[place] = string);
            if !is_alike {
                assert_eq!(reader.at, 0);
                reader.skip()?;
            }
            Ok(is_alike)
        });
        read.unwrap().then_some(taken)
    }

    #[test]
    fn what_differs_in_strings_alone_is_read() {
        assert_eq!(read(EARLIER), Some(vec!["n1", "p1", ""]));
        let long = "x".repeat(200);
        for (node, labels, pod, other) in [
            ("", "{}", "é", ""),
            (long.as_str(), "null", "p", long.as_str()),
            ("{}", r#"{"a":[1,{"b":"c"}],"d":"e"}"#, ":", "null"),
        ] {
            let text = format!(
                r#"{{"a":{{"node":"{node}","n":1}},"labels":{labels},"pod":"{pod}","other":"{other}"}}"#
            );
            assert_eq!(read(&text), Some(vec![node, pod, ""]), "{text}");
        }
    }

    #[test]
    fn everything_else_is_another_layout() {
        for (from, to) in [
            (":1}", ":12}"),
            (":1}", ": 1}"),
            ("node", "Node"),
            ("\"o\"", "1"),
            ("\"o\"", "{\"o\":\"p\"}"),
            ("\"p1\"", "null"),
            ("\"pod\"", "\"pod2\""),
            ("\"labels\":{\"x\":\"y\"},", ""),
            ("\"other\":\"o\"", "\"other\":\"o\",\"more\":\"m\""),
        ] {
            assert!(EARLIER.contains(from), "{from}");
            assert_eq!(read(&EARLIER.replacen(from, to, 1)), None, "{to}");
        }
    }

    #[test]
    fn what_is_wanted_must_be_a_string_of_the_text() {
        assert!(Layout::of(EARLIER, &[Some("n1")], &[]).is_none(), "the same text elsewhere");
        assert!(layout(r#"{"n1":"x","b":"p1"}"#).is_none(), "a name");
        assert!(layout(r#"{"labels":{"x":"n1"},"b":"p1"}"#).is_none(), "in what is passed over");
    }
}
