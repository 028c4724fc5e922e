//! Files of Kubernetes objects: the output of `kubectl get … -o json`, as a file or a folder, and the entries in an
//! export of a Kubernetes datastore.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use calipam_model::affinity::{AFFINITY_TYPE, AffinityType};
use calipam_model::block::BlockOwner;
use calipam_model::snapshot::{Coverage, DatastoreKind, Revision, Snapshot, Source, WhySkipped};
use calipam_model::{DecodeError, IpNet};
use serde::Deserialize;

use crate::error::{Error, FileError, Result};
use crate::extent::skip;
use crate::objects::Encoding;
use crate::objects::kinds::{KINDS, KnownKind, by_name, by_plural};
use crate::objects::list_splitter::json::JsonList;
use crate::raw::RawEntry;
use crate::regular;

/// The kinds of virtual machines. Instances can exist without a machine, and stopped machines have no instance.
const MACHINES: [&str; 2] = ["virtualmachines", "virtualmachineinstances"];
/// The number of bytes that are read from a file at a time.
const PIECE: usize = 1 << 18;
/// Sources that have no objects in some clusters. They count as read if the files contain pools. Every cluster has a
/// ClusterInformation: if files have none, it was left out of them.
const MAY_BE_EMPTY: [Source; 3] = [
    Source::Reservations,
    Source::IpamConfig,
    Source::KubeControllersConfiguration,
];

/// The sources whose objects are not Calico's.
const NOT_CALICO_SOURCES: [Source; 5] = [
    Source::Nodes,
    Source::Pods,
    Source::Services,
    Source::Machines,
    Source::Namespaces,
];

/// True if a file that begins with `head` could contain Kubernetes objects.
pub(crate) fn looks_like_objects(head: &[u8]) -> bool {
    let names = |field: &[u8]| head.windows(field.len()).any(|part| part == field);
    head.trim_ascii_start().starts_with(b"{") && names(b"\"apiVersion\"")
}

/// The files in a folder whose names end in `.json`, sorted.
pub(crate) fn files_of(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads files of objects. An object in several files counts once.
///
/// # Errors
/// If a file cannot be read, is cut off or lacks pages of a list, or if no file has Calico objects.
pub(crate) fn read(location: &Path, files: &[PathBuf]) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let mut source_order = Vec::new();
    let Seen {
        sources,
        kinds,
        is_native,
    } = for_each_object(files, |kind, object| {
        if source_order.last() != Some(&kind.source) {
            source_order.push(kind.source);
        }
        kind.add(&mut snapshot, object, Encoding::Json);
    })?;
    if sources.iter().all(|source| NOT_CALICO_SOURCES.contains(source)) {
        return Err(Error::new(location, FileError::NoObjects));
    }
    snapshot.datastore = DatastoreKind::Kubernetes;
    snapshot.is_native = is_native;
    mark_virtual_affinities(&mut snapshot);

    // kubectl prints the kinds in the order in which it has read them. If there are several files, it is unknown which
    // one is older.
    let position = |source| source_order.iter().position(|other| *other == source);
    if files.len() == 1
        && let Some(blocks) = position(Source::Blocks)
        && let Some(pods) = position(Source::Pods)
    {
        snapshot.blocks_before_pods = blocks < pods;
    }

    snapshot.mark_read(sources.iter().copied());
    if sources.contains(&Source::Machines) && !MACHINES.iter().all(|kind| kinds.contains(kind)) {
        // The existing machines are known only if the files contain both kinds.
        snapshot
            .coverage
            .insert(Source::Machines, Coverage::Skipped(WhySkipped::NotInFile));
    }
    if sources.contains(&Source::Pools) {
        snapshot.mark_read(MAY_BE_EMPTY);
    }
    skip(&mut snapshot, Source::Endpoints, WhySkipped::PodsInstead);
    for source in self::sources() {
        skip(&mut snapshot, source, WhySkipped::NotInFile);
    }
    Ok(snapshot)
}

