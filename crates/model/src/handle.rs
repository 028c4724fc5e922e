//! Handles: the index from an owner's ID to the blocks with its addresses (facts 1.5, 4.1).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipnet::{IpNet, Ipv4Net};
use serde::de::{Error as _, MapAccess};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::DecodeError;
use crate::cidr;
use crate::digest::sha256;
use crate::json::{Fields, Object, RawJson, Unknown, is_field, keep_unknown, read_object, set_unless_null};
use crate::names::MAX_OBJECT_NAME;
use crate::stored::DatastoreKind;
use crate::text::{Text, TextRef};

/// Cuts a handle ID at the first carriage return, as Calico does for lookups (facts 3.13).
pub fn clean_id(id: &str) -> &str {
    id.split_once('\r').map_or(id, |(id, _)| id)
}

/// The text between the network and the machine in the handle of a virtual machine.
pub const MACHINE_SEPARATOR: &str = ".vmi.";
/// The largest number of characters in the handle of a virtual machine. A hash replaces longer names.
pub const MAX_MACHINE_HANDLE: usize = 128;
/// The number of characters of the hash.
pub const MACHINE_HASH: usize = 43;

/// The names of a virtual machine are too long for its handle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of virtual machine {machine} is too long: its handle would have {length} characters, and Calico's programs \
     crash at more than {MAX_MACHINE_HANDLE}"
)]
pub struct MachineNameTooLong {
    /// The machine's namespace and name (`namespace/name`).
    pub machine: String,
    /// The number of characters that its handle would have.
    pub length: usize,
    /// The number of characters to which Calico cuts the hash.
    pub left_for_hash: usize,
}

/// Checks that Calico's programs can make the handle of a virtual machine in a network. They cut the hash to the length
/// that is left, so the plugin, and Felix after a migration, crash if the hash is shorter.
///
/// # Errors
/// If they crash at these names.
pub fn check_machine_names(network: &str, namespace: &str, name: &str) -> Result<(), MachineNameTooLong> {
    let prefix = network.len() + MACHINE_SEPARATOR.len();
    let length = prefix + namespace.len() + ".".len() + name.len();
    let left_for_hash = MAX_MACHINE_HANDLE.saturating_sub(prefix + "_".len());
    if length <= MAX_MACHINE_HANDLE || (1..=MACHINE_HASH).contains(&left_for_hash) {
        return Ok(());
    }
    Err(MachineNameTooLong {
        machine: format!("{namespace}/{name}"),
        length,
        left_for_hash,
    })
}

/// Returns the handle of a virtual machine's addresses in a network. A hash replaces names that are too long.
pub fn machine_handle(network: &str, namespace: &str, name: &str) -> String {
    let prefix = format!("{network}{MACHINE_SEPARATOR}");
    let names = format!("{namespace}.{name}");
    if prefix.len() + names.len() <= MAX_MACHINE_HANDLE {
        return prefix + &names;
    }
    let hash = URL_SAFE_NO_PAD.encode(sha256(names));
    let mut handle = format!("{prefix}_{hash}");
    handle.truncate(handle.floor_char_boundary(MAX_MACHINE_HANDLE));
    handle
}

/// True if the datastore can store a handle with this ID. In etcd, a slash would give a key that cannot be read back;
/// in Kubernetes, the lowercase ID must be a valid object name, which is a DNS subdomain.
pub fn is_storable_id(id: &str, datastore: DatastoreKind) -> bool {
    match datastore {
        DatastoreKind::Etcd | DatastoreKind::EtcdV2 => !id.is_empty() && !id.contains('/'),
        DatastoreKind::Kubernetes => id.len() <= MAX_OBJECT_NAME && id.split('.').all(is_dns_label),
    }
}

/// True for a part of a DNS name: letters, digits and dashes, without a dash at either end.
fn is_dns_label(label: &str) -> bool {
    let has_dash_at_end = label.starts_with('-') || label.ends_with('-');
    let mut characters = label.chars();
    !label.is_empty() && !has_dash_at_end && characters.all(|c| c.is_ascii_alphanumeric() || c == '-')
}

