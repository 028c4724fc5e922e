//! Selects some of many names: the first ones, and those that are needed to show the common prefix of all names.

use std::collections::BTreeSet;

use calipam_files::raw::{next_key, prefix_end};

use super::MOST;
use crate::error::Result;

/// Names in byte order, which can be read from any position on.
pub(crate) trait Names {
    /// The first names from `start` on, at most `most`. Names after the end may be among them.
    async fn from(&self, start: &[u8], end: &[u8], most: usize) -> Result<Vec<String>>;
}

/// The names that begin with `begin`, or some of them. See [`Datastore::names`](crate::Datastore::names).
///
/// All names in a sorted list share the common prefix of the first and last name. To find the last name, a server would
/// have to read everything. Instead, this function repeatedly requests the first name after all names with the common
/// prefix found so far, until there is none.
pub(crate) async fn some(names: &impl Names, begin: &str) -> Result<BTreeSet<String>> {
    let end = prefix_end(begin.as_bytes());
    let mut found: Vec<String> = within(names.from(begin.as_bytes(), &end, MOST + 1).await?, begin);
    if found.len() > MOST {
        let mut shared = common(found.iter());
        while shared.len() > begin.len() {
            let next = within(names.from(&prefix_end(shared.as_bytes()), &end, 1).await?, begin);
            let Some(next) = next.into_iter().next() else {
                break;
            };
            shared = common([&shared, &next].into_iter());
            found.push(next);
        }
    }
    Ok(found.into_iter().collect())
}

/// The distinct prefixes of names, up to and including a separator. Finds a few hundred at most, with small reads.
/// Omits names without the separator.
pub(crate) async fn parts(names: &impl Names, begin: &str, separator: char) -> Result<Vec<String>> {
    let end = prefix_end(begin.as_bytes());
    let mut start = begin.as_bytes().to_vec();
    let mut parts: Vec<String> = Vec::new();
    while parts.len() < 3 * MOST {
        // A small cluster needs only one read.
        let page = within(names.from(&start, &end, MOST).await?, begin);
        let Some(last_name) = page.last().cloned() else {
            break;
        };
        for name in &page {
            let Some(place) = name[begin.len()..].find(separator) else {
                continue;
            };
            let part = &name[..=begin.len() + place];
            if parts.last().is_none_or(|last_part| last_part != part) {
                parts.push(part.to_owned());
            }
        }
        if page.len() < MOST {
            break;
        }

        // The next read skips the other names with the last part.
        start = match parts.last() {
            Some(part) if last_name.starts_with(part.as_str()) => prefix_end(part.as_bytes()),
            _ => next_key(last_name.as_bytes()),
        };
    }
    Ok(parts)
}

/// Selects the names that begin with `begin`, or some of them if there are many.
pub(crate) fn few(names: BTreeSet<String>, begin: &str) -> BTreeSet<String> {
    let mut matching = names.into_iter().filter(|name| name.starts_with(begin));
    let mut found: BTreeSet<String> = matching.by_ref().take(MOST).collect();
    // The prefix that the first and last names share is common to all.
    found.extend(matching.next_back());
    found
}

fn within(names: Vec<String>, begin: &str) -> Vec<String> {
    names.into_iter().filter(|name| name.starts_with(begin)).collect()
}

/// The common prefix of all names.
pub(crate) fn common<'n>(names: impl Iterator<Item = &'n String> + Clone) -> String {
    let (Some(first), Some(last)) = (names.clone().min(), names.max()) else {
        return String::new();
    };
    first
        .chars()
        .zip(last.chars())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct List {
        names: BTreeSet<String>,
        reads: Cell<usize>,
    }

    impl Names for List {
        async fn from(&self, start: &[u8], end: &[u8], most: usize) -> Result<Vec<String>> {
            self.reads.set(self.reads.get() + 1);
            // The end `[0]` stands for the end of the empty prefix, which is after all names.
            let within = |name: &&String| name.as_bytes() >= start && (end == [0] || name.as_bytes() < end);
            Ok(self.names.iter().filter(within).take(most).cloned().collect())
        }
    }

    fn list(names: impl Iterator<Item = String>) -> List {
        List {
            names: names.collect(),
            reads: Cell::new(0),
        }
    }

    #[tokio::test]
    async fn names_that_are_left_out_share_no_longer_prefix() {
        let many = (0..50_000).map(|n| format!("net.{n:05}"));
        let all = list(many.chain(["nodes".to_owned(), "z".to_owned()]));
        let found = some(&all, "").await.unwrap();
        assert_eq!(common(found.iter()), "");
        assert!(
            (MOST..MOST + 10).contains(&found.len()) && all.reads.get() < 10,
            "{}",
            found.len()
        );
        let found: Vec<String> = some(&all, "ne").await.unwrap().into_iter().collect();
        assert_eq!(common(found.iter()), "net.", "{found:?}");
        assert_eq!(some(&all, "net.0001").await.unwrap().len(), 10);
        assert!(some(&all, "x").await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn parts_are_found_by_few_reads() {
        let names = (0..40).flat_map(|a| (0..300).map(move |b| format!("10.{a}.{b}")));
        let all = list(names);
        let mut expected: Vec<String> = (0..40).map(|a| format!("10.{a}.")).collect();
        expected.sort();
        assert_eq!(parts(&all, "10.", '.').await.unwrap(), expected);
        assert!(all.reads.get() <= 41, "{}", all.reads.get());
        assert_eq!(parts(&all, "", '.').await.unwrap(), ["10."]);
        assert!(parts(&all, "10.3.", '.').await.unwrap().is_empty());
    }

    #[test]
    fn few_of_many_names() {
        let all: BTreeSet<String> = (0..1000).map(|n| format!("n{n:03}")).collect();
        let found: Vec<String> = few(all.clone(), "n").into_iter().collect();
        assert_eq!((found.len(), common(found.iter())), (MOST + 1, "n".to_owned()));
        assert_eq!(few(all, "n99").len(), 10);
    }
}
