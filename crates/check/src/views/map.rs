//! A map of the pools, with a cell for each block or, in large pools, for several blocks.

use std::collections::BTreeMap;
use std::ops::Range;

use calipam_model::block::{Block, BlockOwner};
use calipam_model::snapshot::Snapshot;
use calipam_model::{IpNet, cidr};
use serde::Serialize;

use super::Count;
use crate::code::Severity;
use crate::finding::{Finding, Subject};
use crate::index::{IndexedBlock, Stored};
use crate::names::name_of_claim;
use crate::occupancy::Occupancy;
use crate::record::AddressState;
use crate::{Context, Options, Report};

/// Limits of a map. A list that is too long is left out entirely, so that nothing looks emptier than it is.
#[derive(Clone, Copy, Debug)]
pub struct MapLimits {
    /// The maximum number of cells of a pool; a power of two.
    pub cells: u32,
    /// The maximum number of blocks to list, with the states of their addresses.
    pub blocks: usize,
    /// The maximum number of allocations to list with their owners.
    pub owners: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolMap {
    pub name: String,
    pub cidr: IpNet,
    /// The prefix length of a cell: the pool's block size or, in large pools, a shorter one.
    pub cell_size: u8,
    /// The number of cells, including empty ones.
    pub size: u32,
    /// The cells with blocks or findings, ascending.
    pub cells: Vec<MapCell>,
    /// The blocks, ascending; `None` if there are too many.
    #[serde(skip)]
    pub blocks: Option<Vec<MappedBlock>>,
}

/// A part of a pool. Addresses that are not counted are free or, in a cell without blocks, perhaps reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapCell {
    /// The cell's place in the pool, from 0.
    pub index: u32,
    pub blocks: u32,
    pub total: Count,
    pub in_use: Count,
    pub cooling: Count,
    /// Reserved by IP reservations and Windows nodes.
    pub reserved: Count,
    /// In blocks that are corrupt or cannot be decoded.
    pub unknown: Count,
    pub findings: u32,
    /// The worst severity among the findings.
    pub worst: Option<Severity>,
}

/// A block in a map.
#[derive(Clone, Debug, PartialEq)]
pub struct MappedBlock {
    pub cidr: IpNet,
    /// The block's cells in the map.
    pub cells: Range<u32>,
    pub owner: Option<BlockOwner>,
    /// The states of the addresses, by ordinal; empty if the block is corrupt or cannot be decoded.
    pub states: Vec<AddressState>,
    /// Ordinals with their owners; empty if there are too many.
    pub owners: Vec<(u32, String)>,
}

/// The maps of pools for `show`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MapList {
    pub pools: Vec<PoolMap>,
}

impl PoolMap {
    /// Returns the CIDR of a cell.
    pub fn cell_cidr(&self, index: u32) -> IpNet {
        Grid {
            pool: self.cidr,
            cell_size: self.cell_size,
        }
        .cidr(index)
    }
}

/// Maps every pool, ascending by CIDR. Blocks and owners are left out of the maps if there are more than `limits`
/// allows.
pub fn map(snapshot: &Snapshot, report: &Report, limits: MapLimits) -> Vec<PoolMap> {
    let context = Context::new(snapshot, &Options::default());
    let occupancy = Occupancy::new(&context);
    let with_blocks = occupancy.stored.len() <= limits.blocks;
    let with_owners = snapshot.allocation_counts().allocated <= limits.owners;

    let mut maps = Vec::new();
    for pool in context.index.pools() {
        let grid = Grid::new(pool.cidr, pool.block_size, limits.cells);
        let mut blocks = None;
        if with_blocks {
            let stored = occupancy.inside(pool.cidr).iter();
            blocks = Some(stored.map(|block| grid.map_block(block, with_owners)).collect());
        }
        maps.push(PoolMap {
            name: pool.name.clone(),
            cidr: pool.cidr,
            cell_size: grid.cell_size,
            size: grid.size(),
            cells: grid.cells(&occupancy, &report.findings),
            blocks,
        });
    }
    maps
}

/// The cells of a pool.
struct Grid {
    pool: IpNet,
    cell_size: u8,
}