#[derive(Clone, Debug, PartialEq)]
pub struct Handle {
    id: Text,
    content: Content,
}

/// A handle's fields except its ID. They take little memory for one IPv4 block without unknown fields, as in nearly all
/// of the million handles of a large cluster.
#[derive(Clone, Debug, PartialEq)]
enum Content {
    OneBlock(Ipv4Net, i32),
    Other(Box<Other>),
}

/// The contents of a handle that [`Content::OneBlock`] cannot hold.
#[derive(Clone, Debug, Default, PartialEq)]
struct Other {
    /// The number of addresses by block.
    blocks: Box<[(IpNet, i64)]>,
    deleted: bool,
    unknown: Option<Box<Unknown>>,
}

impl Handle {
    /// Creates a handle without addresses.
    pub fn new(id: &str) -> Self {
        Self {
            id: Text::new(id),
            content: Content::Other(Box::default()),
        }
    }

    /// Reads a handle's JSON in etcd, where the key contains the ID.
    ///
    /// # Errors
    /// If the text is not JSON, a field has a type that Calico's reader does not accept, or a key in `block` is not a
    /// CIDR.
    pub fn parse(id: &str, json: &[u8]) -> Result<Self, DecodeError> {
        let mut raw = read_object(json, RawHandle::default)?;
        // In etcd, the field with the ID is an unknown one.
        if let Some(stray_id) = raw.id.take() {
            let value = RawJson::try_from(&stray_id.into())?;
            raw.unknown
                .get_or_insert_default()
                .insert(ID_FIELD.to_owned(), value);
        }
        Ok(Self::from_raw(id, raw))
    }

    /// Reads the JSON of a handle's `spec` in Kubernetes, which contains the ID as `handleID`.
    pub fn parse_spec(json: &[u8]) -> Result<Self, DecodeError> {
        let mut raw = read_object(json, RawHandle::default)?;
        let id = raw
            .id
            .take()
            .filter(|id| !id.is_empty())
            .ok_or_else(|| DecodeError::missing("handleID"))?;
        Ok(Self::from_raw(&id, raw))
    }

    /// Makes a handle of the fields that were read. Nearly all handles count one block, for which no map is built.
    fn from_raw(id: &str, raw: RawHandle) -> Self {
        let RawHandle {
            blocks: RawBlocks { first, others },
            deleted,
            unknown,
            ..
        } = raw;
        let content = match first {
            Some((block, count)) if others.is_empty() => {
                Content::of_one_block(block, count, deleted, unknown)
            }
            first => Content::new(&first.into_iter().chain(others).collect(), deleted, unknown),
        };
        Self {
            id: Text::new(id),
            content,
        }
    }

    pub fn id(&self) -> TextRef<'_> {
        self.id.as_ref()
    }

    /// True if the handle is marked as deleted. On Kubernetes, this is the first of the two writes with which Calico
    /// deletes an object.
    pub fn is_deleted(&self) -> bool {
        matches!(&self.content, Content::Other(other) if other.deleted)
    }

    /// Number of addresses by block, ascending by CIDR. Counts below 1 are unexpected, but kept.
    #[inline]
    pub fn blocks(&self) -> impl Iterator<Item = (IpNet, i64)> + '_ {
        let (one, many) = match &self.content {
            Content::OneBlock(net, count) => (Some((IpNet::V4(*net), i64::from(*count))), [].as_slice()),
            Content::Other(other) => (None, &*other.blocks),
        };
        one.into_iter().chain(many.iter().copied())
    }

    /// Number of addresses in all blocks. A handle that counts more than fit into a number is damaged.
    pub fn total(&self) -> i64 {
        self.blocks()
            .fold(0, |total: i64, (_, count)| total.saturating_add(count))
    }

    /// Number of addresses in `block`, according to the handle; 0 if it does not name the block.
    pub fn count(&self, block: IpNet) -> i64 {
        self.blocks()
            .find(|(cidr, _)| *cidr == block)
            .map_or(0, |(_, count)| count)
    }

    /// Sets the number of addresses in `block`. As in Calico, 0 removes the entry.
    pub fn set_count(&mut self, block: IpNet, count: i64) {
        let mut counts: BTreeMap<IpNet, i64> = self.blocks().collect();
        if count == 0 {
            counts.remove(&block);
        } else {
            counts.insert(block, count);
        }
        let unknown = self.unknown().cloned().map(Box::new);
        self.content = Content::new(&counts, self.is_deleted(), unknown);
    }

    /// Unknown fields, kept for the next write.
    pub fn unknown(&self) -> Option<&Unknown> {
        match &self.content {
            Content::OneBlock(..) => None,
            Content::Other(other) => other.unknown.as_deref(),
        }
    }
}

