//! Words of messages.

/// Longest text of the datastore in a message, in characters; the evidence has all of it.
const LONGEST: usize = 100;
/// So many things are named in a message; the evidence lists all.
const NAMED: usize = 3;

/// A text of the datastore as a message shows it: on one line and not too long.
pub(crate) fn short(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(LONGEST));
    for (position, c) in text.chars().enumerate() {
        if position == LONGEST {
            shown.push('…');
            break;
        }
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Several names in one phrase: `a, b and c`, or `a, b, c and 4 more`.
pub(crate) fn list(names: impl IntoIterator<Item = impl ToString>) -> String {
    let mut names = names.into_iter();
    let mut shown: Vec<String> = names.by_ref().take(NAMED).map(|n| short(&n.to_string())).collect();
    let more = names.count();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    match shown.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// `1 address` or `2 addresses`.
pub(crate) fn addresses(count: impl std::fmt::Display) -> String {
    let count = count.to_string();
    if count == "1" { "1 address".to_owned() } else { format!("{count} addresses") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_on_one_line_and_short() {
        assert_eq!(short("a\r\nb"), "a\\r\\nb");
        assert_eq!(short(&"x".repeat(1_000_000)).chars().count(), LONGEST + 1);
    }

    #[test]
    fn lists() {
        assert_eq!(list(["a"]), "a");
        assert_eq!(list(["a", "b"]), "a and b");
        assert_eq!(list(["a", "b", "c"]), "a, b and c");
        assert_eq!(list(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
        assert_eq!(list([""; 0]), "nothing");
        assert_eq!(addresses(1), "1 address");
        assert_eq!(addresses(0), "0 addresses");
    }
}
