//! Undecoded entries of a key-value store.

use calipam_model::key::{IPAM_PREFIX, RESOURCE_PREFIX, source_of_resources};

/// An etcd entry, borrowed from a response or file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawEntry<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// Revision of the key's last change.
    pub mod_revision: i64,
    /// Revision at which the key was created.
    pub create_revision: i64,
    /// Number of writes since the key was created, from 1.
    pub version: i64,
    /// The key's lease; 0 for none. Calico's IPAM keys never have a lease (facts 1.15).
    pub lease: i64,
}

/// An owned etcd entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawKv {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// Revision of the key's last change.
    pub mod_revision: i64,
}

impl RawKv {
    /// Borrows the entry.
    pub fn as_entry(&self) -> RawEntry<'_> {
        RawEntry {
            key: &self.key,
            value: &self.value,
            mod_revision: self.mod_revision,
            ..RawEntry::default()
        }
    }
}

impl RawEntry<'_> {
    /// Returns an owned copy.
    pub fn to_owned(self) -> RawKv {
        RawKv {
            key: self.key.to_vec(),
            value: self.value.to_vec(),
            mod_revision: self.mod_revision,
        }
    }
}

/// True for keys that a full read includes: all of IPAM, and the other resources that a check needs.
pub fn is_read(key: &[u8]) -> bool {
    if key.starts_with(IPAM_PREFIX.as_bytes()) {
        return true;
    }
    let Some(rest) = key.strip_prefix(RESOURCE_PREFIX.as_bytes()) else {
        return false;
    };
    let plural = rest.split(|b| *b == b'/').next().unwrap_or_default();
    rest.len() > plural.len() && source_of_resources(plural).is_some()
}

/// The first key after all keys that start with `prefix`. If there is none, `\0`, which etcd understands as the end of
/// all keys.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// The first key after `key`.
pub fn next_key(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_read_covers_keys_of_ipam_and_its_resources() {
        for key in [
            "/calico/ipam/v2/config",
            "/calico/ipam/v2/@/node/ipv4/block/10.0.0.0-26",
            "/calico/resources/v3/projectcalico.org/nodes/node-1",
            "/calico/resources/v3/projectcalico.org/workloadendpoints/default/x",
        ] {
            assert!(is_read(key.as_bytes()), "{key}");
        }
        for key in [
            "/calico/resources/v3/projectcalico.org/profiles/kns.default",
            "/calico/resources/v3/projectcalico.org/nodes",
            "/calico/resources/v3/projectcalico.org/nodesets/x",
            "/registry/pods/default/web-0",
        ] {
            assert!(!is_read(key.as_bytes()), "{key}");
        }
    }

    #[test]
    fn ends_of_prefixes() {
        assert_eq!(prefix_end(b"/calico/"), b"/calico0");
        assert_eq!(prefix_end(b"a\xFF\xFF"), b"b");
        assert_eq!(prefix_end(b"\xFF"), b"\0");
        assert!(next_key(b"a").as_slice() > b"a".as_slice());
        assert!(next_key(b"a").as_slice() < b"a\x01".as_slice());
    }
}
