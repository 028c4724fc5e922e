//! Checks whether a scenario can be simulated.

use calipam_model::IpNet;
use calipam_model::cidr;

use super::Scenario;
use crate::datastore::CostsError;
use crate::time::Micros;

/// The largest numbers of nodes and pods. Larger simulations would exceed a usual machine's memory.
const MOST_NODES: u32 = 50_000;
const MOST_PODS: u64 = 5_000_000;
/// The longest simulation.
const LONGEST: Micros = Micros::from_mins(366 * 24 * 60);

/// The result of a simulation.
pub(crate) type Result<T, E = ScenarioError> = std::result::Result<T, E>;

/// The reason why a scenario cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    #[error("there is no pool, so no pod can get an address")]
    NoPool,
    #[error("there is no node")]
    NoNodes,
    #[error("there are no pods: each node gets 0")]
    NoPods,
    #[error("{pods} pods on each node are more than a node's maximum of {most}")]
    TooManyPodsOfNode { pods: u32, most: u32 },
    #[error("a block of /{block_size} is larger than the pool {pool}")]
    BlockLargerThanPool { pool: IpNet, block_size: u8 },
    #[error("the pool {pool} cannot have blocks of /{block_size}: Calico allows /{least} to /{most}")]
    BlockSize { pool: IpNet, block_size: u8, least: u8, most: u8 },
    #[error("the pools {0} and {1} overlap")]
    PoolsOverlap(IpNet, IpNet),
    #[error("a limit on blocks per node needs strict affinity, as in Calico")]
    LimitNeedsStrictAffinity,
    #[error(
        "{nodes} nodes with {pods} pods are more than can be simulated: at most {MOST_NODES} and {MOST_PODS}"
    )]
    TooLarge { nodes: u32, pods: u64 },
    #[error("a simulation of {0} is longer than a year")]
    TooLong(Micros),
    #[error("the duration of a simulation must be longer than 0")]
    NoTime,
    #[error("node {0} not found")]
    NoSuchNode(String),
    #[error("an event at {at} comes after the end at {end}")]
    EventAfterEnd { at: Micros, end: Micros },
    #[error("a latency that varies by {0} thousandths could be negative: at most 1000")]
    Jitter(u64),
    #[error(transparent)]
    Costs(#[from] CostsError),
}

impl Scenario {
    /// Refuses a scenario that no cluster can have, or that is too large to simulate. A pool that is too small for the
    /// blocks of all nodes is allowed: simulations show its effects.
    pub fn check(&self) -> Result<()> {
        let costs = self.costs()?;
        if costs.jitter_permille > 1_000 {
            return Err(ScenarioError::Jitter(costs.jitter_permille));
        }
        self.check_pools()?;
        self.check_size()?;
        self.check_times()
    }

    fn check_pools(&self) -> Result<()> {
        if self.pools_for_pods().next().is_none() {
            return Err(ScenarioError::NoPool);
        }
        for (index, spec) in self.pools.iter().enumerate() {
            let (pool, block_size) = (spec.cidr.trunc(), spec.block_size);
            let allowed = if cidr::is_v4(pool) { cidr::BLOCK_PREFIXES_V4 } else { cidr::BLOCK_PREFIXES_V6 };
            if !allowed.contains(&block_size) {
                let (least, most) = (*allowed.start(), *allowed.end());
                return Err(ScenarioError::BlockSize { pool, block_size, least, most });
            }
            if block_size < pool.prefix_len() {
                return Err(ScenarioError::BlockLargerThanPool { pool, block_size });
            }
            let others = self.pools[..index].iter().map(|other| other.cidr.trunc());
            let known = self.start.iter().flat_map(|start| start.pools.iter().map(|pool| pool.cidr));
            if let Some(other) = others.chain(known).find(|other| cidr::overlap(*other, pool)) {
                return Err(ScenarioError::PoolsOverlap(other, pool));
            }
        }
        if self.max_blocks_per_host > 0 && !self.config().is_some_and(|config| config.strict_affinity) {
            return Err(ScenarioError::LimitNeedsStrictAffinity);
        }
        Ok(())
    }

