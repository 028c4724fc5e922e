//! Small worlds, and who acts in them.

mod aimed;
mod calico;
mod kubernetes;
mod migrate;
mod notes;
mod plugin;
mod repairs;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use calipam_assign::{Allocator, AutoAssign, InUse, Record};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::key::RESOURCE_PREFIX;
use calipam_model::pool::PoolUse;
use jiff::SignedDuration;
use serde_json::json;

use crate::actor::{Actor, Call, give, pod_object};
use crate::invariants::{self, repairs::CLUSTER};
use crate::world::{World, at_once, kubernetes as api_server};

/// What may go wrong in a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Requests that get no answer.
    pub answers: bool,
    /// Actors that are killed.
    pub kills: bool,
    /// The clock jumps by so many seconds.
    pub jumps: &'static [i64],
    /// What nodes keep for the next calls is torn, or out of date.
    pub notes: bool,
}

/// A small world.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// True where all schedules without faults can be followed in a few seconds. Not where two actors can undo each other's work
    /// until one has tried a hundred times.
    pub is_small: bool,
    /// Most faults of a run.
    pub faults: usize,
    /// With more faults something that is not promised may happen (`docs/safety.md`).
    most_faults: usize,
    pub kinds: Faults,
    /// Longer schedules are cut off: two actors that undo each other's work again and again go on until one has tried a hundred times.
    /// On Kubernetes, where objects are read and written one by one, what ends takes longer, and so do the phases of a migration.
    pub(crate) longest: usize,
    /// What has to hold when everyone has stopped.
    pub(crate) end: fn(&World) -> Result<(), String>,
    cluster: Cluster,
    /// What is there before.
    before: fn(&Before<'_>),
    actors: fn() -> Vec<Actor>,
}

/// What a cluster is like.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    pool: &'static str,
    strict_affinity: bool,
    /// Seconds.
    cooldown: i64,
    /// The datastore is Kubernetes, and its pods say who uses addresses.
    is_kubernetes: bool,
    /// Kubernetes gives lists in pages of so many objects; 0 for all.
    page: usize,
}

/// Two blocks of four addresses.
const TWO_BLOCKS: Cluster =
    Cluster { pool: "10.0.0.0/29", strict_affinity: false, cooldown: 0, is_kubernetes: false, page: 0 };
const ONE_BLOCK: Cluster = Cluster { pool: "10.0.0.0/30", ..TWO_BLOCKS };
const FOUR_BLOCKS: Cluster = Cluster { pool: "10.0.0.0/28", ..TWO_BLOCKS };
/// Lost answers, late writes and kills.
const ANY: Faults = Faults { answers: true, kills: true, jumps: &[], notes: false };

pub(crate) const NODES: [&str; 3] = ["a", "b", "c"];
const FIRST: &str = "10.0.0.0/30";

/// Makes what is there before anyone acts.
struct Before<'w>(&'w World);

impl Before<'_> {
    /// A pod has its address.
    fn pod(&self, node: &str, pod: &str) {
        self.served(&Call::new(node, pod));
    }

    /// A pod's call was answered.
    fn served(&self, call: &Call) {
        let allocator = Allocator::new(self.0.data());
        let request = AutoAssign {
            host: call.node.clone(),
            v4: 1,
            handle: Some(call.handle()),
            attributes: Some(call.attributes(self.0.now())),
            intended_use: Some(PoolUse::Workload),
            ..AutoAssign::default()
        };
        let assigned = at_once(allocator.auto_assign(&request)).and_then(Result::ok).unwrap_or_default();
        self.0.truth.begin(&call.handle(), &call.node);
        give(self.0, call, &assigned.addresses().collect::<Vec<_>>());
    }

    /// A block belongs to a node.
    fn block(&self, block: &str, node: &str) {
        let allocator = Allocator::new(self.0.data());
        drop(at_once(allocator.claim_affinity(cidr(block), AffinityType::Host, node)));
    }

    /// A node has begun to claim a block, which may be its own already.
    fn pending(&self, block: &str, node: &str) {
        let key = AffinityKey { kind: AffinityType::Host, node: node.to_owned(), cidr: cidr(block) };
        let record = Record::Affinity(Affinity::new(key, AffinityState::Pending));
        self.0.data().put(&record.key().to_string(), record.encode().unwrap_or_default());
    }

    /// A block that has addresses in use lost its owner.
    fn disown(&self, block: &str, node: &str) {
        let allocator = Allocator::new(self.0.data());
        drop(at_once(allocator.release_affinity(cidr(block), node, InUse::Release)));
    }

    /// A pod runs in a block of which its node has given up the affinity.
    fn pod_in_unowned(&self, node: &str, pod: &str) {
        self.pod(node, pod);
        self.disown(FIRST, node);
    }
}

