//! The sources of views that do not need the whole cluster. They need the records of blocks that
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

/// The pools, and everything that lies somewhere.
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

/// The configuration has the cooldown of addresses.
pub const BLOCKS: [Source; 5] =
    [Source::Blocks, Source::Pools, Source::Reservations, Source::IpamConfig, Source::ClusterInformation];

/// A node without addresses shows only by the pools.
pub const NODES: [Source; 7] = POOLS;

pub const BORROWED: [Source; 3] = [Source::Blocks, Source::Pools, Source::ClusterInformation];

pub const CONFIGURATION: [Source; 4] = [
    Source::IpamConfig,
    Source::IpamConfiguration,
    Source::KubeControllersConfiguration,
    Source::ClusterInformation,
];