    fn check_size(&self) -> Result<()> {
        let nodes = self.node_count();
        if nodes == 0 {
            return Err(ScenarioError::NoNodes);
        }
        if self.pods_per_node > self.max_pods_per_node {
            let (pods, most) = (self.pods_per_node, self.max_pods_per_node);
            return Err(ScenarioError::TooManyPodsOfNode { pods, most });
        }
        let running = self.start.as_ref().map_or(0, |start| start.pods.len() as u64);
        let pods = self.pod_count() + running;
        if pods == 0 {
            return Err(ScenarioError::NoPods);
        }
        if nodes > MOST_NODES || pods > MOST_PODS {
            return Err(ScenarioError::TooLarge { nodes, pods });
        }
        Ok(())
    }

    fn check_times(&self) -> Result<()> {
        let end = self.end();
        if end.is_zero() {
            return Err(ScenarioError::NoTime);
        }
        if end > LONGEST {
            return Err(ScenarioError::TooLong(end));
        }
        let Some(planned) = &self.event else { return Ok(()) };
        if planned.at > end {
            return Err(ScenarioError::EventAfterEnd { at: planned.at, end });
        }
        match planned.what.node() {
            Some(name) if self.node_index(name).is_none() => Err(ScenarioError::NoSuchNode(name.to_owned())),
            _ => Ok(()),
        }
    }

    pub(crate) fn node_index(&self, name: &str) -> Option<u32> {
        match &self.start {
            Some(start) => start.nodes.iter().position(|node| node.name == name).map(|index| index as u32),
            None => {
                let number: u32 = name.strip_prefix("node-")?.parse().ok()?;
                let index = number.checked_sub(1)?;
                (index < self.nodes && self.node_name(index) == name).then_some(index)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Event, Planned, PoolSpec};

    fn sound() -> Scenario {
        Scenario { pools: vec![PoolSpec::new("10.0.0.0/16".parse().unwrap())], ..Scenario::default() }
    }

    fn error(change: impl FnOnce(&mut Scenario)) -> String {
        let mut scenario = sound();
        change(&mut scenario);
        scenario.check().unwrap_err().to_string()
    }

    #[test]
    fn impossible_clusters_are_refused() {
        assert_eq!(sound().check(), Ok(()));
        let pool = |cidr: &str, block_size: u8| PoolSpec { cidr: cidr.parse().unwrap(), block_size };
        assert!(error(|s| s.pools.clear()).contains("no pool"));
        assert!(error(|s| s.nodes = 0).contains("no node"));
        assert!(error(|s| s.pods_per_node = 0).contains("there are no pods"));
        let says = "larger than the pool 10.0.0.0/24";
        assert!(error(|s| s.pools = vec![pool("10.0.0.0/24", 22)]).contains(says));
        assert!(error(|s| s.pools = vec![pool("10.0.0.0/8", 19)]).contains("/20 to /32"));
        assert!(error(|s| s.pools.push(pool("10.0.8.0/24", 26))).contains("overlap"));
        assert!(error(|s| s.max_blocks_per_host = 2).contains("strict affinity"));
        assert!(error(|s| s.latency = "read=fast".into()).contains("fast"));
        assert!(error(|s| s.latency = "jitter=1001".into()).contains("negative"));
        assert!(error(|s| s.nodes = 1_000_000).contains("more than can be simulated"));
        assert!(error(|s| s.max_pods_per_node = 5).contains("maximum of 5"));
        assert!(error(|s| s.duration = Some(Micros::ZERO)).contains("longer than 0"));
        assert!(error(|s| s.duration = Some(Micros::from_mins(600_000))).contains("longer than a year"));
        let says = "larger than the pool fd00::/120";
        assert!(error(|s| s.pools = vec![pool("fd00::/120", 116)]).contains(says));
    }

    #[test]
    fn an_event_names_a_node_that_is_there_and_comes_in_time() {
        let fails = |at: Micros, name: &str| Some(Planned { at, what: Event::FailNode(name.to_owned()) });
        for name in ["node-0", "node-101", "node-01", "other"] {
            assert!(error(|s| s.event = fails(Micros::ZERO, name)).contains(name));
        }
        let after_end = error(|s| {
            s.duration = Some(Micros::from_secs(5));
            s.event = fails(Micros::from_secs(6), "node-1");
        });
        assert!(after_end.contains("after the end"), "{after_end}");
    }
}