/// Marks virtual affinities in lists from Calico's aggregated API, which omits the type. If there is no label either,
/// the block's owner shows which affinities are virtual.
fn mark_virtual_affinities(snapshot: &mut Snapshot) {
    let mut virtual_owners: HashMap<IpNet, &str> = HashMap::new();
    for block in &snapshot.blocks {
        if let Some(BlockOwner::Virtual(name)) = block.value.content.owner() {
            virtual_owners.insert(block.value.key, name.as_str());
        }
    }
    for affinity in &mut snapshot.affinities {
        let has_label = match &affinity.revision {
            Revision::Kubernetes(version) => version.labels.contains_key(AFFINITY_TYPE),
            Revision::Etcd(_) => false,
        };
        let key = &mut affinity.value.key;
        let is_of_owner = virtual_owners.get(&key.cidr) == Some(&key.node.as_str());
        if key.kind == AffinityType::Host && !has_label && is_of_owner {
            key.kind = AffinityType::Virtual;
        }
    }
}

/// Reads files of objects; passes on the part of each object that an export keeps.
pub(crate) fn read_entries(files: &[PathBuf], mut take: impl FnMut(&RawEntry<'_>)) -> Result<()> {
    for_each_object(files, |kind, object| {
        if let Some(entry) = kind.export(object, Encoding::Json) {
            take(&entry.as_entry());
        }
    })
    .map(drop)
}

/// Passes each object in the given files to `take`, and returns the kinds in these files.
fn for_each_object(files: &[PathBuf], take: impl FnMut(&KnownKind, &[u8])) -> Result<Seen> {
    let mut reader = Reader {
        take,
        taken: HashSet::new(),
        seen: Seen::default(),
    };
    for path in files {
        reader.read_file(path).map_err(|kind| Error::new(path, kind))?;
    }
    Ok(reader.seen)
}

/// Adds an entry from an export of a Kubernetes datastore. The key is `<plural>/[<namespace>/]<name>`.
pub(crate) fn add_exported(snapshot: &mut Snapshot, key: &[u8], value: &[u8]) {
    let Some(kind) = kind_of_key(key) else {
        return;
    };
    kind.add(snapshot, value, Encoding::Json);

    // The allocator's configuration has a different name in each API group, but can be missing. All blocks are in the
    // same group, so the first one determines the group.
    snapshot.is_native |= kind.plural == "ipamconfigurations";
    if kind.source == Source::Blocks && snapshot.blocks.len() == 1 {
        let object: TypeMeta = serde_json::from_slice(value).unwrap_or_default();
        snapshot.is_native |= is_of_native_group(kind, &object.api_version);
    }
}

/// True if the object shows that Calico stores its data in the native group. The aggregated API has the same group, but
/// serves neither blocks nor handles.
fn is_of_native_group(kind: &KnownKind, api_version: &str) -> bool {
    matches!(kind.source, Source::Blocks | Source::Handles) && api_version.starts_with("projectcalico.org/")
}

/// True for keys in an export of a Kubernetes datastore.
pub(crate) fn is_exported(key: &[u8]) -> bool {
    kind_of_key(key).is_some()
}

/// Returns the kind that the plural at the beginning of a key names; `None` if there is no such kind.
fn kind_of_key(key: &[u8]) -> Option<&'static KnownKind> {
    let (plural, _) = std::str::from_utf8(key).ok()?.split_once('/')?;
    by_plural(plural)
}

/// The sources whose coverage is known for a Kubernetes datastore.
pub(crate) fn sources() -> impl Iterator<Item = Source> {
    let read = KINDS
        .iter()
        .map(|kind| kind.source)
        .filter(|source| *source != Source::Namespaces);
    read.chain([Source::Endpoints])
}

/// Reads files, and passes each object on once.
struct Reader<F> {
    /// The function that takes the objects.
    take: F,
    /// Kind, namespace and name of the objects that `take` has got.
    taken: HashSet<String>,
    /// The kinds of the files so far.
    seen: Seen,
}

/// The kinds in the files.
#[derive(Default)]
struct Seen {
    sources: BTreeSet<Source>,
    /// The plurals of the kinds.
    kinds: BTreeSet<&'static str>,
    is_native: bool,
}

impl Seen {
    /// Records that a file has a kind.
    fn add(&mut self, kind: &'static KnownKind, api_version: &str) {
        self.sources.insert(kind.source);
        self.kinds.insert(kind.plural);
        self.is_native |= is_of_native_group(kind, api_version);
    }
}

/// The fields that identify an object and its type.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TypeMeta {
    api_version: String,
    kind: String,
    metadata: Name,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Name {
    name: String,
    namespace: String,
}

