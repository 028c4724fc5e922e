//! Lookups over a snapshot that many rules share. Built once per check.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use calipam_model::block::{Block, BlockContent, BlockOwner, BlockProblem};
use calipam_model::endpoint::Endpoint;
use calipam_model::key::Key;
use calipam_model::names::EndpointName;
use calipam_model::node::{Node, TunnelKind};
use calipam_model::pool::Pool;
use calipam_model::snapshot::{DefectKind, Revision, Snapshot};
use calipam_model::text::Text;
use calipam_model::{IpNet, cidr};
use jiff::{SignedDuration, Timestamp};

/// How far in the future a release time may lie before it counts as broken: clocks differ.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);

/// A block that is stored and not marked deleted.
#[derive(Debug)]
pub struct IndexedBlock<'s> {
    /// The CIDR of its key.
    pub key: IpNet,
    /// Who owns it.
    pub owner: Option<&'s BlockOwner>,
    /// The block, where it is sound. A corrupt one is judged by its key alone.
    pub sound: Option<&'s Block>,
    /// What is broken; empty for a sound block.
    pub problems: Vec<BlockProblem>,
    /// Its version.
    pub revision: &'s Revision,
}

/// Who uses an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The endpoint with this place in the snapshot.
    Endpoint(u32),
    /// The node with this place in the snapshot, by one of its tunnel fields.
    Tunnel(u32, TunnelKind),
}

/// One use of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// The address.
    pub address: IpAddr,
    /// Who uses it.
    pub owner: Owner,
}

/// An endpoint that does not decode as a whole. It protects what its key names.
#[derive(Debug)]
pub struct BrokenEndpoint<'s> {
    /// Its namespace.
    pub namespace: &'s str,
    /// The parts of its name, where it has them.
    pub name: Option<EndpointName>,
}

/// Lookups over a snapshot.
#[derive(Debug)]
pub struct Index<'s> {
    /// What was read.
    pub snapshot: &'s Snapshot,
    /// Blocks, ascending by CIDR.
    pub blocks: Vec<IndexedBlock<'s>>,
    /// Every use of an address by a live owner, ascending by address.
    pub uses: Vec<Use>,
    /// CIDRs of blocks that are corrupt or do not decode: what lies in them is not judged.
    unjudged: Vec<IpNet>,
    nodes: HashMap<&'s str, u32>,
    broken_nodes: HashSet<&'s str>,
    nodes_of_endpoints: HashSet<&'s [u8]>,
    /// Endpoints that do not decode, or of which an address does not.
    pub broken_endpoints: Vec<BrokenEndpoint<'s>>,
    /// A pool does not decode, so that nothing can be said to lie outside all pools.
    pub pools_incomplete: bool,
}

impl<'s> Index<'s> {
    /// Builds the lookups.
    pub fn new(snapshot: &'s Snapshot) -> Self {
        let blocks = index_blocks(snapshot);
        let mut unjudged: Vec<IpNet> = blocks.iter().filter(|b| b.sound.is_none()).map(|b| b.key).collect();
        let mut broken_nodes = HashSet::new();
        let mut broken_endpoints = Vec::new();
        let mut pools_incomplete = false;
        for defect in &snapshot.defects {
            let whole = matches!(defect.kind, DefectKind::Value(_));
            match &defect.key {
                Some(Key::Endpoint { namespace, name }) => {
                    broken_endpoints.push(BrokenEndpoint { namespace, name: EndpointName::parse(name) });
                }
                Some(Key::Block(cidr)) if whole => unjudged.push(*cidr),
                Some(Key::Node(name)) if whole => drop(broken_nodes.insert(name.as_str())),
                Some(Key::Pool(_)) if whole => pools_incomplete = true,
                _ => {}
            }
        }
        let nodes =
            snapshot.nodes.iter().enumerate().map(|(i, n)| (n.value.name.as_str(), i as u32)).collect();
        let nodes_of_endpoints = snapshot.endpoints.iter().map(|e| e.value.node().packed()).collect();
        let uses = index_uses(snapshot);
        Self {
            snapshot,
            blocks,
            uses,
            unjudged,
            nodes,
            broken_nodes,
            nodes_of_endpoints,
            broken_endpoints,
            pools_incomplete,
        }
    }

