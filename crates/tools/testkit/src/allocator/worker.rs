//! One worker of a churn.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use anyhow::Result;
use calipam_assign::{Allocator, AssignIp, AutoAssign, Error, InUse, Query, Record, Store as _};
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::block::Block;
use calipam_model::cidr::address_at;
use calipam_model::key::Key;
use calipam_model::parallel::lock;
use calipam_model::pool::PoolUse;
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};

use super::churn::{Churn, ChurnLog};
use super::ledger::{Tenant, inspect};
use super::store::{PausingStore, Target, find};
use super::users::{Ending, Users};
use crate::cluster::rng::Rng;
use crate::cluster::{ClusterSpec, Holder, PodName, pod_name};
use crate::operator::claim_affinity;
use crate::runtime::RUNTIME;

/// The number of the first pod of all workers, so that names never clash with those of a generated cluster.
const FIRST_POD: u64 = 10_000_000;
/// Size of the range of pod numbers that each worker uses.
const PODS: u64 = 10_000;
/// Size of the range of pod numbers for each seed, and the number of seeds.
const PODS_OF_SEED: u64 = 100_000;
const SEEDS: u64 = 40;
/// Number of spare blocks that workers claim.
const SPARE_BLOCKS: u64 = 200;
/// Maximum number of blocks on a node: Calico's default.
const BLOCKS_PER_NODE: usize = 20;
/// The age, in seconds, that a pod records at least for its addresses when they are assigned. It exceeds the grace
/// period of checks, so that the grace period does not protect half-done operations.
const MIN_AGE: u64 = 3600;
/// Number of blocks that a borrower tries before it uses a block of its own node.
const ATTEMPTS: usize = 5;

/// The state that all workers share.
pub(super) struct Shared {
    /// The shape of the cluster.
    pub spec: ClusterSpec,
    nodes: Vec<Node>,
    /// Held while a block is released. If two workers released the same block, one could delete it after its node has
    /// made the affinity usable again. The node's next pod would then find an affinity without a block.
    giving_up: Mutex<()>,
    /// The operations of all workers, and the owner of each address.
    pub log: Mutex<ChurnLog>,
}

struct Node {
    name: String,
    /// A substitute for the lock file that Calico's IPAM plugin holds on its node while it assigns or releases.
    /// Releasing a block does not take the lock, since other nodes and kube-controllers also release blocks.
    plugin: Mutex<()>,
}

impl Shared {
    pub(super) fn new(spec: ClusterSpec, nodes: &[String]) -> Self {
        let nodes = nodes.iter().map(|name| Node {
            name: name.clone(),
            plugin: Mutex::default(),
        });
        Self {
            spec,
            nodes: nodes.collect(),
            giving_up: Mutex::default(),
            log: Mutex::default(),
        }
    }

    fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

pub(super) struct Worker<'w> {
    allocator: Allocator<PausingStore>,
    users: Users<'w>,
    rng: Rng,
    churn: &'w Churn,
    shared: &'w Shared,
    number: usize,
    node: &'w Node,
    next_pod: u64,
    /// Pods that this worker has started and not stopped.
    pods: Vec<Holder>,
}

impl<'w> Worker<'w> {
    /// Creates a worker and connects it to the datastore. Must not be called from within an async runtime.
    pub(super) fn connect(
        target: Target<'w>,
        churn: &'w Churn,
        shared: &'w Shared,
        number: usize,
    ) -> Result<Self> {
        let rng = Rng::of(churn.seed, number as u64);
        let store = PausingStore::new(RUNTIME.block_on(target.connect())?, rng.clone(), churn.pause);
        let users = RUNTIME.block_on(Users::connect(target, shared.spec))?;
        let node = &shared.nodes[number % shared.nodes.len()];
        let next_pod = FIRST_POD + churn.seed % SEEDS * PODS_OF_SEED + number as u64 * PODS;
        let allocator = Allocator::new(store);
        let pods = Vec::new();
        Ok(Self {
            allocator,
            users,
            rng,
            churn,
            shared,
            number,
            node,
            next_pod,
            pods,
        })
    }

    /// Works until this worker has done its share and all workers have done enough, or until `end`.
    pub(super) fn run(mut self, end: Instant) -> Result<()> {
        let churn = self.churn;
        for operation in 0.. {
            let is_over = operation >= churn.operations || churn.activity.is_stopped();
            let begin = Instant::now();
            if begin > end || is_over && (churn.enough)(&self.log()) {
                break;
            }

            let _operation = churn.activity.begin(self.number, begin);
            let done = match self.kind() {
                0..=8 => self.start(false),
                9 => self.start(true),
                10..=18 => self.stop(),
                _ if self.rng.below(2) == 0 => self.claim(),
                _ => self.release(),
            };
            done.inspect_err(|error| churn.activity.fail(error))?;
        }
        self.log().writes += self.allocator.store().writes.get();
        Ok(())
    }