impl<F: FnMut(&KnownKind, &[u8])> Reader<F> {
    /// Reads a file, twice if its items have no kind, and the list names its kind only after them, as programs do that
    /// sort fields by name.
    fn read_file(&mut self, path: &Path) -> Result<(), FileError> {
        if let Some(list_type) = self.read_pass(path, None)? {
            self.read_pass(path, Some(&list_type))?;
        }
        Ok(())
    }

    /// Reads a file from beginning to end. `list_type` is the type of the list, if it is known from an earlier pass. If
    /// items were skipped because it was not known yet, returns the type that the list names after the items.
    fn read_pass(
        &mut self,
        path: &Path,
        list_type: Option<&TypeMeta>,
    ) -> Result<Option<TypeMeta>, FileError> {
        let damaged = |error: DecodeError| FileError::Objects(error.to_string());
        let mut file = regular::open(path)?;
        let mut list = JsonList::default();
        let mut piece = vec![0; PIECE];
        let mut items = Vec::new();
        let mut count = 0u64;
        let mut has_untyped_items = false;
        loop {
            let len = file.read(&mut piece)?;
            if len == 0 {
                break;
            }
            list.feed(&piece[..len], &mut |item| items.push(item.to_vec()))
                .map_err(damaged)?;
            count += items.len() as u64;
            let type_so_far = type_before_items(list.envelope_so_far());
            for item in items.drain(..) {
                let names_kind = self.take_object(&item, list_type.or(type_so_far.as_ref()));
                has_untyped_items |= !names_kind;
            }
        }

        let envelope = serde_json::from_slice::<TypeMeta>(list.envelope_so_far());
        if count == 0
            && let Ok(single) = &envelope
            && !single.kind.ends_with("List")
        {
            // The file has a single object instead of a list.
            let object = list.envelope_so_far().to_vec();
            let no_list = None;
            self.take_object(&object, no_list);
            return Ok(None);
        }

        let meta = list.finish().map_err(damaged)?;
        let Ok(envelope) = envelope else { return Ok(None) };
        // A list of one kind, as printed by the API server, also proves that there are no more objects of the kind.
        let kind = envelope
            .kind
            .strip_suffix("List")
            .and_then(|name| by_name(name, &envelope.api_version));
        if let Some(kind) = kind {
            self.seen.add(kind, &envelope.api_version);
        }
        // Objects on the next page would count as missing. A list without a kind can contain any objects.
        let may_have_any_objects = ["", "List"].contains(&envelope.kind.as_str());
        if !meta.is_last() && (kind.is_some() || may_have_any_objects) {
            return Err(FileError::ObjectsMissing {
                kind: envelope.kind,
                remaining: meta.remaining,
            });
        }
        if has_untyped_items && kind.is_some() && list_type.is_none() {
            return Ok(Some(envelope));
        }
        Ok(None)
    }

    /// Passes an object to `take`, unless it is of a kind that is not read, or `take` has already got it. Returns true
    /// if the object or its list names a kind, whichever that is.
    fn take_object(&mut self, json: &[u8], list_type: Option<&TypeMeta>) -> bool {
        // An undecodable object has no known kind.
        let mut object: TypeMeta = serde_json::from_slice(json).unwrap_or_default();
        if let Some(list) = list_type
            && object.kind.is_empty()
        {
            object.kind = list.kind.trim_end_matches("List").to_owned();
            object.api_version.clone_from(&list.api_version);
        }
        let Some(kind) = by_name(&object.kind, &object.api_version) else {
            // It names a kind that is not read, or none.
            return !object.kind.is_empty();
        };
        self.seen.add(kind, &object.api_version);

        let name = format!(
            "{}/{}/{}",
            kind.plural, object.metadata.namespace, object.metadata.name
        );
        let is_new = self.taken.insert(name);
        if is_new {
            (self.take)(kind, json);
        }
        true
    }
}

/// A list's kind and version, for items that have none; `None` if the list names them after its items.
fn type_before_items(envelope: &[u8]) -> Option<TypeMeta> {
    if let Ok(list_type) = serde_json::from_slice(envelope) {
        return Some(list_type);
    }
    // The text up to the array of items, once closed, is a complete object.
    let closed = [envelope, b"]}"].concat();
    serde_json::from_slice(&closed).ok()
}

#[cfg(test)]
mod tests;