    /// The node of that name, where it was read.
    pub fn node(&self, name: &str) -> Option<&'s Node> {
        self.nodes.get(name).map(|place| &self.snapshot.nodes[*place as usize].value)
    }

    /// True where the node exists, also where its object does not decode.
    pub fn node_exists(&self, name: &str) -> bool {
        self.nodes.contains_key(name) || self.broken_nodes.contains(name)
    }

    /// True where the node's object does not decode.
    pub fn node_is_broken(&self, name: &str) -> bool {
        self.broken_nodes.contains(name)
    }

    /// True where an endpoint names the node. Such a node may be alive even if its object is gone.
    pub fn endpoints_name_node(&self, name: &str) -> bool {
        let by_key = |e: &BrokenEndpoint<'_>| e.name.as_ref().is_some_and(|parts| parts.node == name);
        self.nodes_of_endpoints.contains(Text::new(name).as_ref().packed())
            || self.broken_endpoints.iter().any(by_key)
    }

    /// True where a corrupt or undecodable block lies over any part of `cidr`.
    pub fn is_unjudged(&self, cidr: IpNet) -> bool {
        self.unjudged.iter().any(|block| cidr::overlap(*block, cidr))
    }

    /// The block with exactly this CIDR as its key.
    pub fn block(&self, key: IpNet) -> Option<&IndexedBlock<'s>> {
        let place = self.blocks.binary_search_by_key(&key, |b| b.key).ok()?;
        self.blocks.get(place)
    }

    /// Pools that contain the whole of `cidr`, disabled ones included.
    pub fn pools_around(&self, cidr: IpNet) -> impl Iterator<Item = &'s Pool> + '_ {
        self.snapshot.pools.iter().map(|p| &p.value).filter(move |p| p.cidr.contains(&cidr))
    }

    /// The endpoint of an [`Owner::Endpoint`].
    pub fn endpoint(&self, place: u32) -> &'s Endpoint {
        &self.snapshot.endpoints[place as usize].value
    }

    /// Uses of addresses that lie in `cidr`, ascending.
    pub fn uses_in(&self, cidr: IpNet) -> &[Use] {
        let from = self.uses.partition_point(|u| u.address < cidr.network());
        let len = self.uses[from..].partition_point(|u| u.address <= cidr.broadcast());
        &self.uses[from..from + len]
    }

    /// Uses of one address.
    pub fn uses_of(&self, address: IpAddr) -> &[Use] {
        self.uses_in(address.into())
    }
}

fn index_blocks(snapshot: &Snapshot) -> Vec<IndexedBlock<'_>> {
    let future = snapshot.taken_at.saturating_add(CLOCK_SKEW).unwrap_or(Timestamp::MAX);
    let stored = snapshot.blocks.iter().filter(|b| !b.value.content.is_deleted());
    let mut blocks: Vec<_> = stored
        .map(|stored| {
            let content = &stored.value.content;
            let mut problems = match content {
                BlockContent::Sound(block) => released_in_future(block, future),
                BlockContent::Corrupt(block) => block.problems.clone(),
            };
            if content.cidr() != stored.value.key {
                let (key, cidr) = (stored.value.key.to_string(), content.cidr().to_string());
                problems.push(BlockProblem::KeyMismatch { key, cidr });
            }
            let sound = content.sound().filter(|_| problems.is_empty());
            IndexedBlock {
                key: stored.value.key,
                owner: content.owner(),
                sound,
                problems,
                revision: &stored.revision,
            }
        })
        .collect();
    blocks.sort_by_key(|b| b.key);
    blocks
}

fn released_in_future(block: &Block, limit: Timestamp) -> Vec<BlockProblem> {
    if !block.attributes().any(|a| a.is_cooling()) {
        return Vec::new();
    }
    let late = |time: Timestamp| time > limit;
    let broken = block.allocations().filter(|a| a.attribute.released_time().is_some_and(late));
    broken
        .map(|a| BlockProblem::ReleasedInFuture {
            ordinal: a.ordinal,
            released_at: a.attribute.released_at().map(|t| t.to_string()).unwrap_or_default(),
        })
        .collect()
}

fn index_uses(snapshot: &Snapshot) -> Vec<Use> {
    let mut uses = Vec::with_capacity(snapshot.endpoints.len() + 2 * snapshot.nodes.len());
    for (place, endpoint) in (0..).zip(&snapshot.endpoints) {
        uses.extend(endpoint.value.addresses().map(|address| Use { address, owner: Owner::Endpoint(place) }));
    }
    for (place, node) in (0..).zip(&snapshot.nodes) {
        let tunnels = node.value.tunnels.iter();
        uses.extend(
            tunnels.map(|(kind, address)| Use { address: *address, owner: Owner::Tunnel(place, *kind) }),
        );
    }
    uses.sort_unstable();
    uses
}
