//! Splits a whole read into narrow ranges.
//!
//! For every request, even with a limit, etcd traverses its index over the whole range, so paging through a
//! million keys takes quadratic time. Narrow ranges avoid that, but need bounds, which come from earlier reads:
//! affinities name the blocks, and a sample of blocks names handles and endpoints. The ranges always cover all keys;
//! the sample only determines how even they are.

use calipam_files::Extent;
use calipam_files::raw::prefix_end;
use calipam_model::block::BlockContent;
use calipam_model::key::{BLOCK_PREFIX, ENDPOINT_PREFIX, HANDLE_PREFIX};
use calipam_model::names::{KUBERNETES, endpoint_name};
use calipam_model::snapshot::Source;

use crate::etcd::client::Range;

/// Number of blocks in one range, whose values take about a megabyte.
const BLOCKS_PER_RANGE: usize = 64;
/// Number of handles in one range, whose values are much smaller than those of blocks.
const HANDLES_PER_RANGE: usize = 4096;
/// Number of endpoints in one range, whose values are smaller than those of blocks.
const ENDPOINTS_PER_RANGE: usize = 2048;
/// Maximum ranges of one kind.
const MAX_RANGES: usize = 512;
/// Minimum number of blocks in a cluster for which a sample is read.
const SMALL: usize = 64;
/// Number of positions in the sorted blocks at which the sample is taken.
const SAMPLE_PLACES: usize = 48;
/// Number of blocks to read at each position of the sample.
const SAMPLE_BLOCKS: i64 = 2;
/// Minimum limit of the first request for a range.
pub(crate) const LEAST_LIMIT: usize = 2000;

/// A range of keys, and their expected number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The range, without a limit.
    pub range: Range,
    /// Expected number of keys.
    pub expected: usize,
    /// The words for the content of this part in error messages.
    pub what: &'static str,
}

/// The sorted keys of the blocks that affinities of any kind name.
pub(crate) fn block_keys<'a>(affinities: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = affinities.filter_map(block_of).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Converts the key `…/host/<node>/ipv4/block/<cidr>` to that of the block, `…/assignment/ipv4/block/<cidr>`.
fn block_of(affinity: &[u8]) -> Option<Vec<u8>> {
    // The third slash from the end is in front of the family.
    let mut slashes_from_end = (0..affinity.len())
        .rev()
        .filter(|position| affinity[*position] == b'/');
    let slash = slashes_from_end.nth(2)?;
    let tail = &affinity[slash + 1..];
    if !tail.starts_with(b"ipv4/block/") && !tail.starts_with(b"ipv6/block/") {
        return None;
    }
    Some([BLOCK_PREFIX.as_bytes(), tail].concat())
}

pub(crate) fn blocks(keys: &[Vec<u8>]) -> Vec<Part> {
    split(BLOCK_PREFIX, keys, keys.len(), BLOCKS_PER_RANGE, "blocks")
}

/// The ranges of a sample of blocks; none in small clusters.
pub(crate) fn sample_ranges(keys: &[Vec<u8>]) -> Vec<Range> {
    if keys.len() < SMALL {
        return Vec::new();
    }
    let places = keys.len().min(SAMPLE_PLACES);
    let mut bounds: Vec<Vec<u8>> = Vec::new();
    for place in 0..places {
        bounds.push(keys[place * keys.len() / places].clone());
    }
    bounds.push(prefix_end(BLOCK_PREFIX.as_bytes()));
    bounds
        .windows(2)
        .map(|pair| Range::between(pair[0].as_slice(), pair[1].as_slice()).with_limit(SAMPLE_BLOCKS))
        .collect()
}

/// The keys of handles and endpoints that a sample of blocks names.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    blocks: usize,
    handles: Vec<Vec<u8>>,
    endpoints: Vec<Vec<u8>>,
}

impl Sample {
    /// Adds one block by its value. A block that cannot be decoded is only counted.
    pub(super) fn add(&mut self, value: &[u8]) {
        self.blocks += 1;
        let Ok(content) = BlockContent::parse(value) else {
            return;
        };
        let Some(block) = content.sound() else { return };
        for record in block.attributes() {
            if let Some(handle) = record.clean_handle()
                && !handle.is_empty()
            {
                let key = format!("{HANDLE_PREFIX}{handle}");
                self.handles.push(key.into_bytes());
            }

            // Records of addresses that no pod has, such as those of tunnels, lack some of these.
            if let Some(namespace) = record.get("namespace")
                && let Some(pod) = record.get("pod")
                && let Some(node) = record.get("node")
                && !namespace.is_empty()
                && !pod.is_empty()
                && !node.is_empty()
            {
                let name = endpoint_name(&node.plain(), KUBERNETES, &pod.plain(), "");
                let key = format!("{ENDPOINT_PREFIX}{namespace}/{name}");
                self.endpoints.push(key.into_bytes());
            }
        }
    }