impl Grid {
    /// Divides a pool into cells of the size of a block, or into larger ones if they were too many.
    fn new(pool: IpNet, block_size: u8, most_cells: u32) -> Self {
        let most_bits = most_cells.max(1).ilog2() as u8;
        let cell_size = block_size.clamp(pool.prefix_len(), pool.prefix_len().saturating_add(most_bits));
        Self {
            pool,
            cell_size: cell_size.min(pool.max_prefix_len()),
        }
    }

    fn size(&self) -> u32 {
        1 << (self.cell_size - self.pool.prefix_len())
    }

    /// Returns the cells that overlap a CIDR; none if it is outside the pool, all if it is larger.
    fn touched(&self, network: IpNet) -> Range<u32> {
        if network.contains(&self.pool) {
            return 0..self.size();
        }
        if !self.pool.contains(&network) {
            return 0..0;
        }
        // There is no place for a cell of `::/0`, which contains every address.
        let index_of =
            |address| cidr::subnet_place(self.pool, self.cell_size, address).unwrap_or_default() as u32;
        index_of(network.network())..index_of(network.broadcast()) + 1
    }

    fn cidr(&self, index: u32) -> IpNet {
        cidr::subnet_at(self.pool, self.cell_size, index.into()).unwrap_or(self.pool)
    }

    /// Counts the blocks, addresses and findings of each cell that has any, in ascending order. Findings about pools
    /// belong to no cell.
    fn cells(&self, occupancy: &Occupancy<'_, '_>, findings: &[Finding]) -> Vec<MapCell> {
        let mut cells: BTreeMap<u32, MapCell> = BTreeMap::new();
        let larger = occupancy.around(self.pool).into_iter();
        for stored in larger.chain(occupancy.inside(self.pool)) {
            for index in self.touched(stored.key) {
                cells.entry(index).or_default().blocks += 1;
            }
        }
        for (index, cell) in &mut cells {
            let tally = occupancy.tally(self.cidr(*index));
            cell.in_use = Count(tally.in_use);
            cell.cooling = Count(tally.cooling);
            cell.reserved = Count(tally.reserved + tally.windows_reserved);
            cell.unknown = Count(tally.unknown);
        }

        for finding in findings {
            if matches!(finding.subject, Subject::Pool(_)) {
                continue;
            }
            let Some(network) = finding.subject.network() else {
                continue;
            };
            for index in self.touched(network) {
                let cell = cells.entry(index).or_default();
                cell.findings += 1;
                cell.worst = cell.worst.into_iter().chain([finding.severity]).min();
            }
        }

        let total = Count(cidr::size(self.cidr(0)));
        cells
            .into_iter()
            .map(|(index, cell)| MapCell { index, total, ..cell })
            .collect()
    }

    /// Describes a block on the map: its cells, its owner, and the states of its addresses.
    fn map_block(&self, stored: &Stored<'_, '_>, with_owners: bool) -> MappedBlock {
        let mut mapped = MappedBlock {
            cidr: stored.key,
            cells: self.touched(stored.key),
            owner: None,
            states: Vec::new(),
            owners: Vec::new(),
        };
        let Some(block) = stored.block else {
            return mapped;
        };
        mapped.owner = block.owner.cloned();
        mapped.states = block.current().map(states).unwrap_or_default();
        if with_owners {
            mapped.owners = owners(block);
        }
        mapped
    }
}

fn states(block: &Block) -> Vec<AddressState> {
    let mut states = vec![AddressState::Free; block.size() as usize];
    for allocation in block.allocations() {
        states[allocation.ordinal as usize] = AddressState::of(&allocation.attribute);
    }
    states
}

/// Names the owner of each allocated address, by ordinal.
fn owners(block: &IndexedBlock<'_>) -> Vec<(u32, String)> {
    let mut owners = Vec::new();
    for allocation in block.sound.into_iter().flat_map(Block::allocations) {
        let attribute = &allocation.attribute;
        if AddressState::of(attribute) != AddressState::Allocated {
            continue;
        }
        let mut owner = name_of_claim(attribute).to_string();
        if let Some(node) = attribute.get("node") {
            owner.push_str(&format!(" on {node}"));
        }
        owners.push((allocation.ordinal, owner));
    }
    owners
}

#[cfg(test)]
mod tests {
    use calipam_testkit::values;
    use serde_json::json;

    use super::*;
    use crate::check;
    use crate::test_cluster::{Cluster, pod};

