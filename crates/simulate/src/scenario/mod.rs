//! The scenario of a simulation: a cluster, its pods, an event, and the datastore's costs.

mod check;
mod event;
mod rate;
mod start;

use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_model::config::IpamConfig;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::DatastoreKind;
use serde::Serialize;

pub use self::event::{Event, Planned};
pub use self::rate::{NotARate, Rate};
pub use self::start::{Start, StartPod};
use crate::datastore::Costs;
use crate::error::Result;
use crate::time::Micros;

/// The cluster and the load that are simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scenario {
    /// The seed of all random numbers.
    pub seed: u64,
    pub datastore: DatastoreKind,
    /// Differences from the datastore's assumed costs, such as `read=2ms,write=5ms`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub latency: String,
    pub nodes: u32,
    /// Number of pods that arrive for each node.
    pub pods_per_node: u32,
    /// The largest deviation of a node's number of pods from the average, in percent. Schedulers do not place pods
    /// evenly.
    pub pod_spread: u32,
    /// The pod limit of a node, which a node can reach when other nodes fail.
    pub max_pods_per_node: u32,
    pub pools: Vec<PoolSpec>,
    /// The families in which a pod gets addresses, as in the CNI configuration; by default those of the pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub families: Option<Families>,
    pub strict_affinity: bool,
    /// The block limit of a node; if 0, that of `start`, or Calico's default of 20.
    pub max_blocks_per_host: u32,
    /// The time until a released address can be assigned again; if zero, that of `start`.
    pub cooldown: Micros,
    /// The rate at which pods arrive in the cluster; by default one every five seconds for each node, and at most 100
    /// per second in total.
    pub arrival: Option<Rate>,
    /// The average lifetime of a pod, by default unlimited. Each pod that leaves is replaced.
    pub lifetime: Option<Micros>,
    /// The duration of the simulation. By default, it ends two minutes after the last pod has arrived, or later if an
    /// event still has effects or waiting pods are still starting.
    pub duration: Option<Micros>,
    /// The time from a node's failure until it is removed from the cluster; `None` for never.
    pub removal: Option<Micros>,
    /// The time that an address or block must be unused before the collector of kube-controllers releases it (facts
    /// 3.17); `None` for no collector.
    pub grace: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<Planned>,
    /// The cluster with which the simulation begins. Its nodes replace `nodes`.
    #[serde(skip)]
    pub start: Option<Arc<Start>>,
}

/// The families in which a pod gets addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Families {
    Ipv4,
    Ipv6,
    Dual,
}

/// A pool for all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpec {
    pub cidr: IpNet,
    /// The prefix length of its blocks.
    pub block_size: u8,
}

/// The default grace period of the collector.
pub(crate) const GRACE: Micros = Micros::from_mins(15);
/// The time until the control plane notices that a node has failed.
pub(crate) const DETECTION: Micros = Micros::from_secs(40);
/// The time after [`DETECTION`] until the pods of the node are replaced.
pub(crate) const EVICTION: Micros = Micros::from_mins(5);
/// The default limit on the number of pods that arrive in five seconds: about as many as a large cluster's scheduler
/// places.
const MOST_ARRIVALS: u32 = 500;
/// The default pod limit of a node, as in Kubernetes.
const MAX_PODS: u32 = 110;

impl Default for Scenario {
    /// The scenario without any options.
    fn default() -> Self {
        Self {
            seed: 1,
            datastore: DatastoreKind::Etcd,
            latency: String::new(),
            nodes: 100,
            pods_per_node: 30,
            pod_spread: 0,
            max_pods_per_node: MAX_PODS,
            pools: Vec::new(),
            families: None,
            strict_affinity: false,
            max_blocks_per_host: 0,
            cooldown: Micros::ZERO,
            arrival: None,
            lifetime: None,
            duration: None,
            removal: None,
            grace: Some(GRACE),
            event: None,
            start: None,
        }
    }
}

impl Scenario {
    pub fn costs(&self) -> Result<Costs> {
        Costs::from_text(self.datastore, &self.latency)
    }

    pub fn node_count(&self) -> u32 {
        match &self.start {
            Some(start) => u32::try_from(start.nodes.len()).unwrap_or(u32::MAX),
            None => self.nodes,
        }
    }

    /// The name of a node, by its index from 0.
    pub fn node_name(&self, index: u32) -> String {
        let Some(start) = &self.start else {
            return format!("node-{}", index + 1);
        };
        match start.nodes.get(index as usize) {
            Some(node) => node.name.clone(),
            None => String::new(),
        }
    }

    /// The number of pods that arrive.
    pub fn pod_count(&self) -> u64 {
        u64::from(self.node_count()) * u64::from(self.pods_per_node)
    }

    /// The rate at which pods arrive.
    pub fn arrival(&self) -> Rate {
        let nodes = self.node_count().clamp(1, MOST_ARRIVALS);
        self.arrival
            .unwrap_or_else(|| Rate::per(nodes.into(), Micros::from_secs(5)))
    }

    /// The time at which the last pod is expected to have arrived.
    pub fn filled_at(&self) -> Micros {
        self.arrival().time_for(self.pod_count())
    }

    /// Returns the end of the simulation: the scenario's duration or, without one, some time after all pods have
    /// arrived and the effects of an event have ended.
    pub fn end(&self) -> Micros {
        if let Some(duration) = self.duration {
            return duration;
        }
        let settled_at = self.filled_at() + Micros::from_mins(2);
        match &self.event {
            Some(planned) => settled_at.max(planned.at + self.recovery()),
            None => settled_at,
        }
    }

