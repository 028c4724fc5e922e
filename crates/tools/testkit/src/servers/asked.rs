//! The ranges of keys that a client asks an etcd for, as a proxy sees them.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use calipam_files::protobuf::Fields;
use calipam_model::parallel::lock;

use super::{Etcd, Seen, Tear, Tearing};

/// A range of keys in a request. Bytes that are not text are replaced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskedRange {
    pub start: String,
    /// The exclusive end; empty for the single key `start`.
    pub end: String,
    /// The limit of the keys in the answer; 0 for none.
    pub limit: u64,
}

/// Folders of the v3 API with few and small objects, whatever the size of the cluster.
const SMALL_FOLDERS: [&str; 4] = [
    "clusterinformations/",
    "ipamconfigurations/",
    "ippools/",
    "ipreservations/",
];

/// The separators between the numbers of an address.
const SEPARATORS: [char; 2] = ['.', ':'];

impl AskedRange {
    /// True if the range belongs to one object, node, pool or network, and so does not grow with the cluster. etcd counts
    /// all keys of a range, whatever its limit.
    pub fn is_bounded(&self) -> bool {
        if self.end.is_empty() {
            return true;
        }
        let of = |folder: &str| self.start.strip_prefix(folder);
        if let Some(kind) = of("/calico/resources/v3/projectcalico.org/") {
            let of_node = |rest: &str| rest.split_once('/').is_some_and(|(_, node)| !node.is_empty());
            return SMALL_FOLDERS.iter().any(|folder| kind.starts_with(folder))
                || kind.strip_prefix("workloadendpoints/").is_some_and(of_node) && self.is_prefix();
        }
        if let Some(node) = of("/calico/ipam/v2/host/") {
            return node.contains('/') && self.is_prefix();
        }
        let blocks =
            ["ipv4", "ipv6"].map(|family| of(&format!("/calico/ipam/v2/assignment/{family}/block/")));
        let is_of_network = |block: &str| block.matches(SEPARATORS).count() >= 2;
        let network = self
            .start
            .trim_end_matches(|c| !SEPARATORS.contains(&c))
            .trim_end_matches(SEPARATORS);
        blocks.into_iter().flatten().any(is_of_network) && self.end.starts_with(network)
    }

    /// True if the range ends after the last key that begins with its start.
    fn is_prefix(&self) -> bool {
        let mut end = self.start.clone();
        let last = self.start.chars().next_back();
        end.pop();
        end.extend(last.and_then(|last| char::from_u32(u32::from(last) + 1)));
        end == self.end
    }
}

/// A proxy in front of an etcd that notes all ranges that requests and transactions read.
pub struct Asked {
    proxy: Tearing,
    ranges: Arc<Mutex<Vec<AskedRange>>>,
}

impl Asked {
    /// Starts a proxy in front of an etcd without TLS.
    pub fn of(etcd: &Etcd) -> Result<Self> {
        let asked = Self {
            proxy: Tearing::etcd(etcd)?,
            ranges: Arc::default(),
        };
        let ranges = Arc::clone(&asked.ranges);
        asked.proxy.plan(move |seen| {
            lock(&ranges).extend(ranges_of(seen));
            Tear::Pass
        });
        Ok(asked)
    }

    pub fn url(&self) -> String {
        self.proxy.url()
    }

    /// Returns the ranges that were read since the last call, each once.
    pub fn take(&self) -> Vec<AskedRange> {
        let mut ranges = std::mem::take(&mut *lock(&self.ranges));
        ranges.sort();
        ranges.dedup();
        ranges
    }
}

/// Returns the ranges of a request.
///
/// # Panics
/// If the request cannot be decoded.
fn ranges_of(seen: Seen<'_>) -> Vec<AskedRange> {
    // A message comes after one byte for its compression and four for its length.
    let message = seen.content.get(5..).unwrap_or_default();
    match seen.path {
        "/etcdserverpb.KV/Range" => vec![range(message)],
        "/etcdserverpb.KV/Txn" => of_transaction(message),
        _ => Vec::new(),
    }
}

/// Decodes `RangeRequest`.
fn range(message: &[u8]) -> AskedRange {
    let mut range = AskedRange {
        start: String::new(),
        end: String::new(),
        limit: 0,
    };
    each_field(message, |field, value| match field {
        1 => range.start = String::from_utf8_lossy(value.bytes()).into_owned(),
        2 => range.end = String::from_utf8_lossy(value.bytes()).into_owned(),
        3 => range.limit = value.number(),
        _ => {}
    });
    range
}

/// Decodes the ranges in both branches of a `TxnRequest`.
fn of_transaction(message: &[u8]) -> Vec<AskedRange> {
    let mut ranges = Vec::new();
    each_field(message, |field, operation| {
        if field == 2 || field == 3 {
            each_field(operation.bytes(), |kind, request| {
                if kind == 1 {
                    ranges.push(range(request.bytes()));
                }
            });
        }
    });
    ranges
}

fn each_field<'a>(message: &'a [u8], mut take: impl FnMut(u32, calipam_files::protobuf::Value<'a>)) {
    let mut fields = Fields::new(message);
    while let Some((field, value)) = fields.next_field().expect("a message of etcd") {
        take(field, value);
    }
}
