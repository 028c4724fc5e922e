//! Selects some of many names: the first ones, and those that are needed to show the common prefix of all names.

use std::collections::BTreeSet;

use calipam_files::raw::{next_key, prefix_end};

use super::MAX_NAMES;
use crate::error::Result;

/// Names in byte order, which can be read from any position on.
pub(crate) trait Names {
    /// The first names from `start` on, at most `limit`. Names after the end may be among them.
    async fn page_from(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<String>>;
}

/// The names that begin with `begin`, or some of them. See [`Datastore::names`](crate::Datastore::names).
///
/// All names in a sorted list share the common prefix of the first and last name. To find the last name, a server would
/// have to read everything. Instead, this function repeatedly requests the first name after all names with the common
/// prefix found so far, until there is none.
pub(crate) async fn read_some(names: &impl Names, begin: &str) -> Result<BTreeSet<String>> {
    let end = prefix_end(begin.as_bytes());
    let first_page = names.page_from(begin.as_bytes(), &end, MAX_NAMES + 1).await?;
    let mut found = starting_with(begin, first_page);
    if found.len() <= MAX_NAMES {
        return Ok(found.into_iter().collect());
    }

    let mut shared = common_prefix(found.iter());
    while shared.len() > begin.len() {
        let shared_end = prefix_end(shared.as_bytes());
        let next_page = names.page_from(&shared_end, &end, 1).await?;
        let Some(next) = starting_with(begin, next_page).into_iter().next() else {
            break;
        };
        shared = common_prefix([&shared, &next].into_iter());
        found.push(next);
    }
    Ok(found.into_iter().collect())
}

/// The distinct prefixes of names, up to and including a separator. Finds a few hundred at most, with small reads.
/// Omits names without the separator.
pub(crate) async fn read_prefixes(names: &impl Names, begin: &str, separator: char) -> Result<Vec<String>> {
    let end = prefix_end(begin.as_bytes());
    let mut start = begin.as_bytes().to_vec();
    let mut prefixes: Vec<String> = Vec::new();
    while prefixes.len() < 3 * MAX_NAMES {
        // A small cluster needs only one read.
        let page = starting_with(begin, names.page_from(&start, &end, MAX_NAMES).await?);
        let Some(last_name) = page.last() else {
            break;
        };
        for name in &page {
            let Some(separator_index) = name[begin.len()..].find(separator) else {
                continue;
            };
            // Names are sorted, so those with the same prefix are neighbors.
            let prefix = &name[..=begin.len() + separator_index];
            if prefixes.last().map(String::as_str) != Some(prefix) {
                prefixes.push(prefix.to_owned());
            }
        }
        if page.len() < MAX_NAMES {
            break;
        }

        // The next read skips the other names with the last prefix.
        start = match prefixes.last() {
            Some(prefix) if last_name.starts_with(prefix) => prefix_end(prefix.as_bytes()),
            _ => next_key(last_name.as_bytes()),
        };
    }
    Ok(prefixes)
}

/// Selects the names that begin with `begin`, or some of them if there are many.
pub(crate) fn select_few(names: BTreeSet<String>, begin: &str) -> BTreeSet<String> {
    let mut matching = names.into_iter().filter(|name| name.starts_with(begin));
    let mut found: BTreeSet<String> = matching.by_ref().take(MAX_NAMES).collect();
    // The prefix that the first and last names share is common to all.
    found.extend(matching.next_back());
    found
}

fn starting_with(begin: &str, mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| name.starts_with(begin));
    names
}

/// The common prefix of all names, which is that of the first and the last one in their order.
pub(crate) fn common_prefix<'n>(names: impl Iterator<Item = &'n String> + Clone) -> String {
    let (Some(first), Some(last)) = (names.clone().min(), names.max()) else {
        return String::new();
    };
    let mut prefix = String::new();
    for (char_of_first, char_of_last) in first.chars().zip(last.chars()) {
        if char_of_first != char_of_last {
            break;
        }
        prefix.push(char_of_first);
    }
    prefix
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
        async fn page_from(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<String>> {
            self.reads.set(self.reads.get() + 1);
            // The end `[0]` stands for the end of the empty prefix, which is after all names.
            let within = |name: &&String| name.as_bytes() >= start && (end == [0] || name.as_bytes() < end);
            Ok(self.names.iter().filter(within).take(limit).cloned().collect())
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
        let found = read_some(&all, "").await.unwrap();
        assert_eq!(common_prefix(found.iter()), "");
        assert!(
            (MAX_NAMES..MAX_NAMES + 10).contains(&found.len()) && all.reads.get() < 10,
            "{}",
            found.len()
        );
        let found: Vec<String> = read_some(&all, "ne").await.unwrap().into_iter().collect();
        assert_eq!(common_prefix(found.iter()), "net.", "{found:?}");
        assert_eq!(read_some(&all, "net.0001").await.unwrap().len(), 10);
        assert!(read_some(&all, "x").await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn parts_are_found_by_few_reads() {
        let names = (0..40).flat_map(|a| (0..300).map(move |b| format!("10.{a}.{b}")));
        let all = list(names);
        let mut expected: Vec<String> = (0..40).map(|a| format!("10.{a}.")).collect();
        expected.sort();
        assert_eq!(read_prefixes(&all, "10.", '.').await.unwrap(), expected);
        assert!(all.reads.get() <= 41, "{}", all.reads.get());
        assert_eq!(read_prefixes(&all, "", '.').await.unwrap(), ["10."]);
        assert!(read_prefixes(&all, "10.3.", '.').await.unwrap().is_empty());
    }

    #[test]
    fn few_of_many_names() {
        let all: BTreeSet<String> = (0..1000).map(|n| format!("n{n:03}")).collect();
        let found: Vec<String> = select_few(all.clone(), "n").into_iter().collect();
        assert_eq!(
            (found.len(), common_prefix(found.iter())),
            (MAX_NAMES + 1, "n".to_owned())
        );
        assert_eq!(select_few(all, "n99").len(), 10);
    }
}
