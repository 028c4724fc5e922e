//! Sorts objects by key, as etcd returns them. A snapshot file has objects in the order of their last change.

use std::cmp::Ordering;
use std::thread;

use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;

/// The number of bytes at the start of a key that nearly always determine the order. Handle keys begin with the network
/// name, and endpoint keys with the namespace and node.
const HEAD: usize = 48;

/// Sorts each list of objects as etcd sorts their keys.
pub(crate) fn sort_by_key(snapshot: &mut Snapshot) {
    // The text of a CIDR sorts differently than the CIDR, so these need their keys. There are few enough to keep them.
    snapshot
        .blocks
        .sort_by_cached_key(|b| Key::Block(b.value.key).to_string());
    snapshot
        .affinities
        .sort_by_cached_key(|a| Key::Affinity(a.value.key.clone()).to_string());

    // These lists can have a million objects each, so they are sorted at the same time, without all their keys.
    let handles = &mut snapshot.handles;
    let endpoints = &mut snapshot.endpoints;
    thread::scope(|scope| {
        scope.spawn(|| sort_by_text(handles, |handle, key| handle.value.id().push_to(key)));
        sort_by_text(endpoints, |endpoint, key| {
            endpoint.value.namespace().push_to(key);
            key.push('/');
            endpoint.value.push_name(key);
        });
    });

    // Within each of these lists, keys differ only in the name or path.
    snapshot.nodes.sort_by(|a, b| a.value.name.cmp(&b.value.name));
    snapshot.pools.sort_by(|a, b| a.value.name.cmp(&b.value.name));
    snapshot
        .reservations
        .sort_by(|a, b| a.value.name.cmp(&b.value.name));
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
}

/// Sorts items by the strings that `write_key` writes. Keeps only the beginnings of the strings in memory, since a
/// million full strings would be as large as all other data. The sort is stable.
fn sort_by_text<T>(items: &mut Vec<T>, write_key: impl Fn(&T, &mut String)) {
    // The beginning of each item's string, and the item's index.
    let mut order: Vec<([u8; HEAD], u32)> = Vec::with_capacity(items.len());
    let mut key = String::new();
    for (index, item) in (0..).zip(items.iter()) {
        key.clear();
        write_key(item, &mut key);
        let mut head = [0; HEAD];
        let len = key.len().min(HEAD);
        head[..len].copy_from_slice(&key.as_bytes()[..len]);
        order.push((head, index));
    }

    let full_key = |index: u32| {
        let mut key = String::new();
        write_key(&items[index as usize], &mut key);
        key
    };
    order.sort_unstable_by(|(head, index), (other_head, other_index)| {
        let by_head = head.cmp(other_head);
        if by_head != Ordering::Equal {
            return by_head;
        }
        let by_key = full_key(*index).cmp(&full_key(*other_index));
        by_key.then(index.cmp(other_index))
    });

    let mut unsorted: Vec<Option<T>> = std::mem::take(items).into_iter().map(Some).collect();
    for (_, index) in order {
        items.extend(unsorted[index as usize].take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_the_same_beginning_are_in_order_too() {
        let long = "x".repeat(HEAD);
        let mut items: Vec<(String, u32)> = ["b", "", "a", "ab", "b"]
            .into_iter()
            .map(str::to_owned)
            .chain([
                format!("{long}b"),
                long.clone(),
                format!("{long}a"),
                format!("{long}\0"),
            ])
            .zip(0..)
            .collect();
        let mut expected = items.clone();
        expected.sort();
        sort_by_text(&mut items, |(text, _), key| key.push_str(text));
        assert_eq!(items, expected);
    }
}