    /// Picks the kind of the next operation. A worker with a target number of pods stops none before it has that many.
    fn kind(&mut self) -> u64 {
        match (self.rng.below(20), self.pods.len(), self.churn.pods) {
            (kind @ 10..=18, there, kept) if there < kept => kind - 10,
            (kind @ 0..=8, there, kept) if there > kept && kept > 0 => kind + 10,
            (kind, ..) => kind,
        }
    }

    /// The log of all workers so far.
    fn log(&self) -> MutexGuard<'w, ChurnLog> {
        lock(&self.shared.log)
    }

    /// Reads one record, if it exists.
    fn find<T>(&self, key: Key) -> Result<Option<T>>
    where
        Option<T>: From<Record>,
    {
        Ok(RUNTIME.block_on(find(self.allocator.store(), key))?)
    }

    /// Runs CNI ADD, with an address from a block of the worker's node or, if `borrowed` is true, of another node.
    fn start(&mut self, borrowed: bool) -> Result<()> {
        let holder = self.holder();
        self.users.announce(&holder)?;
        self.give_address(holder, borrowed)
    }

    fn give_address(&mut self, holder: Holder, borrowed: bool) -> Result<()> {
        let Some((address, block)) = self.assign(&holder, borrowed)? else {
            return self.users.clean_up(&holder, Ending::Lost);
        };
        let pod = format!("{}/{}", holder.name.namespace, holder.name.pod);
        self.log().ledger.give(Tenant {
            pod,
            handle: holder.handle(),
            address,
            block,
        });
        RUNTIME.block_on(self.users.publish(&holder, address))?;
        self.pods.push(holder);
        self.log().started += 1;
        Ok(())
    }

    fn assign(&mut self, holder: &Holder, borrowed: bool) -> Result<Option<(IpAddr, IpNet)>> {
        let _plugin = lock(&self.node.plugin);
        if borrowed && let Some(found) = self.borrow(holder)? {
            return Ok(Some(found));
        }
        let request = AutoAssign {
            host: holder.node.clone(),
            v4: 1,
            handle: Some(holder.handle()),
            attributes: holder.attribute().owner,
            intended_use: Some(PoolUse::Workload),
            ..AutoAssign::default()
        };
        let assigned = match RUNTIME.block_on(self.allocator.auto_assign(&request)) {
            Ok(assigned) => assigned,
            // The node has the maximum number of blocks, and all are full.
            Err(partly) if matches!(partly.error, Error::BlockLimit) => return Ok(None),
            Err(partly) => return Err(partly.error.into()),
        };
        let net = assigned.v4.and_then(|v4| v4.addresses.first().copied());
        Ok(net.map(|net| (net.addr(), net.trunc())))
    }

    /// Assigns an address from a block of another node.
    fn borrow(&mut self, holder: &Holder) -> Result<Option<(IpAddr, IpNet)>> {
        let mut others = self.affinities()?;
        others.retain(|key| key.node != self.node.name);
        for _ in 0..ATTEMPTS.min(others.len()) {
            let net = self.rng.pick(&others).cidr;
            let Some(block) = self.find::<Block>(Key::Block(net))? else {
                continue;
            };
            let Some(free) = block.free().first() else {
                continue;
            };
            let address = address_at(net, *free);
            let request = AssignIp {
                handle: Some(holder.handle()),
                attributes: holder.attribute().owner,
                intended_use: Some(PoolUse::Workload),
                ..AssignIp::new(holder.node.clone(), address)
            };
            match RUNTIME.block_on(self.allocator.assign_ip(&request)) {
                Ok(()) => return Ok(Some((address, net))),
                // Another pod was assigned the address first, or the pool was disabled.
                Err(Error::AlreadyAssigned(_) | Error::AddressOutsidePools(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// The affinities of all nodes for IPv4 blocks.
    fn affinities(&self) -> Result<Vec<AffinityKey>> {
        let found = RUNTIME.block_on(self.allocator.store().read(&[Query::HostAffinities]))?;
        let keys = found
            .into_iter()
            .flatten()
            .filter_map(|entry| match entry.record.key() {
                Key::Affinity(key) if key.cidr.addr().is_ipv4() => Some(key),
                _ => None,
            });
        Ok(keys.collect())
    }

    fn holder(&mut self) -> Holder {
        let name = pod_name(self.next_pod);
        self.next_pod += 1;
        self.in_sandbox(name)
    }

    /// A pod in a new sandbox.
    fn in_sandbox(&mut self, name: PodName) -> Holder {
        let age = MIN_AGE + self.rng.below(MIN_AGE);
        let container = self.rng.hex(64);
        let since = Timestamp::now() - SignedDuration::from_secs(age as i64);
        Holder {
            name,
            node: self.node.name.clone(),
            container,
            since,
        }
    }

    /// Ends a pod in a random way.
    fn stop(&mut self) -> Result<()> {
        if self.pods.is_empty() {
            return Ok(());
        }
        // If the worker has a target number of pods, the oldest one ends, as in a rollout.
        let number = if self.churn.pods > 0 {
            1
        } else {
            self.pods.len() as u64
        };
        let place = self.rng.below(number) as usize;
        let holder = self.pods.remove(place);
        let lost = self.rng.below(1000) < self.churn.leaks;
        let ending = match self.rng.below(5) {
            _ if lost => Ending::Lost,
            0 => Ending::Finished,
            1 => Ending::Evicted,
            2 => Ending::Restarted,
            _ => Ending::Deleted,
        };
        self.log().count(ending);
        self.end(&holder, ending)?;
        if ending == Ending::Restarted {
            let holder = self.in_sandbox(holder.name);
            self.give_address(holder, false)?;
        }
        Ok(())
    }

    fn end(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        let handle = holder.handle();
        let tenant = self.log().ledger.tenant(&handle);
        if let Some(tenant) = tenant {
            let violations = RUNTIME.block_on(inspect(self.allocator.store(), &tenant))?;
            self.log().ledger.add_violations(violations);
        }
        if ending == Ending::Lost {
            self.log().ledger.leak(&handle);
            return RUNTIME.block_on(self.users.withdraw(holder, ending));
        }
        // From here on, any client may free the address, since no pod uses it.
        self.log().ledger.end(&handle);
        RUNTIME.block_on(self.users.withdraw(holder, ending))?;
        {
            let _plugin = lock(&self.node.plugin);
            match RUNTIME.block_on(self.allocator.release_by_handle(&handle)) {
                // A repair may have freed the address already, since no pod uses it.
                Ok(()) | Err(Error::NoHandle(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.users.clean_up(holder, ending)
    }

    /// Claims an unused block, as an operator does.
    fn claim(&mut self) -> Result<()> {
        let _plugin = lock(&self.node.plugin);
        let own = self
            .affinities()?
            .into_iter()
            .filter(|key| key.node == self.node.name);
        if own.count() >= BLOCKS_PER_NODE {
            return Ok(());
        }
        let number = self.rng.below(SPARE_BLOCKS) as u32;
        let net = self.shared.spec.spare_block_v4(number);
        if self.find::<Block>(Key::Block(net))?.is_none() && self.claim_for(&self.node.name, net)? {
            self.log().claimed += 1;
        }
        Ok(())
    }

    /// Claims a block for a node, or makes the node's affinity usable again. Returns false if another node owns the
    /// block.
    fn claim_for(&self, node: &str, net: IpNet) -> Result<bool> {
        match RUNTIME.block_on(claim_affinity(&self.allocator, net, AffinityType::Host, node)) {
            Ok(claimed) => Ok(!claimed.claimed.is_empty()),
            // The pool was disabled, or has larger blocks now.
            Err(partly) if matches!(partly.error, Error::CidrOutsidePools(_) | Error::CidrTooSmall(_)) => {
                Ok(false)
            }
            Err(partly) => Err(partly.error.into()),
        }
    }

    /// Releases an empty block of the worker's node, or of another node, as a node without a free block does.
    fn release(&mut self) -> Result<()> {
        let mut affinities = self.affinities()?;
        if self.rng.below(2) == 0 {
            affinities.retain(|key| key.node == self.node.name);
        }
        if affinities.is_empty() {
            return Ok(());
        }
        let begin = self.rng.below(affinities.len() as u64) as usize;
        affinities.rotate_left(begin);
        for key in affinities {
            let Some(owner) = self.shared.node(&key.node) else {
                continue;
            };
            let block: Option<Block> = self.find(Key::Block(key.cidr))?;
            if block.is_some_and(|block| block.is_empty()) {
                return self.release_block(owner, key);
            }
        }
        Ok(())
    }

    fn release_block(&mut self, owner: &Node, key: AffinityKey) -> Result<()> {
        let _giving_up = lock(&self.shared.giving_up);
        match RUNTIME.block_on(
            self.allocator
                .release_affinity(key.cidr, &owner.name, InUse::Refuse),
        ) {
            Ok(()) => self.log().released += 1,
            Err(Error::CidrOutsidePools(_)) => {}
            Err(Error::NotEmpty(_)) => {
                // A pod started after the affinity was marked. The node would find the mark at its next assignment, but
                // there may be none, so confirm the affinity here.
                let _plugin = lock(&owner.plugin);
                let found: Option<Affinity> = self.find(Key::Affinity(key.clone()))?;
                if found.is_some_and(|affinity| affinity.state == AffinityState::PendingDeletion) {
                    self.claim_for(&owner.name, key.cidr)?;
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
