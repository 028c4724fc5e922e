//! Checks whether a scenario can be simulated.

use calipam_model::IpNet;
use calipam_model::cidr;

use super::Scenario;
use crate::error::{Result, ScenarioError};
use crate::time::Micros;

/// The largest number of nodes. Larger simulations would exceed a usual machine's memory.
const MOST_NODES: u32 = 50_000;
/// The largest number of pods, for the same reason.
const MOST_PODS: u64 = 5_000_000;
/// The longest simulation.
const LONGEST: Micros = Micros::from_mins(366 * 24 * 60);

/// The most thousandths of itself by which a latency can vary without becoming negative.
const MOST_JITTER_PERMILLE: u64 = 1_000;

/// The hint for a size of blocks that does not suit a pool.
const BLOCK_SIZE: &str = "`--block-size` is a prefix length: 26 for blocks of 64 addresses";

impl Scenario {
    /// Refuses a scenario that no cluster can have, or that is too large to simulate. A pool that is too small for the
    /// blocks of all nodes is allowed: simulations show its effects.
    pub fn check(&self) -> Result<()> {
        let jitter = self.costs()?.jitter_permille;
        if jitter > MOST_JITTER_PERMILLE {
            let message =
                format!("a latency that varies by {jitter} thousandths could be negative: at most 1000");
            return Err(ScenarioError::of_costs(message));
        }
        self.check_pools()?;
        self.check_size()?;
        self.check_times()
    }

    /// Checks that there is a pool for pods, that pools do not overlap and can have their blocks, and that a limit on
    /// blocks comes with strict affinity.
    fn check_pools(&self) -> Result<()> {
        if self.pools_for_pods().next().is_none() {
            let error = ScenarioError::new("there is no pool, so no pod can get an address");
            return Err(error.hint("add one: `--pool 10.244.0.0/16`"));
        }

        // Only the scenario's own pools are checked: those of an existing cluster are as they are.
        let existing_pools = self.start.iter().flat_map(|start| &start.pools);
        let existing_cidrs: Vec<IpNet> = existing_pools.map(|pool| pool.cidr).collect();
        let mut earlier: Vec<IpNet> = Vec::new();
        for spec in &self.pools {
            let pool = spec.cidr.trunc();
            check_block_size(pool, spec.block_size)?;
            let mut others = earlier.iter().chain(&existing_cidrs);
            if let Some(other) = others.find(|other| cidr::overlap(**other, pool)) {
                return Err(ScenarioError::new(format!(
                    "the pools {other} and {pool} overlap"
                )));
            }
            earlier.push(pool);
        }

        let has_strict_affinity = self.config().is_some_and(|config| config.strict_affinity);
        if self.max_blocks_per_host > 0 && !has_strict_affinity {
            let message = "a limit on blocks per node needs strict affinity, as in Calico";
            return Err(ScenarioError::new(message).hint("add `--strict-affinity`"));
        }
        Ok(())
    }

    /// Checks that there are nodes and pods, and not too many of them.
    fn check_size(&self) -> Result<()> {
        let nodes = self.node_count();
        if nodes == 0 {
            return Err(ScenarioError::new("there is no node"));
        }

        let Self {
            pods_per_node,
            max_pods_per_node,
            ..
        } = self;
        if pods_per_node > max_pods_per_node {
            let message = format!(
                "{pods_per_node} pods on each node are more than a node's maximum of {max_pods_per_node}"
            );
            return Err(ScenarioError::new(message).hint("`--max-pods-per-node` raises it"));
        }

        // With the pods that the cluster already has.
        let mut pods = self.pod_count();
        if let Some(start) = &self.start {
            pods += start.pods.len() as u64;
        }
        if pods == 0 {
            return Err(ScenarioError::new("there are no pods: each node gets 0"));
        }
        if nodes > MOST_NODES || pods > MOST_PODS {
            return Err(ScenarioError::new(format!(
                "{nodes} nodes with {pods} pods are more than can be simulated: at most {MOST_NODES} and {MOST_PODS}"
            )));
        }
        Ok(())
    }

    /// Checks the duration, and the time and node of the event.
    fn check_times(&self) -> Result<()> {
        let end = self.end();
        if end.is_zero() {
            return Err(ScenarioError::new(
                "the duration of a simulation must be longer than 0",
            ));
        }
        if end > LONGEST {
            return Err(ScenarioError::new(format!(
                "a simulation of {end} is longer than a year"
            )));
        }
        let Some(planned) = &self.event else { return Ok(()) };
        if planned.at > end {
            let message = format!("an event at {} comes after the end at {end}", planned.at);
            return Err(ScenarioError::new(message));
        }
        if let Some(name) = planned.what.node()
            && self.node_index(name).is_none()
        {
            return Err(ScenarioError::new(format!("node {name} not found")));
        }
        Ok(())
    }

    /// Returns the index of a node by its name; `None` if there is no such node.
    pub(crate) fn node_index(&self, name: &str) -> Option<u32> {
        if let Some(start) = &self.start {
            let index = start.nodes.iter().position(|node| node.name == name)?;
            return Some(index as u32);
        }
        let number: u32 = name.strip_prefix("node-")?.parse().ok()?;
        let index = number.checked_sub(1)?;
        // `node-01` is not the name of a node.
        if index < self.nodes && self.node_name(index) == name {
            Some(index)
        } else {
            None
        }
    }
}

/// Refuses a block size, as a prefix length, that Calico does not allow, or of blocks that are larger than their pool.
fn check_block_size(pool: IpNet, block_size: u8) -> Result<()> {
    let allowed = if cidr::is_v4(pool) {
        cidr::BLOCK_PREFIXES_V4
    } else {
        cidr::BLOCK_PREFIXES_V6
    };
    if !allowed.contains(&block_size) {
        let shortest = allowed.start();
        let longest = allowed.end();
        let message = format!(
            "the pool {pool} cannot have blocks of /{block_size}: Calico allows /{shortest} to /{longest}"
        );
        return Err(ScenarioError::new(message).hint(BLOCK_SIZE));
    }
    if block_size < pool.prefix_len() {
        let message = format!("a block of /{block_size} is larger than the pool {pool}");
        return Err(ScenarioError::new(message).hint(BLOCK_SIZE));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Event, Planned, PoolSpec};

    fn sound() -> Scenario {
        Scenario {
            pools: vec![PoolSpec::new("10.0.0.0/16".parse().unwrap())],
            ..Scenario::default()
        }
    }

    fn error(change: impl FnOnce(&mut Scenario)) -> String {
        let mut scenario = sound();
        change(&mut scenario);
        scenario.check().unwrap_err().to_string()
    }

    #[test]
    fn impossible_clusters_are_refused() {
        assert_eq!(sound().check(), Ok(()));
        let pool = |cidr: &str, block_size: u8| PoolSpec {
            cidr: cidr.parse().unwrap(),
            block_size,
        };
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
        let fails = |at: Micros, name: &str| {
            Some(Planned {
                at,
                what: Event::FailNode(name.to_owned()),
            })
        };
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
