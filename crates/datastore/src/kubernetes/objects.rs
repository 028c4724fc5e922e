//! Updates a snapshot after Kubernetes objects have changed.
//!
//! The lists of a snapshot are ordered by the names that the objects should have according to their content, then by
//! UID. An object with a different name has a defect that contains the actual name.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::{replace, take};

use calipam_files::objects::names::affinity_name;
use calipam_files::objects::{name_in_kind, path};
use calipam_model::changes::merge;
use calipam_model::key::{DEFAULT, Key};
use calipam_model::snapshot::{Defect, DefectKind, Revision, Snapshot, Source, Versioned};
use calipam_model::{cidr, handle};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Changed {
    pub plural: &'static str,
    pub source: Source,
    /// `namespace/name`, or just the name if the kind has no namespaces.
    pub name: String,
    pub uid: String,
}

/// Calls a macro with each list of Kubernetes objects in a snapshot: its field, its source, and a closure that returns
/// an object's name.
macro_rules! each_list {
    ($do:ident) => {
        $do!(blocks, Source::Blocks, |block| cidr::resource_name(
            block.key
        ));
        $do!(handles, Source::Handles, |handle| handle::resource_name(
            &handle.id().to_string()
        ));
        $do!(affinities, Source::Affinities, |affinity| affinity_name(
            &affinity.key
        ));
        $do!(pools, Source::Pools, |pool| pool.name.clone());
        $do!(reservations, Source::Reservations, |reservation| {
            reservation.name.clone()
        });
        $do!(nodes, Source::Nodes, |node| node.name.clone());
        $do!(kubernetes_nodes, Source::KubernetesNodes, |node| node
            .name
            .clone());
        $do!(pods, Source::Pods, |pod| format!(
            "{}/{}",
            pod.namespace(),
            pod.name()
        ));
        $do!(services, Source::Services, |service| name_in_kind(
            &service.namespace,
            &service.name
        ));
        $do!(machines, Source::Machines, |machine| name_in_kind(
            &machine.namespace,
            &machine.name
        ));
    };
}

/// Sorts a new snapshot into the order that updates need.
pub(super) fn sort(snapshot: &mut Snapshot) {
    macro_rules! sort {
        ($list:ident, $source:expr, $name:expr) => {
            sort_list(&mut snapshot.$list, $name)
        };
    }
    each_list!(sort);
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
}

/// Replaces the objects `changed` in a snapshot with their current state in `fresh`, which lacks deleted objects.
/// Returns the old objects.
pub(super) fn change(snapshot: &mut Snapshot, changed: &BTreeSet<Changed>, mut fresh: Snapshot) -> Snapshot {
    let mut replaced = Snapshot::default();
    // The paths of the changed objects in their lists, sorted and without duplicates.
    let mut changed_paths: BTreeMap<Source, BTreeSet<String>> = BTreeMap::new();
    for object in changed {
        let path = old_path(object, &snapshot.defects);
        changed_paths.entry(object.source).or_default().insert(path);
    }
    macro_rules! change {
        ($list:ident, $source:expr, $name:expr) => {
            if let Some(paths) = changed_paths.get(&$source) {
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                let fresh = take(&mut fresh.$list);
                replaced.$list = merge(&mut snapshot.$list, fresh, &paths, |object, path| {
                    *path = path_of(object, $name);
                });
            }
        };
    }
    each_list!(change);

    let has_changed = |source: Source| {
        changed
            .iter()
            .any(|object| object.source == source && object.name == DEFAULT)
    };
    if has_changed(Source::IpamConfig) {
        replaced.ipam_config = replace(&mut snapshot.ipam_config, fresh.ipam_config);
    }
    if has_changed(Source::ClusterInformation) {
        replaced.cluster = replace(&mut snapshot.cluster, fresh.cluster);
        replaced.cluster_revision = replace(&mut snapshot.cluster_revision, fresh.cluster_revision);
    }
    if has_changed(Source::KubeControllersConfiguration) {
        replaced.kube_controllers = replace(&mut snapshot.kube_controllers, fresh.kube_controllers);
    }

    let defect_paths: HashSet<String> = changed.iter().map(path_of_defect).collect();
    replaced.defects = snapshot
        .defects
        .extract_if(.., |defect| defect_paths.contains(&defect.path))
        .collect();
    snapshot.defects.append(&mut fresh.defects);
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
    snapshot.newest_creation = snapshot.newest_creation.max(fresh.newest_creation);
    replaced
}

fn uid<T>(object: &Versioned<T>) -> &str {
    match &object.revision {
        Revision::Kubernetes(version) => &version.uid,
        Revision::Etcd(_) => "",
    }
}

/// The path by which an object is sorted in its list: its name and UID, separated by a NUL, which no name contains.
fn path_of<T>(object: &Versioned<T>, name: impl Fn(&T) -> String) -> String {
    in_list(name(&object.value), uid(object))
}

fn in_list(mut name: String, uid: &str) -> String {
    name.push('\0');
    name.push_str(uid);
    name
}

/// Sorts a list by path, unless it is sorted already.
fn sort_list<T>(list: &mut [Versioned<T>], name: impl Fn(&T) -> String) {
    let mut previous_path = String::new();
    let is_sorted = list.iter().all(|object| {
        let path = path_of(object, &name);
        let is_after = previous_path < path;
        previous_path = path;
        is_after
    });
    if !is_sorted {
        list.sort_by_cached_key(|object| path_of(object, &name));
    }
}

/// The path by which an object was sorted before it changed.
fn old_path(changed: &Changed, defects: &[Defect]) -> String {
    let defect_path = path_of_defect(changed);
    let first = defects.partition_point(|defect| defect.path < defect_path);
    let defects_of_object = defects[first..]
        .iter()
        .take_while(|defect| defect.path == defect_path);
    let mut name = changed.name.clone();
    for defect in defects_of_object {
        // An object with defective fields was sorted by the name that belongs to its key.
        if let DefectKind::Fields(_) = defect.kind
            && let Some(key) = &defect.key
            && let Some(name_of_key) = name_of_key(key)
        {
            name = name_of_key;
        }
    }
    in_list(name, &changed.uid)
}

/// The object name that belongs to a key; `None` for kinds whose keys are the names.
fn name_of_key(key: &Key) -> Option<String> {
    match key {
        Key::Block(cidr) => Some(cidr::resource_name(*cidr)),
        Key::Handle(id) => Some(handle::resource_name(id)),
        Key::Affinity(key) => Some(affinity_name(key)),
        _ => None,
    }
}

fn path_of_defect(changed: &Changed) -> String {
    path(changed.plural, "", &changed.name)
}
