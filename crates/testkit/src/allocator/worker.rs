//! One worker of a churn.

use std::sync::Mutex;
use std::time::Instant;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};

use super::affinity::Release;
use super::churn::{Churn, ChurnLog, lock};
use super::ledger::{Ledger, Tenant, inspect};
use super::store::{Ending, Result, Store};
use super::{affinity, pod};
use crate::cluster::rng::Rng;
use crate::cluster::{ClusterSpec, Holder, PodName, pod_name};

/// Pods of workers have numbers from here on, so that no two have one name.
const FIRST_POD: u64 = 10_000_000;
/// Numbers of pods that one worker has for itself.
const PODS: u64 = 10_000;
/// Numbers of pods that the workers of one seed have, and seeds that have some.
const PODS_OF_SEED: u64 = 100_000;
const SEEDS: u64 = 40;
/// Spare blocks among which workers claim.
const SPARE_BLOCKS: u64 = 200;
/// Most blocks of a node: Calico's default.
const BLOCKS_PER_NODE: usize = 20;
/// How often a worker looks for an address before a pod has to go without.
const ATTEMPTS: usize = 5;

/// What all workers share.
pub struct Shared {
    /// The shape of the cluster.
    pub spec: ClusterSpec,
    nodes: Vec<Node>,
    /// Who has which address.
    pub ledger: Mutex<Ledger>,
}

struct Node {
    name: String,
    /// As the lock file that Calico's IPAM plugin holds on its node for as long as it assigns or releases. Giving
    /// up a block does not take it: other nodes and kube-controllers do that, too.
    plugin: Mutex<()>,
}

impl Shared {
    /// Nodes of a cluster, and no pod with an address.
    pub fn new(spec: ClusterSpec, nodes: &[String]) -> Self {
        let nodes = nodes.iter().map(|name| Node { name: name.clone(), plugin: Mutex::default() });
        Self { spec, nodes: nodes.collect(), ledger: Mutex::default() }
    }

    fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

pub struct Worker<'w> {
    store: Store,
    churn: &'w Churn,
    shared: &'w Shared,
    number: usize,
    node: &'w Node,
    next_pod: u64,
    /// Pods that it started and has not stopped.
    pods: Vec<Holder>,
    /// The block of its last address, which it looks at first: others may be full.
    roomy: Option<IpNet>,
    log: ChurnLog,
}

impl<'w> Worker<'w> {
    /// The worker with a number.
    pub fn new(store: Store, churn: &'w Churn, shared: &'w Shared, number: usize) -> Self {
        let node = &shared.nodes[number % shared.nodes.len()];
        let next_pod = FIRST_POD + churn.seed % SEEDS * PODS_OF_SEED + number as u64 * PODS;
        let (pods, log) = (Vec::new(), ChurnLog::default());
        Self { store, churn, shared, number, node, next_pod, pods, roomy: None, log }
    }

    /// Works until it has done enough, or until `end`.
    pub fn run(mut self, end: Instant) -> Result<ChurnLog> {
        for _ in 0..self.churn.operations {
            let begin = Instant::now();
            if begin > end || self.churn.activity.is_stopped() {
                break;
            }

            let churn = self.churn;
            let _operation = churn.activity.begin(self.number, begin);
            match self.rng().below(20) {
                0..=8 => self.start(false)?,
                9 => self.start(true)?,
                10..=18 => self.stop()?,
                _ if self.rng().below(2) == 0 => drop(self.claim()?),
                _ => self.release()?,
            }
            self.log.longest = self.log.longest.max(begin.elapsed());
        }
        self.log.writes = self.store.writes;
        self.log.conflicts = self.store.conflicts;
        Ok(self.log)
    }

    fn rng(&mut self) -> &mut Rng {
        &mut self.store.rng
    }

    /// CNI ADD, from an own block or, where `borrowed`, from one of another node.
    fn start(&mut self, borrowed: bool) -> Result<()> {
        let holder = self.holder();
        self.store.others().announce(&holder)?;
        self.give_address(holder, borrowed)
    }

    fn give_address(&mut self, holder: Holder, borrowed: bool) -> Result<()> {
        let Some((address, block)) = self.assign(&holder, borrowed)? else {
            return self.store.others().bury(&holder, Ending::Lost);
        };
        let pod = format!("{}/{}", holder.name.namespace, holder.name.pod);
        let (node, handle) = (holder.node.clone(), holder.handle());
        lock(&self.shared.ledger).give(Tenant { pod, node, handle, address, block });
        self.store.others().publish(&holder, address)?;
        self.pods.push(holder);
        self.log.started += 1;
        Ok(())
    }

