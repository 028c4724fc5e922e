//! The sources that views need if they do not need the entire cluster. Of the blocks' records, they need those that
//! `RecordDetail::Borrowers` keeps.

use calipam_model::snapshot::Source;

pub const POOLS: [Source; 7] = [
    Source::Blocks,
    Source::Affinities,
    Source::Pools,
    Source::Reservations,
    Source::Nodes,
    Source::IpamConfig,
    Source::ClusterInformation,
];

/// The sources for a search for a free range, which must avoid all pools, and the addresses in blocks, nodes and
/// services.
pub const PLACES: [Source; 8] = [
    Source::Blocks,
    Source::Affinities,
    Source::Pools,
    Source::Reservations,
    Source::Nodes,
    Source::IpamConfig,
    Source::ClusterInformation,
    Source::Services,
];

/// The sources of the block list. The configuration contains the cooldown of released addresses.
pub const BLOCKS: [Source; 5] = [
    Source::Blocks,
    Source::Pools,
    Source::Reservations,
    Source::IpamConfig,
    Source::ClusterInformation,
];

/// The sources of the node list. Pools are among them, since they determine whether a node can get addresses.
pub const NODES: [Source; 7] = POOLS;

pub const BORROWED: [Source; 3] = [Source::Blocks, Source::Pools, Source::ClusterInformation];

pub const CONFIGURATION: [Source; 4] = [
    Source::IpamConfig,
    Source::IpamConfiguration,
    Source::KubeControllersConfiguration,
    Source::ClusterInformation,
];