impl Content {
    /// The content of a handle, in the smaller form if it counts one block.
    fn new(counts: &BTreeMap<IpNet, i64>, deleted: bool, unknown: Option<Box<Unknown>>) -> Self {
        if counts.len() == 1
            && let Some((block, count)) = counts.first_key_value()
        {
            return Self::of_one_block(*block, *count, deleted, unknown);
        }
        Self::Other(Box::new(Other {
            blocks: counts.iter().map(|(block, count)| (*block, *count)).collect(),
            deleted,
            unknown,
        }))
    }

    /// The content of a handle that counts one block, in the smallest form that holds it.
    fn of_one_block(block: IpNet, count: i64, deleted: bool, unknown: Option<Box<Unknown>>) -> Self {
        let has_only_block = !deleted && unknown.is_none();
        if has_only_block
            && let IpNet::V4(net) = block
            && let Ok(small_count) = i32::try_from(count)
        {
            return Self::OneBlock(net, small_count);
        }
        Self::Other(Box::new(Other {
            blocks: [(block, count)].into(),
            deleted,
            unknown,
        }))
    }
}

impl Serialize for Handle {
    /// Writes Calico's etcd form, in which only the key contains the ID.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let blocks: BTreeMap<String, i64> = self
            .blocks()
            .map(|(cidr, count)| (cidr.to_string(), count))
            .collect();
        map.serialize_entry("block", &blocks)?;
        map.serialize_entry("deleted", &self.is_deleted())?;
        for (name, value) in self.unknown().into_iter().flatten() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// The field for the ID in Kubernetes. In etcd, the ID is in the key.
const ID_FIELD: &str = "handleID";

#[derive(Default)]
struct RawHandle {
    id: Option<String>,
    blocks: RawBlocks,
    deleted: bool,
    unknown: Option<Box<Unknown>>,
}

impl<'de> Fields<'de> for RawHandle {
    /// Reads a field of a handle.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        if is_field(name, "block") {
            map.next_value_seed(Object(&mut self.blocks))?;
        } else if is_field(name, "deleted") {
            set_unless_null(&mut self.deleted, map)?;
        } else if is_field(name, ID_FIELD) {
            self.id = map.next_value()?;
        } else {
            keep_unknown(&mut self.unknown, name, map)?;
        }
        Ok(())
    }
}

/// The field `block`. Nearly all handles name one block, so they need no map.
#[derive(Default)]
struct RawBlocks {
    first: Option<(IpNet, i64)>,
    others: BTreeMap<IpNet, i64>,
}

impl<'de> Fields<'de> for RawBlocks {
    /// Reads the count of a block. Of several counts of one block, the last one stays.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let count = map.next_value::<Option<i64>>()?.unwrap_or_default();
        let cidr = cidr::parse_cidr(name)
            .ok_or_else(|| A::Error::custom(format_args!("`block` names {name:?}, which is not a CIDR")))?;
        match self.first {
            Some((first, _)) if first != cidr => drop(self.others.insert(cidr, count)),
            _ => self.first = Some((cidr, count)),
        }
        Ok(())
    }
}

