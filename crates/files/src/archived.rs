//! One export of an archive, and the parts of it that can be read.

use std::collections::BTreeSet;
use std::path::PathBuf;

use calipam_model::key::{ENDPOINT_PREFIX, HANDLE_PREFIX, IPAM_PREFIX};
use calipam_model::names::EndpointName;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

use crate::ProgressFn;
use crate::data_file::DataFile;
use crate::error::{Error, Result};
use crate::export::{self, Header};
use crate::regular;

/// The suffix of export names.
pub(crate) const END: &str = ".jsonl.zst";
/// The suffix that replaces [`END`] in the name of the file with the changes after an export.
const CHANGES: &str = ".changes";

/// The part of an export to read.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    Whole,
    /// Blocks, affinities, and the handle with this ID, if one is given. Exports of etcd also include the allocator's
    /// configuration.
    Records {
        handle: Option<&'a str>,
    },
    /// The pods with these namespaces and names, and their workload endpoints.
    Users(&'a BTreeSet<(String, String)>),
}

impl Part<'_> {
    /// True for the keys in this part, in exports of both etcd and Kubernetes.
    pub fn holds(&self, key: &[u8]) -> bool {
        let Ok(key) = std::str::from_utf8(key) else {
            return false;
        };
        match self {
            Self::Whole => true,
            Self::Records { handle } => is_record(key, *handle),
            Self::Users(pods) => pod_of(key).is_some_and(|pod| pods.contains(&pod)),
        }
    }
}

/// True for blocks, affinities and the handle with an ID. Keys of etcd have prefixes, and those of Kubernetes the plural of
/// their resource.
fn is_record(key: &str, handle: Option<&str>) -> bool {
    if let Some(id) = key.strip_prefix(HANDLE_PREFIX) {
        return handle == Some(id);
    }
    if key.starts_with(IPAM_PREFIX) {
        return true;
    }
    match key.split_once('/') {
        Some(("ipamhandles", name)) => handle.is_some_and(|id| id.eq_ignore_ascii_case(name)),
        Some(("ipamblocks" | "blockaffinities", _)) => true,
        _ => false,
    }
}

/// Returns a pod's namespace and name, from its own key or that of its endpoint; `None` for other keys.
fn pod_of(key: &str) -> Option<(String, String)> {
    if let Some(endpoint) = key.strip_prefix(ENDPOINT_PREFIX) {
        let (namespace, name) = endpoint.split_once('/')?;
        return Some((namespace.to_owned(), EndpointName::parse(name)?.workload));
    }
    let (namespace, pod) = key.strip_prefix("pods/")?.split_once('/')?;
    Some((namespace.to_owned(), pod.to_owned()))
}

/// One export in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    pub path: PathBuf,
    /// The time at which the data was read.
    pub taken_at: Timestamp,
    /// The revision of the data; empty if there is none.
    pub revision: String,
    /// The cluster's GUID; empty if it had none.
    pub guid: String,
}

impl Archived {
    /// Reads the header of an export.
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        let Header {
            taken_at,
            revision,
            guid,
            ..
        } = export::header_of(&path).map_err(Error::of_archive)?;
        Ok(Archived {
            path,
            taken_at,
            revision,
            guid,
        })
    }

    /// Reads a part of the export; `None` if another run has removed the export.
    pub fn read(&self, part: Part<'_>, progress: &ProgressFn) -> Result<Option<Snapshot>> {
        let opened = DataFile::open(&self.path).map_err(Error::of_archive);
        let Some(file) = unless_missing(opened)? else {
            return Ok(None);
        };
        let read = match part {
            Part::Whole => file.observe(progress),
            part => file.observe_some(&|key| part.holds(key), progress),
        };
        unless_missing(read.map_err(Error::of_archive))
    }

    /// The path of the file with the changes after this export. The file can be missing.
    pub fn changes(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(END).unwrap_or(&name);
        self.path.with_file_name(format!("{stem}{CHANGES}"))
    }

    /// Removes the export and the changes after it, unless another run has already done so.
    pub fn remove(&self) -> Result<()> {
        let changes = self.changes();
        regular::remove(&changes).map_err(|error| Error::new(&changes, error))?;
        regular::remove(&self.path).map_err(|error| Error::new(&self.path, error))
    }
}

/// Turns the error that a file is missing, since another run has removed it, into `None`.
pub(crate) fn unless_missing<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_missing_file() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_exports_of_both_datastores() {
        let pods = BTreeSet::from([("shop".to_owned(), "web-0".to_owned())]);
        let records = Part::Records {
            handle: Some("net.Web-0"),
        };
        let users = Part::Users(&pods);
        let endpoint = |rest: &str| format!("{ENDPOINT_PREFIX}{rest}");
        for (part, wanted, key) in [
            (records, true, "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26"),
            (
                records,
                true,
                "/calico/ipam/v2/host/node-1/ipv4/block/10.0.0.0-26",
            ),
            (records, true, "/calico/ipam/v2/handle/net.Web-0"),
            (records, false, "/calico/ipam/v2/handle/net.web-0"),
            (
                Part::Records { handle: None },
                false,
                "/calico/ipam/v2/handle/net.Web-0",
            ),
            (records, true, "ipamblocks/10-0-0-0-26"),
            (records, true, "blockaffinities/node-1-10-0-0-0-26"),
            (records, true, "ipamhandles/net.web-0"),
            (records, false, "ipamhandles/net.web-1"),
            (records, false, "pods/shop/web-0"),
            (
                records,
                false,
                "/calico/resources/v3/projectcalico.org/nodes/node-1",
            ),
            (users, true, "pods/shop/web-0"),
            (users, false, "pods/shop/web-1"),
            (users, false, "services/shop/web-0"),
            (users, true, &endpoint("shop/node--1-k8s-web--0-eth0")),
            (users, false, &endpoint("shop/node--1-k8s-web--1-eth0")),
            (users, false, "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26"),
            (Part::Whole, true, "services/shop/web-0"),
        ] {
            assert_eq!(part.holds(key.as_bytes()), wanted, "{part:?}: {key}");
        }
    }
}