    /// The ranges of all handles and endpoints that `extent` includes. Their expected numbers are those in the sample,
    /// scaled to `blocks`, the number of blocks in the cluster.
    pub(super) fn handles_and_endpoints(mut self, blocks: usize, extent: &Extent) -> Vec<Part> {
        let sampled_blocks = self.blocks.max(1);
        let mut parts = Vec::new();
        if extent.has(Source::Handles) {
            self.handles.sort_unstable();
            self.handles.dedup();
            let expected = self.handles.len() * blocks / sampled_blocks;
            parts.extend(split(
                HANDLE_PREFIX,
                &self.handles,
                expected,
                HANDLES_PER_RANGE,
                "handles",
            ));
        }
        if extent.has(Source::Endpoints) {
            self.endpoints.sort_unstable();
            self.endpoints.dedup();
            let expected = self.endpoints.len() * blocks / sampled_blocks;
            parts.extend(split(
                ENDPOINT_PREFIX,
                &self.endpoints,
                expected,
                ENDPOINTS_PER_RANGE,
                "workload endpoints",
            ));
        }
        parts
    }
}

/// Splits the range of a prefix at quantiles of the sorted `keys`, into parts of about `per_range` keys if the whole
/// range has the `expected` number of keys.
fn split(prefix: &str, keys: &[Vec<u8>], expected: usize, per_range: usize, what: &'static str) -> Vec<Part> {
    let part_count = expected
        .div_ceil(per_range)
        .clamp(1, MAX_RANGES)
        .min(keys.len().max(1));
    let whole = Range::prefix(prefix);
    let mut bounds = vec![whole.start.clone()];
    for i in 1..part_count {
        let bound = &keys[i * keys.len() / part_count];
        if bounds.last() != Some(bound) && bound.as_slice() < whole.end.as_slice() {
            bounds.push(bound.clone());
        }
    }
    bounds.push(whole.end);

    let mut parts = Vec::new();
    for pair in bounds.windows(2) {
        parts.push(Part {
            range: Range::between(pair[0].as_slice(), pair[1].as_slice()),
            expected: expected.div_ceil(bounds.len() - 1),
            what,
        });
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn affinity(i: usize) -> Vec<u8> {
        format!(
            "/calico/ipam/v2/host/node-{i}/ipv4/block/10.{}.{}.0-26",
            i / 256,
            i % 256
        )
        .into_bytes()
    }

    fn covers(parts: &[Part], prefix: &str) {
        assert_eq!(parts.first().unwrap().range.start, prefix.as_bytes());
        assert_eq!(parts.last().unwrap().range.end, prefix_end(prefix.as_bytes()));
        for pair in parts.windows(2) {
            assert_eq!(pair[0].range.end, pair[1].range.start);
            assert!(pair[0].range.start < pair[0].range.end);
        }
    }

    #[test]
    fn affinities_name_blocks() {
        let affinities: Vec<Vec<u8>> = (0..1000).map(affinity).collect();
        let strange: [&[u8]; 4] = [
            b"/calico/ipam/v2/@/n/ipv6/block/fd00::-122",
            b"/calico/ipam/v2/host/ipv4",
            b"/calico/ipam/v2/host/n/ipv5/block/x",
            b"",
        ];
        let keys = block_keys(affinities.iter().map(Vec::as_slice).chain(strange));
        assert_eq!(keys.len(), 1001);
        assert_eq!(
            keys.last().unwrap(),
            b"/calico/ipam/v2/assignment/ipv6/block/fd00::-122"
        );
        let parts = blocks(&keys);
        assert_eq!(parts.len(), 16);
        covers(&parts, BLOCK_PREFIX);
        let samples = sample_ranges(&keys);
        assert_eq!(samples.len(), SAMPLE_PLACES);
        assert!(samples.windows(2).all(|pair| pair[0].end == pair[1].start));
    }

    #[test]
    fn without_anything_known_there_is_one_range() {
        covers(&blocks(&[]), BLOCK_PREFIX);
        let parts = Sample::default().handles_and_endpoints(0, &Extent::Whole);
        assert_eq!(parts.len(), 2);
        covers(&parts[..1], HANDLE_PREFIX);
        covers(&parts[1..], ENDPOINT_PREFIX);
        assert!(sample_ranges(&[]).is_empty());
    }

    #[test]
    fn a_sample_names_handles_and_endpoints() {
        let mut sample = Sample::default();
        for i in 0..100u32 {
            let record = |j: u32| {
                let owner =
                    json!({"namespace": format!("ns{}", i % 7), "pod": format!("web-{i}"), "node": "node-1"});
                json!({"handle_id": format!("k8s-pod-network.{i:03}{j}"), "secondary": owner})
            };
            let block = json!({"cidr": format!("10.0.{i}.0/30"), "affinity": null, "allocations": [0, 1, null, null],
                "unallocated": [2, 3], "attributes": [record(0), record(1)]});
            sample.add(block.to_string().as_bytes());
        }
        sample.add(b"garbage");
        assert!(sample.endpoints[0].starts_with(ENDPOINT_PREFIX.as_bytes()));
        let parts = sample.handles_and_endpoints(20_000, &Extent::Whole);
        let (handles, endpoints): (Vec<_>, Vec<_>) = parts.into_iter().partition(|p| p.what == "handles");
        covers(&handles, HANDLE_PREFIX);
        covers(&endpoints, ENDPOINT_PREFIX);
        assert_eq!(handles.len(), 200 * 20_000 / 101 / HANDLES_PER_RANGE + 1);
        assert!(endpoints.len() > 8, "{}", endpoints.len());
    }
}
