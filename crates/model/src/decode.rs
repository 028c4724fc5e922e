//! Decodes an etcd key and its value into an object in the snapshot.

use memchr::memchr;

use crate::DecodeError;
use crate::affinity::Affinity;
use crate::block::BlockContent;
use crate::config::{ClusterInformation, IpamConfig, KubeControllersConfiguration};
use crate::endpoint::Endpoint;
use crate::handle::Handle;
use crate::key::{DEFAULT, ENDPOINT_PREFIX, HANDLE_PREFIX, Key};
use crate::node::Node;
use crate::pool::{Pool, Reservation};
use crate::resource::Parsed;
use crate::snapshot::{Defect, DefectKind, FieldDefect, Revision, Snapshot, StoredBlock, Versioned};

impl Snapshot {
    /// Adds one etcd entry. An entry that cannot be decoded becomes a [`Defect`]; keys that calipam does not use are
    /// ignored.
    pub fn add_entry(&mut self, path: &[u8], value: &[u8], revision: i64) {
        let Ok(text) = simdutf8::basic::from_utf8(path) else {
            let path = String::from_utf8_lossy(path).into_owned();
            self.defects.push(Defect {
                path,
                key: None,
                kind: DefectKind::Key("the key is not text".into()),
            });
            return;
        };
        // Most entries are endpoints and handles, so no `Key` is built for them.
        let endpoint = text.strip_prefix(ENDPOINT_PREFIX).and_then(endpoint_key);
        let handle = text.strip_prefix(HANDLE_PREFIX).and_then(handle_key);
        let added = if let Some((namespace, name)) = endpoint {
            Endpoint::parse(namespace, name, value).map(|parsed| {
                let endpoint = self.note_parsed(text, parsed);
                self.endpoints.push(versioned(endpoint, revision));
            })
        } else if let Some(id) = handle {
            Handle::parse(id, value).map(|handle| self.handles.push(versioned(handle, revision)))
        } else {
            self.add_other(text, value, revision)
        };
        if let Err(error) = added {
            self.note(text, DefectKind::Value(error.to_string()));
        }
    }

    /// Adds an entry that is neither an endpoint nor a handle, or a defect of its key.
    ///
    /// # Errors
    /// If the value cannot be decoded.
    fn add_other(&mut self, path: &str, value: &[u8], revision: i64) -> Result<(), DecodeError> {
        let key = match Key::parse(path) {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.note(path, DefectKind::Key(error.to_string()));
                return Ok(());
            }
        };
        if let Some(reason) = not_canonical(&key, path) {
            self.note(path, DefectKind::Key(reason));
            return Ok(());
        }
        self.add(path, key, value, revision)
    }

    /// Adds the object under a key.
    fn add(&mut self, path: &str, key: Key, value: &[u8], revision: i64) -> Result<(), DecodeError> {
        match key {
            Key::Block(cidr) => {
                let content = BlockContent::parse_with(value, self.records)?;
                self.blocks
                    .push(versioned(StoredBlock { key: cidr, content }, revision));
            }
            Key::Affinity(key) => self
                .affinities
                .push(versioned(Affinity::parse(key, value)?, revision)),
            Key::Pool(name) => {
                let pool = self.note_parsed(path, Pool::parse(&name, value)?);
                self.pools.push(versioned(pool, revision));
            }
            Key::Reservation(name) => {
                let reservation = self.note_parsed(path, Reservation::parse(&name, value)?);
                self.reservations.push(versioned(reservation, revision));
            }
            Key::Node(name) => {
                let node = self.note_parsed(path, Node::parse(&name, value)?);
                self.nodes.push(versioned(node, revision));
            }
            Key::IpamConfig => self.ipam_config = Some(IpamConfig::parse(value)?),
            Key::IpamConfiguration(name) if name == DEFAULT => {
                self.ipam_configuration = Some(IpamConfig::parse_resource(value)?);
            }
            Key::ClusterInformation(name) if name == DEFAULT => {
                self.cluster = Some(ClusterInformation::parse(value)?);
                self.cluster_revision = Some(Revision::Etcd(revision));
            }
            Key::KubeControllersConfiguration(name) if name == DEFAULT => {
                let (config, defects) = KubeControllersConfiguration::parse(value)?;
                self.kube_controllers = Some(config);
                self.note_fields(path, defects);
            }
            // Calico reads only the object called `default`, and the key of a host is obsolete.
            Key::IpamConfiguration(name) => self.ignored_configs.push(name),
            Key::ClusterInformation(_) | Key::KubeControllersConfiguration(_) => {}
            Key::IpamHost(_) => {}
            // `add_entry` decodes these objects itself.
            Key::Handle(_) | Key::Endpoint { .. } => {}
            // Objects that exist only in Kubernetes have no path in etcd.
            Key::Pod { .. } | Key::Service { .. } => {}
        }
        Ok(())
    }

    /// Adds a defect of the entry at a path, with its key if the path is one.
    fn note(&mut self, path: &str, kind: DefectKind) {
        let key = Key::parse(path).ok().flatten();
        self.defects.push(Defect {
            path: path.to_owned(),
            key,
            kind,
        });
    }

    /// Records an object's problems and creation time, and returns the object.
    fn note_parsed<T>(&mut self, path: &str, parsed: Parsed<T>) -> T {
        self.newest_creation = self.newest_creation.max(parsed.created);
        self.note_fields(path, parsed.defects);
        parsed.value
    }

    fn note_fields(&mut self, path: &str, defects: Vec<FieldDefect>) {
        if !defects.is_empty() {
            self.note(path, DefectKind::Fields(defects));
        }
    }
}

/// The reason why Calico does not find a block or affinity under its key; `None` if it does.
fn not_canonical(key: &Key, path: &str) -> Option<String> {
    let is_named_by_cidr = matches!(key, Key::Block(_) | Key::Affinity(_));
    if !is_named_by_cidr {
        return None;
    }
    let canonical_path = key.to_string();
    if canonical_path == path {
        return None;
    }
    let canonical_name = canonical_path.rsplit('/').next().unwrap_or_default();
    Some(format!(
        "it appears in lists, but Calico looks for it by the name {canonical_name}"
    ))
}

fn versioned<T>(value: T, revision: i64) -> Versioned<T> {
    Versioned {
        value,
        revision: Revision::Etcd(revision),
    }
}

/// Splits the end of an endpoint's key, `NAMESPACE/NAME`, into namespace and name; `None` if it has another form.
fn endpoint_key(rest: &str) -> Option<(&str, &str)> {
    let (namespace, name) = rest.split_once('/')?;
    if namespace.is_empty() || !is_one_name(name) {
        return None;
    }
    Some((namespace, name))
}

/// The handle's ID, if `rest`, the end of a handle's key, is one.
fn handle_key(rest: &str) -> Option<&str> {
    Some(rest).filter(|id| is_one_name(id))
}

/// True for a part of a key: it is not empty and has no slash.
fn is_one_name(text: &str) -> bool {
    !text.is_empty() && memchr(b'/', text.as_bytes()).is_none()
}
