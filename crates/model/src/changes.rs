//! Updates a snapshot after objects have changed. [`Snapshot::change_entries`] takes the changed etcd keys; [`merge`]
//! updates any list that is sorted by path.

use std::collections::{HashSet, VecDeque};
use std::mem::{replace, take};
use std::ops::Range;

use crate::key::{BLOCK_PREFIX, DEFAULT, ENDPOINT_PREFIX, HANDLE_PREFIX, Key, RESOURCE_PREFIX};
use crate::snapshot::{Snapshot, Versioned};

/// A list that grows reserves spare capacity: its length divided by this number.
const SPARE_DIVISOR: usize = 64;

impl Snapshot {
    /// Updates a complete snapshot after the objects under `keys` have changed. `current` has the values that are now
    /// stored under them. Returns the earlier values. Keys are ascending, and objects of each kind are ordered by key
    /// in both snapshots.
    pub fn change_entries<K: AsRef<[u8]>>(&mut self, keys: &[K], mut current: Self) -> Self {
        let paths: Vec<&str> = keys
            .iter()
            .filter_map(|key| std::str::from_utf8(key.as_ref()).ok())
            .collect();
        let mut earlier = Self::default();
        self.change_large_lists(&mut current, &paths, &mut earlier);
        self.change_small_lists(&mut current, &paths, &mut earlier);
        self.change_settings(&mut current, &paths, &mut earlier);
        self.change_defects(&mut current, keys, &mut earlier);
        self.newest_creation = self.newest_creation.max(current.newest_creation);
        earlier
    }

    /// Updates the kinds with many objects: handles in parallel with endpoints and blocks. The earlier versions go to
    /// `earlier`.
    fn change_large_lists(&mut self, current: &mut Self, paths: &[&str], earlier: &mut Self) {
        let current_handles = take(&mut current.handles);
        let current_endpoints = take(&mut current.endpoints);
        let current_blocks = take(&mut current.blocks);

        std::thread::scope(|scope| {
            scope.spawn(|| {
                let handle_paths = with_prefix(paths, HANDLE_PREFIX);
                earlier.handles = merge(
                    &mut self.handles,
                    current_handles,
                    &handle_paths,
                    |handle, path| {
                        path.push_str(HANDLE_PREFIX);
                        handle.value.id().push_to(path);
                    },
                );
            });

            let endpoint_paths = with_prefix(paths, ENDPOINT_PREFIX);
            earlier.endpoints = merge(
                &mut self.endpoints,
                current_endpoints,
                &endpoint_paths,
                |endpoint, path| {
                    path.push_str(ENDPOINT_PREFIX);
                    endpoint.value.namespace().push_to(path);
                    path.push('/');
                    endpoint.value.push_name(path);
                },
            );

            let block_paths = with_prefix(paths, BLOCK_PREFIX);
            earlier.blocks = merge_keys(&mut self.blocks, current_blocks, &block_paths, |block| {
                Key::Block(block.key)
            });
        });
    }

    /// Updates affinities, nodes, pools and reservations. The earlier versions go to `earlier`.
    fn change_small_lists(&mut self, current: &mut Self, paths: &[&str], earlier: &mut Self) {
        let mut other_paths = paths.to_vec();
        for large_list in [BLOCK_PREFIX, HANDLE_PREFIX, ENDPOINT_PREFIX] {
            other_paths.retain(|path| !path.starts_with(large_list));
        }
        earlier.affinities = merge_keys(
            &mut self.affinities,
            take(&mut current.affinities),
            &other_paths,
            |affinity| Key::Affinity(affinity.key.clone()),
        );

        let paths_of = |plural: &str| with_prefix(paths, &format!("{RESOURCE_PREFIX}{plural}/"));
        earlier.nodes = merge_keys(
            &mut self.nodes,
            take(&mut current.nodes),
            &paths_of("nodes"),
            |node| Key::Node(node.name.clone()),
        );
        earlier.pools = merge_keys(
            &mut self.pools,
            take(&mut current.pools),
            &paths_of("ippools"),
            |pool| Key::Pool(pool.name.clone()),
        );
        earlier.reservations = merge_keys(
            &mut self.reservations,
            take(&mut current.reservations),
            &paths_of("ipreservations"),
            |reservation| Key::Reservation(reservation.name.clone()),
        );
    }

