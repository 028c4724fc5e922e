//! What the views that need not everything are made of. Of the records of blocks they need those that
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

/// The configuration says how long addresses cool down.
pub const BLOCKS: [Source; 5] =
    [Source::Blocks, Source::Pools, Source::Reservations, Source::IpamConfig, Source::ClusterInformation];

/// Whether a node is stranded depends on the pools.
pub const NODES: [Source; 7] = POOLS;

pub const BORROWED: [Source; 3] = [Source::Blocks, Source::Pools, Source::ClusterInformation];

pub const CONFIGURATION: [Source; 4] = [
    Source::IpamConfig,
    Source::IpamConfiguration,
    Source::KubeControllersConfiguration,
    Source::ClusterInformation,
];