/// The name of a handle's object in Kubernetes: the lowercase ID. Two IDs that differ only in case share an object.
pub fn resource_name(id: &str) -> String {
    id.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_machines_have_at_most_128_characters() {
        assert_eq!(machine_handle("net", "ns", "vm"), "net.vmi.ns.vm");
        let long = machine_handle("net", "ns", &"v".repeat(200));
        // 32 bytes without padding, as Calico writes them.
        assert!(
            long.starts_with("net.vmi._") && long.len() == "net.vmi._".len() + 43,
            "{long}"
        );
        let cut = machine_handle(&"n".repeat(120), "ns", "vm");
        assert_eq!(cut.len(), MAX_MACHINE_HANDLE);
        // The network of a stored handle can be any text.
        let cut_before_character = machine_handle(&"ä".repeat(100), "ns", "vm");
        assert_eq!(cut_before_character, "ä".repeat(64));
        let odd = machine_handle(&format!("n{}", "ä".repeat(100)), "ns", "vm");
        assert_eq!(odd.len(), MAX_MACHINE_HANDLE - 1);
        let fits = machine_handle("net", "ns", &"v".repeat(MAX_MACHINE_HANDLE - "net.vmi.ns.".len()));
        assert!(fits.len() == MAX_MACHINE_HANDLE && fits.ends_with('v'));
    }

    #[test]
    fn calico_cuts_the_hash_only_if_the_network_leaves_less_for_it() {
        let long = "v".repeat(60);
        for (left_for_hash, is_too_long) in [
            (MACHINE_HASH + 1, true),
            (MACHINE_HASH, false),
            (1, false),
            (0, true),
        ] {
            let network = "n".repeat(MAX_MACHINE_HANDLE - ".vmi._".len() - left_for_hash);
            let checked = check_machine_names(&network, "ns", &long);
            assert_eq!(checked.is_err(), is_too_long, "{left_for_hash} are left");
        }
    }

    #[test]
    fn the_sum_of_absurd_counts_does_not_overflow() {
        let json = format!(
            r#"{{"block":{{"10.0.0.0/26":{0},"10.0.1.0/26":{0}}},"deleted":false}}"#,
            i64::MAX
        );
        assert_eq!(Handle::parse("id", json.as_bytes()).unwrap().total(), i64::MAX);
    }

    /// A line break after a value makes the fast reader leave the value to the general reader.
    #[test]
    fn fast_and_general_reader_agree_on_unusual_handles() {
        let usual = r#"{"block":{"10.0.0.0/26":1},"deleted":false,"handleID":"x.1"}"#;
        for (from, to) in [
            ("", ""),
            (",\"handleID\":\"x.1\"", ""),
            ("x.1", ""),
            ("\"x.1\"", "null"),
            ("x.1\"", "x.1\",\"x\":1"),
            ("handleID", "HandleID"),
            ("false", "true"),
            (":1}", ":-3}"),
            (":1}", ":null}"),
            (":1}", ":99999999999}"),
            (":1}", ":1,\"10.0.1.0/26\":2}"),
            (":1}", ":1,\"10.0.0.0/26\":2}"),
            ("10.0.0.0/26", "fd00::/122"),
            ("10.0.0.0/26", "10.0.0.1/26"),
            ("10.0.0.0/26", "x"),
            ("}", ""),
        ] {
            let json = usual.replacen(from, to, 1);
            let general = format!("{json}\n");
            let both = [json.as_bytes(), general.as_bytes()];
            let [quick, slow] = both.map(|json| Handle::parse("id", json).map_err(drop));
            assert_eq!(quick, slow, "{json}");
            let [quick, slow] = both.map(|json| Handle::parse_spec(json).map_err(drop));
            assert_eq!(quick, slow, "{json}");
        }
    }

    #[test]
    fn ids_that_a_datastore_cannot_hold() {
        let both =
            |id: &str| [DatastoreKind::Etcd, DatastoreKind::Kubernetes].map(|kind| is_storable_id(id, kind));
        assert_eq!(both("k8s-pod-network.3f9A"), [true, true]);
        assert_eq!(both("default.web-0"), [true, true]);
        for id in [
            "under_score",
            "-begins",
            "ends-",
            "a..b",
            ".a",
            "ümlaut",
            "a b",
            &"x".repeat(254),
        ] {
            assert_eq!(both(id), [true, false], "{id}");
        }
        assert_eq!((both("a/b"), both("")), ([false, false], [false, false]));
    }
}