    /// Updates the objects of which a cluster has one each, and the names of configurations that Calico ignores. The
    /// earlier versions go to `earlier`.
    fn change_settings(&mut self, current: &mut Self, paths: &[&str], earlier: &mut Self) {
        let is_changed = |key: Key| paths.binary_search(&key.to_string().as_str()).is_ok();
        if is_changed(Key::IpamConfig) {
            earlier.ipam_config = replace(&mut self.ipam_config, current.ipam_config);
        }
        if is_changed(Key::IpamConfiguration(DEFAULT.to_owned())) {
            earlier.ipam_configuration = replace(&mut self.ipam_configuration, current.ipam_configuration);
        }
        if is_changed(Key::ClusterInformation(DEFAULT.to_owned())) {
            earlier.cluster = replace(&mut self.cluster, current.cluster.take());
            earlier.cluster_revision = replace(&mut self.cluster_revision, current.cluster_revision.take());
        }
        if is_changed(Key::KubeControllersConfiguration(DEFAULT.to_owned())) {
            earlier.kube_controllers = replace(&mut self.kube_controllers, current.kube_controllers.take());
        }

        let changed_configs = self
            .ignored_configs
            .extract_if(.., |name| is_changed(Key::IpamConfiguration(name.clone())));
        earlier.ignored_configs = changed_configs.collect();
        self.ignored_configs.append(&mut current.ignored_configs);
        self.ignored_configs.sort();
    }

    /// Replaces the defects of the objects that were read again.
    fn change_defects<K: AsRef<[u8]>>(&mut self, current: &mut Self, keys: &[K], earlier: &mut Self) {
        if !self.defects.is_empty() {
            // A defect stores its key as text, with invalid UTF-8 replaced.
            let paths: HashSet<_> = keys
                .iter()
                .map(|key| String::from_utf8_lossy(key.as_ref()))
                .collect();
            let replaced = self
                .defects
                .extract_if(.., |defect| paths.contains(defect.path.as_str()));
            earlier.defects = replaced.collect();
        }
        self.defects.append(&mut current.defects);
        self.defects.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

fn with_prefix<'p>(paths: &[&'p str], prefix: &str) -> Vec<&'p str> {
    paths
        .iter()
        .copied()
        .filter(|path| path.starts_with(prefix))
        .collect()
}

/// Like [`merge`], but by the objects' keys.
fn merge_keys<T>(
    list: &mut Vec<Versioned<T>>,
    current: Vec<Versioned<T>>,
    paths: &[&str],
    key: impl Fn(&T) -> Key,
) -> Vec<Versioned<T>> {
    merge(list, current, paths, |object, path| {
        path.push_str(&key(&object.value).to_string())
    })
}