    /// Returns the time after which a failed node usually has no more effects: its pods are evicted, it is removed, and
    /// the collector has run.
    fn recovery(&self) -> Micros {
        let removal = self.removal.unwrap_or_default();
        let collection = match self.grace {
            // Two runs of the collector after the grace period, and time for its work.
            Some(grace) => grace + interval(grace) * 2 + Micros::from_mins(5),
            // Without a collector, only the pods have to start again on other nodes.
            None => Micros::from_mins(30),
        };
        (DETECTION + EVICTION).max(removal) + collection
    }

    /// Returns the pools as the allocator sees them: those of the cluster with which the scenario begins, and then
    /// those of the scenario itself.
    pub fn pools(&self) -> Vec<Pool> {
        let mut pools = Vec::new();
        if let Some(start) = &self.start {
            pools.extend_from_slice(&start.pools);
        }
        for (index, spec) in self.pools.iter().enumerate() {
            pools.push(spec.pool(index));
        }
        pools
    }

    /// Returns the pools from which pods get addresses without requesting a pool, in the families that pods want.
    pub fn pools_for_pods(&self) -> impl Iterator<Item = Pool> {
        let families = self.families.unwrap_or(Families::Dual);
        let is_wanted = move |cidr: IpNet| match families {
            Families::Ipv4 => cidr::is_v4(cidr),
            Families::Ipv6 => !cidr::is_v4(cidr),
            Families::Dual => true,
        };
        let is_for_pods = move |pool: &Pool| {
            pool.is_enabled() && pool.automatic && pool.allows(PoolUse::Workload) && is_wanted(pool.cidr)
        };
        self.pools().into_iter().filter(is_for_pods)
    }

    /// Returns the configuration of the allocator: that of the cluster with which the scenario begins, with the
    /// scenario's own settings. `None` if that is Calico's default, which a cluster has without a configuration.
    pub fn config(&self) -> Option<IpamConfig> {
        let existing = self.start.as_ref().and_then(|start| start.config);
        let mut config = existing.unwrap_or_default();
        config.strict_affinity |= self.strict_affinity;
        if self.max_blocks_per_host > 0 {
            config.max_blocks_per_host = self.max_blocks_per_host.into();
        }
        if !self.cooldown.is_zero() {
            config.cooldown_seconds = i64::try_from(self.cooldown.0 / 1_000_000).unwrap_or(i64::MAX);
        }
        if existing.is_none() && config == IpamConfig::default() {
            return None;
        }
        Some(config)
    }

    /// The scenario with the same nodes, pools, reservations and configuration, but without blocks and event. In
    /// addition to the scenario's own pods, as many pods arrive as the cluster had. A scenario that does not begin with
    /// an existing cluster is returned unchanged.
    pub fn afresh(&self) -> Self {
        let Some(start) = &self.start else {
            return self.clone();
        };
        let running = u32::try_from(start.pods.len()).unwrap_or(u32::MAX);
        let running_per_node = running.div_ceil(self.node_count().max(1));
        let pods_per_node = running_per_node.saturating_add(self.pods_per_node).max(1);
        Self {
            pods_per_node,
            max_pods_per_node: self.max_pods_per_node.max(pods_per_node),
            event: None,
            start: Some(Arc::new(start.without_blocks())),
            ..self.clone()
        }
    }

    /// The scenario with another block size in all pools of the family that can have such blocks. If no pool can, the
    /// block size of all the family's pools is changed.
    pub fn with_block_size(&self, size: u8) -> Self {
        // A prefix length of at most 32 is for IPv4.
        let is_of_family = |cidr: IpNet| cidr::is_v4(cidr) == (size <= 32);
        let can_have_blocks = |cidr: IpNet| is_of_family(cidr) && cidr.prefix_len() <= size;
        let some_can = self.pools().iter().any(|pool| can_have_blocks(pool.cidr));
        let is_changed = |cidr: IpNet| {
            if some_can {
                can_have_blocks(cidr)
            } else {
                is_of_family(cidr)
            }
        };

        let mut changed = self.clone();
        for pool in &mut changed.pools {
            if is_changed(pool.cidr) {
                pool.block_size = size;
            }
        }
        if let Some(start) = &mut changed.start {
            for pool in &mut Arc::make_mut(start).pools {
                if is_changed(pool.cidr) {
                    pool.block_size = size;
                }
            }
        }
        changed
    }
}

/// Returns the interval between runs of a collector with a grace period: half of it, as in kube-controllers, or five
/// minutes without one.
pub(crate) fn interval(grace: Micros) -> Micros {
    let half = Micros(grace.0 / 2);
    if half.is_zero() {
        Micros::from_mins(5)
    } else {
        half
    }
}

impl PoolSpec {
    /// A pool with blocks of Calico's default size.
    pub fn new(cidr: IpNet) -> Self {
        Self {
            cidr,
            block_size: if cidr::is_v4(cidr) { 26 } else { 122 },
        }
    }

    /// Returns the pool as the allocator sees it. `index` numbers its name.
    fn pool(&self, index: usize) -> Pool {
        Pool {
            name: format!("pool-{}", index + 1),
            cidr: self.cidr.trunc(),
            spelling: None,
            block_size: self.block_size,
            disabled: false,
            deleting: false,
            not_allocatable: None,
            node_selector: "all()".to_owned(),
            namespace_selector: String::new(),
            allowed_uses: vec![PoolUse::Workload, PoolUse::Tunnel],
            automatic: true,
            ipip: false,
            vxlan: false,
            created: None,
            temporary_for: None,
        }
    }
}
