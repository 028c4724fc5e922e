//! The documentation's cluster: `docs/examples/cluster.jsonl`.

use super::{Cluster, ClusterSpec, Fault};

/// The faults of the example, each with its count.
const FAULTS: [(Fault, usize); 18] = [
    (Fault::DuplicatePods, 1),
    (Fault::UnallocatedFreed, 1),
    (Fault::LeakedNoOwner, 3),
    (Fault::LeakedNewSandbox, 1),
    (Fault::NodeGone, 1),
    (Fault::OwnerMismatchPod, 1),
    (Fault::BorrowedTunnel, 1),
    (Fault::OverlappingBlocks, 1),
    (Fault::CorruptFreeTwice, 1),
    (Fault::BlockWithoutAffinity, 1),
    (Fault::AffinityOfOther, 1),
    (Fault::AffinityPending, 1),
    (Fault::OrphanHandle, 5),
    (Fault::MissingHandle, 1),
    (Fault::HandleCountHigh, 1),
    (Fault::SharedLegacySuccessor, 1),
    (Fault::PoolNearlyFull, 1),
    (Fault::UndecodableEndpointField, 1),
];

impl Cluster {
    /// Creates a small IPv4 cluster with more than a dozen different faults. It is always the same.
    pub fn example() -> Self {
        Self::damaged(ClusterSpec::new(2026).v4_only())
    }

    /// Creates a cluster with the faults of the example, but from another specification, such as one with both
    /// families.
    pub fn damaged(spec: ClusterSpec) -> Self {
        let mut cluster = Self::plain(spec, 4, 5);
        cluster.add_extras();
        for (fault, count) in FAULTS {
            cluster.inject(fault, count);
        }
        cluster
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_example_of_the_documentation_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/examples/cluster.jsonl");
        let committed = fs::read(&path).unwrap();
        assert!(
            committed == Cluster::example().export(),
            "{} is not what the generator makes; write it anew with\n  cargo run -p calipam-testkit --example \
             generate_cluster -- example docs/examples/cluster.jsonl",
            path.display()
        );
    }

    #[test]
    fn the_example_shows_more_than_a_dozen_codes() {
        let cluster = Cluster::example();
        let codes: std::collections::BTreeSet<&str> = cluster.truth().iter().map(|e| e.code).collect();
        assert!(codes.len() > 12, "{codes:?}");
    }
}