/// Removes the objects at `paths` from `list`, inserts `current`, and returns the removed ones. `list` and `paths` are
/// ascending by path.
pub fn merge<T>(
    list: &mut Vec<Versioned<T>>,
    current: Vec<Versioned<T>>,
    paths: &[&str],
    push_path: impl Fn(&Versioned<T>, &mut String),
) -> Vec<Versioned<T>> {
    let mut buffer = String::new();
    let mut compare = |object: &Versioned<T>, path: &str| {
        buffer.clear();
        push_path(object, &mut buffer);
        buffer.as_str().cmp(path)
    };

    // The positions of the objects with each path. If there are none, the range is empty and starts where the path
    // belongs. The search spends most of its time building the paths of the objects that it compares.
    let mut spans: Vec<Range<usize>> = Vec::with_capacity(paths.len());
    let mut end = 0;
    for path in paths {
        let start = search_forward(list, end, |object| compare(object, path).is_lt());
        let count = list[start..]
            .iter()
            .take_while(|object| compare(object, path).is_eq())
            .count();
        end = start + count;
        spans.push(start..end);
    }

    // The current object for each path; further ones of the same path are inserted one by one.
    let mut replacements: Vec<Option<Versioned<T>>> = paths.iter().map(|_| None).collect();
    let mut unmatched = Vec::new();
    for object in current {
        match paths.binary_search_by(|path| compare(&object, path).reverse()) {
            Ok(index) if replacements[index].is_none() => replacements[index] = Some(object),
            _ => unmatched.push(object),
        }
    }

    // An object takes the place of an earlier one, or is added where there was none. Further earlier ones are removed.
    let mut earlier = Vec::new();
    let mut removed = Vec::new();
    let mut added = Vec::new();
    for (mut span, replacement) in spans.into_iter().zip(replacements) {
        if let Some(object) = replacement {
            if span.is_empty() {
                added.push((span.start, object));
            } else {
                earlier.push((span.start, replace(&mut list[span.start], object)));
                span.start += 1;
            }
        }
        removed.extend(span);
    }
    earlier.extend(splice(list, &removed, added));
    earlier.sort_by_key(|(position, _)| *position);

    for object in unmatched {
        let mut path = String::new();
        push_path(&object, &mut path);
        let position = list.partition_point(|other| compare(other, &path).is_lt());
        list.insert(position, object);
    }
    earlier.into_iter().map(|(_, object)| object).collect()
}

/// Removes the items at the positions `removed` and returns them with their positions, in no particular order. Inserts
/// each item in `added` before the item at its position. Positions are ascending. Works in one pass and in place, since
/// a copy of a million objects would double the memory.
fn splice<T>(list: &mut Vec<T>, removed: &[usize], added: Vec<(usize, T)>) -> Vec<(usize, T)> {
    let growth = added.len().saturating_sub(removed.len());
    if list.capacity() - list.len() < growth {
        list.reserve_exact(growth + list.len() / SPARE_DIVISOR);
    }

    let mut removed = removed.iter().copied().peekable();
    let mut added = added.into_iter().peekable();
    let mut removed_items = Vec::new();
    // At most one of these queues has entries: items that wait for a place, or free places. A free place still contains
    // a removed item, whose original position is in `free`. The free places are those right before `position`.
    let mut waiting = VecDeque::new();
    let mut free = VecDeque::new();
    let mut position = 0;
    while position <= list.len() {
        // Up to the next change, all items stay where they are.
        if waiting.is_empty() && free.is_empty() {
            let next_removed = removed.peek().copied();
            let next_added = added.peek().map(|(before, _)| *before);
            let Some(next) = next_removed.into_iter().chain(next_added).min() else {
                break;
            };
            position = next;
        }

        while let Some((_, item)) = added.next_if(|(before, _)| *before == position) {
            let first_free = position - free.len();
            if let Some(original) = free.pop_front() {
                removed_items.push((original, replace(&mut list[first_free], item)));
            } else {
                waiting.push_back(item);
            }
        }

        let Some(item) = list.get_mut(position) else {
            break;
        };
        let is_removed = removed.next_if_eq(&position).is_some();
        if let Some(first_waiting) = waiting.pop_front() {
            let displaced = replace(item, first_waiting);
            if is_removed {
                removed_items.push((position, displaced));
            } else {
                waiting.push_back(displaced);
            }
        } else if is_removed {
            free.push_back(position);
        } else if !free.is_empty() {
            // The item moves to the first free place. Its own place becomes the last one.
            list.swap(position - free.len(), position);
            free.rotate_left(1);
        }
        position += 1;
    }

    let kept = list.len() - free.len();
    removed_items.extend(free.into_iter().zip(list.drain(kept..)));
    list.extend(waiting);
    removed_items
}

/// The first position at or after `start` for which `is_before` is false, in a list that is partitioned by `is_before`.
/// Fast if that position is near.
fn search_forward<T>(list: &[T], start: usize, mut is_before: impl FnMut(&T) -> bool) -> usize {
    let mut low = start;
    let mut step = 1;
    while let Some(object) = list.get(low + step - 1) {
        if !is_before(object) {
            break;
        }
        low += step;
        step *= 2;
    }
    let high = list.len().min(low + step - 1);
    low + list[low..high].partition_point(is_before)
}