    const LIMITS: MapLimits = MapLimits {
        cells: 1024,
        blocks: 100,
        owners: 100,
    };

    fn small() -> Cluster {
        let mut cluster = Cluster::new();
        cluster.only_pool("small", json!({"cidr": "10.244.1.0/27", "blockSize": 30}));
        let cooling = json!({"releasedAt": "2026-05-01T11:59:00Z"});
        let owner = Some("host:node-1");
        cluster.block("10.244.1.4/30", owner, [pod("node-1", "a"), cooling]);
        cluster
    }

    fn mapped(cluster: &Cluster, limits: MapLimits) -> PoolMap {
        let report = check(&cluster.0, &Options::default());
        map(&cluster.0, &report, limits).remove(0)
    }

    #[test]
    fn each_block_has_a_cell() {
        let map = mapped(&small(), LIMITS);
        assert_eq!((map.cell_size, map.size, map.cells.len()), (30, 8, 2));
        // No block contains the node's tunnel address.
        let empty = map.cells[0];
        assert_eq!((empty.index, empty.blocks, empty.findings), (0, 0, 1));
        let cell = map.cells[1];
        assert_eq!(
            (
                cell.index,
                cell.blocks,
                cell.total.0,
                cell.in_use.0,
                cell.cooling.0
            ),
            (1, 1, 4, 1, 1)
        );
        // The allocated address is leaked.
        assert_eq!((cell.findings, cell.worst), (1, Some(Severity::Error)));
        assert_eq!(map.cell_cidr(cell.index).to_string(), "10.244.1.4/30");
    }

    #[test]
    fn a_large_pool_has_fewer_cells_than_blocks() {
        let map = mapped(&small(), MapLimits { cells: 4, ..LIMITS });
        assert_eq!((map.cell_size, map.size), (29, 4));
        let cell = map.cells[0];
        assert_eq!(
            (cell.index, cell.blocks, cell.total.0, cell.in_use.0),
            (0, 1, 8, 1)
        );
        assert_eq!(map.blocks.unwrap()[0].cells, 0..1);
    }

    #[test]
    fn a_block_larger_than_a_cell_is_in_several() {
        let mut cluster = small();
        cluster.only_pool("small", json!({"cidr": "10.244.1.0/27", "blockSize": 32}));
        let map = mapped(&cluster, LIMITS);
        let with_blocks = map.cells.iter().filter(|cell| cell.blocks > 0);
        let cells: Vec<_> = with_blocks
            .map(|cell| (cell.index, cell.in_use.0, cell.cooling.0))
            .collect();
        assert_eq!(cells, [(4, 1, 0), (5, 0, 1), (6, 0, 0), (7, 0, 0)]);
        assert_eq!(map.blocks.unwrap()[0].cells, 4..8);
    }

    #[test]
    fn an_ipv6_pool_of_many_blocks_has_cells_for_parts_of_it() {
        let mut cluster = Cluster::new();
        cluster.only_pool("six", json!({"cidr": "fd00::/48", "blockSize": 122}));
        let mut short = values::block("fd00:0:0:ff00::/126", "host:node-1", []);
        short["cidr"] = "fd00:0:0:ff00::/122".into();
        cluster.put(&values::block_key("fd00:0:0:ff00::/122"), short);
        let map = mapped(&cluster, LIMITS);
        assert_eq!((map.cell_size, map.size), (58, 1024));
        assert_eq!(map.cells[0].index, 0xff00 >> 6);
        assert!(
            map.cells[0].unknown.0 > 0,
            "a block with four records of 64 is corrupt"
        );
    }

    #[test]
    fn blocks_are_listed_with_states_and_owners_up_to_a_limit() {
        let cluster = small();
        let block = mapped(&cluster, LIMITS).blocks.unwrap().remove(0);
        use AddressState::{Allocated, Cooling, Free};
        assert_eq!(block.states, [Allocated, Cooling, Free, Free]);
        assert_eq!(block.owners, [(0, "default/a on node-1".to_owned())]);
        let without_owners = mapped(&cluster, MapLimits { owners: 0, ..LIMITS });
        assert_eq!(without_owners.blocks.unwrap()[0].owners, []);
        assert_eq!(mapped(&cluster, MapLimits { blocks: 0, ..LIMITS }).blocks, None);
    }
}
