//! Updates a snapshot after objects have changed. [`Snapshot::change_entries`] takes the changed etcd keys; [`merge`]
//! updates any list that is sorted by path.

use std::collections::{HashSet, VecDeque};
use std::mem::{replace, take};
use std::ops::Range;

use crate::key::{BLOCK_PREFIX, DEFAULT, ENDPOINT_PREFIX, HANDLE_PREFIX, Key, RESOURCE_PREFIX};
use crate::snapshot::{Defect, Snapshot, Versioned};

/// A list that grows reserves spare capacity: its length divided by this number.
const ROOM: usize = 64;

impl Snapshot {
    /// Updates a complete snapshot after the objects under `keys` have changed. `fresh` has the values that are now
    /// stored under them. Returns the earlier values. Keys are ascending, and objects of each kind are ordered by key
    /// in both snapshots.
    pub fn change_entries<K: AsRef<[u8]>>(&mut self, keys: &[K], mut fresh: Self) -> Self {
        let paths: Vec<&str> = keys
            .iter()
            .filter_map(|key| std::str::from_utf8(key.as_ref()).ok())
            .collect();
        let mut gone = Self::default();
        self.change_many(&mut fresh, &paths, &mut gone);
        self.change_few(&mut fresh, &paths, &mut gone);
        self.change_settings(&mut fresh, &paths, &mut gone);
        self.change_defects(&mut fresh, keys, &mut gone);
        self.newest_creation = self.newest_creation.max(fresh.newest_creation);
        gone
    }

    /// Updates the kinds with many objects, in parallel.
    fn change_many(&mut self, fresh: &mut Self, paths: &[&str], gone: &mut Self) {
        let fresh_handles = take(&mut fresh.handles);
        let fresh_endpoints = take(&mut fresh.endpoints);
        let fresh_blocks = take(&mut fresh.blocks);

        std::thread::scope(|scope| {
            scope.spawn(|| {
                let paths = below(paths, HANDLE_PREFIX);
                gone.handles = merge(&mut self.handles, fresh_handles, &paths, |handle, path| {
                    path.push_str(HANDLE_PREFIX);
                    handle.value.id().push_to(path);
                });
            });

            let endpoints = below(paths, ENDPOINT_PREFIX);
            gone.endpoints = merge(
                &mut self.endpoints,
                fresh_endpoints,
                &endpoints,
                |endpoint, path| {
                    path.push_str(ENDPOINT_PREFIX);
                    endpoint.value.namespace().push_to(path);
                    path.push('/');
                    endpoint.value.push_name(path);
                },
            );

            let blocks = below(paths, BLOCK_PREFIX);
            gone.blocks = merge_keys(&mut self.blocks, fresh_blocks, &blocks, |block| {
                Key::Block(block.key)
            });
        });
    }

    /// Updates affinities, nodes, pools and reservations.
    fn change_few(&mut self, fresh: &mut Self, paths: &[&str], gone: &mut Self) {
        let is_other = |path: &&str| {
            ![BLOCK_PREFIX, HANDLE_PREFIX, ENDPOINT_PREFIX]
                .iter()
                .any(|prefix| path.starts_with(prefix))
        };
        let others: Vec<&str> = paths.iter().copied().filter(is_other).collect();
        let fresh_affinities = take(&mut fresh.affinities);
        gone.affinities = merge_keys(&mut self.affinities, fresh_affinities, &others, |affinity| {
            Key::Affinity(affinity.key.clone())
        });

        let resource = |plural: &str| below(paths, &format!("{RESOURCE_PREFIX}{plural}/"));
        let nodes = resource("nodes");
        gone.nodes = merge_keys(&mut self.nodes, take(&mut fresh.nodes), &nodes, |node| {
            Key::Node(node.name.clone())
        });
        let pools = resource("ippools");
        gone.pools = merge_keys(&mut self.pools, take(&mut fresh.pools), &pools, |pool| {
            Key::Pool(pool.name.clone())
        });
        let reservations = resource("ipreservations");
        gone.reservations = merge_keys(
            &mut self.reservations,
            take(&mut fresh.reservations),
            &reservations,
            |reservation| Key::Reservation(reservation.name.clone()),
        );
    }

    /// Updates the objects of which a cluster has one each.
    fn change_settings(&mut self, fresh: &mut Self, paths: &[&str], gone: &mut Self) {
        let has = |key: Key| paths.binary_search(&key.to_string().as_str()).is_ok();
        if has(Key::IpamConfig) {
            gone.ipam_config = replace(&mut self.ipam_config, fresh.ipam_config);
        }
        if has(Key::IpamConfiguration(DEFAULT.to_owned())) {
            gone.ipam_configuration = replace(&mut self.ipam_configuration, fresh.ipam_configuration);
        }
        if has(Key::ClusterInformation(DEFAULT.to_owned())) {
            gone.cluster = replace(&mut self.cluster, fresh.cluster.take());
            gone.cluster_revision = replace(&mut self.cluster_revision, fresh.cluster_revision.take());
        }
        if has(Key::KubeControllersConfiguration(DEFAULT.to_owned())) {
            gone.kube_controllers = replace(&mut self.kube_controllers, fresh.kube_controllers.take());
        }

        let is_changed = |name: &mut String| has(Key::IpamConfiguration(name.clone()));
        gone.ignored_configs = self.ignored_configs.extract_if(.., is_changed).collect();
        self.ignored_configs.append(&mut fresh.ignored_configs);
        self.ignored_configs.sort();
    }