    fn assign(&mut self, holder: &Holder, borrowed: bool) -> Result<Option<(std::net::IpAddr, IpNet)>> {
        let _plugin = lock(&self.node.plugin);
        for attempt in 0..ATTEMPTS {
            // Where the own blocks are full and there may be no more, it borrows.
            let lender = if borrowed || attempt > 1 { self.lender()? } else { None };
            let from = lender.as_deref().unwrap_or(&self.node.name);
            let mut nets = affinity::blocks_of_node(&mut self.store, from)?;
            nets.sort_by_key(|net| self.roomy != Some(*net));
            for net in nets {
                let own = lender.is_none().then_some(self.node.name.as_str());
                if own.is_some() && !affinity::revive(&mut self.store, &self.node.name, net)? {
                    continue;
                }
                if let Some(address) = pod::take(&mut self.store, net, holder, own)? {
                    self.roomy = Some(net);
                    return Ok(Some((address, net)));
                }
            }
            self.claim_locked()?;
        }
        Ok(None)
    }

    /// Another node that has blocks.
    fn lender(&mut self) -> Result<Option<String>> {
        let mut others = self.store.others().affinities(None)?;
        others.retain(|(node, _)| *node != self.node.name);
        Ok((!others.is_empty()).then(|| self.rng().pick(&others).0.clone()))
    }

    fn holder(&mut self) -> Holder {
        let name = pod_name(self.next_pod);
        self.next_pod += 1;
        self.in_sandbox(name)
    }

    /// A pod in a new sandbox.
    fn in_sandbox(&mut self, name: PodName) -> Holder {
        let ages = self.churn.ages.clone();
        let age = ages.start + self.rng().below(ages.end.saturating_sub(ages.start).max(1));
        let container = self.rng().hex(64);
        let since = Timestamp::now() - SignedDuration::from_secs(age as i64);
        Holder { name, node: self.node.name.clone(), container, since }
    }

    /// A pod ends in one way or another.
    fn stop(&mut self) -> Result<()> {
        if self.pods.is_empty() {
            return Ok(());
        }
        let number = self.pods.len() as u64;
        let place = self.rng().below(number) as usize;
        let holder = self.pods.swap_remove(place);
        let lost = self.rng().below(1000) < self.churn.leaks;
        let ending = match self.rng().below(5) {
            _ if lost => Ending::Lost,
            0 => Ending::Finished,
            1 => Ending::Evicted,
            2 => Ending::Restarted,
            _ => Ending::Deleted,
        };
        self.log.stopped += 1;
        match ending {
            Ending::Deleted => {}
            Ending::Restarted => {
                self.log.restarted += 1;
                self.end(&holder, ending)?;
                let holder = self.in_sandbox(holder.name);
                return self.give_address(holder, false);
            }
            Ending::Finished => self.log.finished += 1,
            Ending::Evicted => self.log.evicted += 1,
            Ending::Lost => self.log.lost += 1,
        }
        self.end(&holder, ending)
    }

    fn end(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        let handle = holder.handle();
        let tenant = lock(&self.shared.ledger).tenant(&handle).cloned();
        if let Some(tenant) = tenant {
            let violations = inspect(&mut self.store, &tenant)?;
            lock(&self.shared.ledger).accuse(violations);
        }
        if ending == Ending::Lost {
            lock(&self.shared.ledger).leak(&handle);
            return self.store.others().withdraw(holder, ending);
        }
        // From here on any client may free the address: no pod uses it.
        lock(&self.shared.ledger).end(&handle);
        self.store.others().withdraw(holder, ending)?;
        {
            let _plugin = lock(&self.node.plugin);
            pod::release(&mut self.store, &handle)?;
        }
        self.store.others().bury(holder, ending)
    }

    fn claim(&mut self) -> Result<bool> {
        let _plugin = lock(&self.node.plugin);
        self.claim_locked()
    }

    fn claim_locked(&mut self) -> Result<bool> {
        if affinity::blocks_of_node(&mut self.store, &self.node.name)?.len() >= BLOCKS_PER_NODE {
            return Ok(false);
        }
        let number = self.rng().below(SPARE_BLOCKS) as u32;
        let net = self.shared.spec.spare_block_v4(number);
        let claimed = affinity::claim(&mut self.store, &self.node.name, net)?;
        self.log.claimed += u64::from(claimed);
        Ok(claimed)
    }

    /// Gives up an empty block of its own node or, as a node that finds no free block does, of another one.
    fn release(&mut self) -> Result<()> {
        let own = self.rng().below(2) == 0;
        let name = self.node.name.clone();
        let mut affinities = self.store.others().affinities(own.then_some(&name))?;
        if affinities.is_empty() {
            return Ok(());
        }
        let begin = self.rng().below(affinities.len() as u64) as usize;
        affinities.rotate_left(begin);
        for (owner, net) in affinities {
            let Some(owner) = self.shared.node(&owner) else { continue };
            match affinity::release(&mut self.store, &owner.name, net)? {
                Release::Refused => continue,
                Release::Done => self.log.released += 1,
                // The node finds the mark when it next wants an address. No pod may come any more, so that it is told.
                Release::Marked => {
                    let _plugin = lock(&owner.plugin);
                    affinity::revive(&mut self.store, &owner.name, net)?;
                }
            }
            break;
        }
        Ok(())
    }
}