/// A world with one fault at most, in which calipam's commands or others' programs write.
fn plain(
    name: &'static str,
    about: &'static str,
    cluster: Cluster,
    before: fn(&Before<'_>),
    actors: fn() -> Vec<Actor>,
) -> Scenario {
    let (kinds, end) = (ANY, invariants::repairs::at_the_end);
    Scenario {
        name,
        about,
        is_small: true,
        faults: 1,
        most_faults: usize::MAX,
        kinds,
        longest: if cluster.is_kubernetes { 160 } else { 64 },
        end,
        cluster,
        before,
        actors,
    }
}

fn cidr(text: &str) -> IpNet {
    text.parse().expect("the text of a CIDR")
}

impl Scenario {
    fn large(self) -> Self {
        Self { is_small: false, ..self }
    }

    /// The clock jumps ahead by more than what is waited for (the cooldown, and how long an empty block stays with its owner), and back
    /// by less than clocks may differ. Commands and nodes have different clocks: what a node has just recorded may look old.
    fn with_jumps(self) -> Self {
        Self { kinds: Faults { jumps: &[90, -15], ..self.kinds }, ..self }
    }

    /// What nodes keep for the next calls may be damaged.
    fn with_damaged_notes(self) -> Self {
        Self { kinds: Faults { notes: true, ..self.kinds }, ..self }
    }

    /// A DEL after a fault would take what the other call uses.
    fn without_faults(self) -> Self {
        Self { kinds: Faults { answers: false, kills: false, ..ANY }, ..self }
    }

    /// The same with another number of faults.
    #[must_use]
    pub fn with_faults(&self, faults: usize) -> Self {
        Self { faults, ..*self }
    }

    /// The scenario with so many faults, or with the most under which it promises something.
    pub fn with_promised_faults(&self, faults: usize) -> Self {
        self.with_faults(faults.min(self.most_faults))
    }

    /// Promises something up to so many faults.
    const fn up_to(self, most_faults: usize) -> Self {
        Self { most_faults, ..self }
    }

    pub(crate) fn begin(&self) -> (Arc<World>, Vec<Actor>) {
        let now = jiff::Timestamp::constant(1_577_836_800, 0);
        let world = Arc::new(World::new(now));
        let put = |path: &str, value: serde_json::Value| world.data().put(path, value.to_string());
        put(
            &format!("{RESOURCE_PREFIX}ippools/pool"),
            json!({"spec": {"cidr": self.cluster.pool, "blockSize": 30, "nodeSelector": "all()"}}),
        );
        for node in NODES {
            put(&format!("{RESOURCE_PREFIX}nodes/{node}"), json!({"metadata": {"name": node}, "spec": {}}));
        }
        put(
            "/calico/ipam/v2/config",
            json!({"strict_affinity": self.cluster.strict_affinity, "auto_allocate_blocks": true,
                "ipCooldownSeconds": self.cluster.cooldown}),
        );
        put(
            &format!("{RESOURCE_PREFIX}clusterinformations/default"),
            json!({"metadata": {"name": "default"}, "spec": {"clusterGUID": CLUSTER, "datastoreReady": true}}),
        );
        (self.before)(&Before(&world));
        // Whoever looks at the clock of the machine finds what is given from now on too young to judge, and all else old.
        world.advance(SignedDuration::from_hours(24 * 36_500));
        if self.cluster.is_kubernetes {
            world.to_kubernetes(&self.objects(&world), self.cluster.page);
        }
        let changes = world.data().take_changes();
        world.audit.note(None, false, changes);
        (world, (self.actors)())
    }
}

impl Scenario {
    /// What is there before on Kubernetes, which is made once.
    fn objects(&self, world: &World) -> Objects {
        static MADE: Mutex<BTreeMap<&str, Objects>> = Mutex::new(BTreeMap::new());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let make =
            || api_server::objects_of(&world.values(), &pods(world)).expect("objects of a healthy cluster");
        made.entry(self.name).or_insert_with(make).clone()
    }
}

/// Objects of Kubernetes by their paths.
type Objects = Vec<(String, Vec<u8>)>;

/// The pods that have addresses.
fn pods(world: &World) -> Vec<serde_json::Value> {
    let pods = world.truth.pods().into_iter().filter(|(_, pod)| pod.exists);
    let name = |handle: &str| handle.rsplit('.').next().unwrap_or_default().to_owned();
    pods.map(|(handle, pod)| pod_object(&name(&handle), &pod.node, &pod.addresses)).collect()
}

/// All scenarios, those of the plugin first.
pub fn all() -> Vec<Scenario> {
    // Where no command runs, nothing is asked of undo and of the lock of the datastore.
    let of_plugin = [plugin::all(), aimed::all()]
        .concat()
        .into_iter()
        .map(|scenario| Scenario { end: invariants::at_the_end, ..scenario })
        .chain(notes::all());
    let others = [calico::all(), repairs::all(), migrate::all(), kubernetes::all()].concat();
    of_plugin.chain(others).collect()
}