    /// Replaces the defects of the objects that were read again.
    fn change_defects<K: AsRef<[u8]>>(&mut self, fresh: &mut Self, keys: &[K], gone: &mut Self) {
        // A defect stores its key as text, with invalid UTF-8 replaced.
        let read_again: HashSet<_> = if self.defects.is_empty() {
            HashSet::new()
        } else {
            keys.iter()
                .map(|key| String::from_utf8_lossy(key.as_ref()))
                .collect()
        };
        let is_read_again = |defect: &mut Defect| read_again.contains(defect.path.as_str());
        gone.defects = self.defects.extract_if(.., is_read_again).collect();
        self.defects.append(&mut fresh.defects);
        self.defects.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

fn below<'p>(paths: &[&'p str], prefix: &str) -> Vec<&'p str> {
    paths
        .iter()
        .copied()
        .filter(|path| path.starts_with(prefix))
        .collect()
}

/// Like [`merge`], but by the objects' keys.
fn merge_keys<T>(
    list: &mut Vec<Versioned<T>>,
    fresh: Vec<Versioned<T>>,
    paths: &[&str],
    key: impl Fn(&T) -> Key,
) -> Vec<Versioned<T>> {
    merge(list, fresh, paths, |object, path| {
        path.push_str(&key(&object.value).to_string())
    })
}

/// Removes the objects at `paths` from `list`, inserts `fresh`, and returns the removed ones. `list` and `paths` are
/// ascending by path.
pub fn merge<T>(
    list: &mut Vec<Versioned<T>>,
    fresh: Vec<Versioned<T>>,
    paths: &[&str],
    push_path: impl Fn(&Versioned<T>, &mut String),
) -> Vec<Versioned<T>> {
    let mut space = String::new();
    let mut compare = |object: &Versioned<T>, path: &str| {
        space.clear();
        push_path(object, &mut space);
        space.as_str().cmp(path)
    };

    // The positions of the objects with each path. If there are none, the range is empty and starts where the path
    // belongs. The search spends most of its time building the paths of the objects that it compares.
    let mut spans: Vec<Range<usize>> = Vec::with_capacity(paths.len());
    let mut from = 0;
    for path in paths {
        let start = place(list, from, |object| compare(object, path).is_lt());
        let same = list[start..]
            .iter()
            .take_while(|object| compare(object, path).is_eq())
            .count();
        from = start + same;
        spans.push(start..from);
    }

    // The new object for each path; further ones of the same path are inserted one by one.
    let mut renewed: Vec<Option<Versioned<T>>> = paths.iter().map(|_| None).collect();
    let mut unmatched = Vec::new();
    for object in fresh {
        match paths.binary_search_by(|path| compare(&object, path).reverse()) {
            Ok(index) if renewed[index].is_none() => renewed[index] = Some(object),
            _ => unmatched.push(object),
        }
    }

    // An object takes the place of an earlier one, or is added where there was none. What is left is removed.
    let mut gone = Vec::new();
    let mut removed = Vec::new();
    let mut added = Vec::new();
    for (mut span, new) in spans.into_iter().zip(renewed) {
        match new {
            Some(new) if span.is_empty() => added.push((span.start, new)),
            Some(new) => {
                gone.push((span.start, replace(&mut list[span.start], new)));
                span.start += 1;
            }
            None => {}
        }
        removed.extend(span);
    }
    gone.extend(splice(list, &removed, added));
    gone.sort_by_key(|(position, _)| *position);

    for object in unmatched {
        let mut path = String::new();
        push_path(&object, &mut path);
        list.insert(
            list.partition_point(|other| compare(other, &path).is_lt()),
            object,
        );
    }
    gone.into_iter().map(|(_, object)| object).collect()
}

/// Removes the items at the positions `removed` and returns them with their positions, in no particular order. Inserts
/// each item in `added` before the item at its position. Positions are ascending. Works in one pass and in place, since
/// a copy of a million objects would double the memory.
fn splice<T>(list: &mut Vec<T>, removed: &[usize], added: Vec<(usize, T)>) -> Vec<(usize, T)> {
    let more = added.len().saturating_sub(removed.len());
    if list.capacity() - list.len() < more {
        list.reserve_exact(more + list.len() / ROOM);
    }
    let mut removed = removed.iter().copied().peekable();
    let mut added = added.into_iter().peekable();
    let mut gone = Vec::new();
    // At most one of these queues has entries: items that wait for a place, or free places. A free place still contains
    // a removed item, whose original position is in `free`.
    let mut waiting = VecDeque::new();
    let mut free = VecDeque::new();
    let mut position = 0;
    while position <= list.len() {
        if waiting.is_empty() && free.is_empty() {
            let next = [removed.peek().copied(), added.peek().map(|(at, _)| *at)];
            let Some(next) = next.into_iter().flatten().min() else {
                break;
            };
            position = next;
        }
        while let Some((_, object)) = added.next_if(|(at, _)| *at == position) {
            match free.pop_front() {
                Some(at) => gone.push((at, replace(&mut list[position - free.len() - 1], object))),
                None => waiting.push_back(object),
            }
        }
        let Some(object) = list.get_mut(position) else {
            break;
        };
        let is_removed = removed.next_if_eq(&position).is_some();
        match (waiting.pop_front(), is_removed) {
            (Some(next), true) => gone.push((position, replace(object, next))),
            (Some(next), false) => waiting.push_back(replace(object, next)),
            (None, true) => free.push_back(position),
            (None, false) => {
                list.swap(position - free.len(), position);
                free.rotate_left(usize::from(!free.is_empty()));
            }
        }
        position += 1;
    }
    let kept = list.len() - free.len();
    gone.extend(free.into_iter().zip(list.drain(kept..)));
    list.extend(waiting);
    gone
}

/// The first position at or after `from` for which `is_before` is false, in a list that is partitioned by `is_before`.
/// Fast if that position is near.
fn place<T>(list: &[T], from: usize, mut is_before: impl FnMut(&T) -> bool) -> usize {
    let mut low = from;
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
