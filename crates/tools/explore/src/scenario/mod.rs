//! Small worlds, and who acts in them.

mod calico;
mod kubernetes;
mod repairs;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use calipam_assign::plugin::Wanted;
use calipam_assign::{Allocator, AutoAssign, InUse, Record, Store};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::key::RESOURCE_PREFIX;
use calipam_model::pool::PoolUse;
use jiff::SignedDuration;
use serde_json::json;

use crate::actor::{Actor, Call, add, collect, del, gc, give, give_up_empty, pod_object};
use crate::invariants;
use crate::invariants::repairs::CLUSTER;
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
    pub kinds: Faults,
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
const ANY: Faults = Faults { answers: true, kills: true, jumps: &[] };

const NODES: [&str; 3] = ["a", "b", "c"];
const FIRST: &str = "10.0.0.0/30";

/// Makes what is there before anyone acts.
struct Before<'w>(&'w World);

impl Before<'_> {
    /// A pod has its address.
    fn pod(&self, node: &str, pod: &str) {
        let call = Call::new(node, pod);
        let allocator = Allocator::new(self.0.data());
        let request = AutoAssign {
            host: node.to_owned(),
            v4: 1,
            handle: Some(call.handle()),
            attributes: Some(call.attributes(self.0.now())),
            intended_use: Some(PoolUse::Workload),
            ..AutoAssign::default()
        };
        let assigned = at_once(allocator.auto_assign(&request)).and_then(Result::ok).unwrap_or_default();
        self.0.truth.begin(&call.handle(), node);
        give(self.0, &call, &assigned.addresses().collect::<Vec<_>>());
    }

    /// A block belongs to a node.
    fn block(&self, block: &str, node: &str) {
        let allocator = Allocator::new(self.0.data());
        drop(at_once(allocator.claim_affinity(cidr(block), AffinityType::Host, node)));
    }

    /// A node has begun to claim a block.
    fn pending(&self, block: &str, node: &str) {
        let key = AffinityKey { kind: AffinityType::Host, node: node.to_owned(), cidr: cidr(block) };
        let record = Record::Affinity(Affinity::new(key, AffinityState::Pending));
        drop(at_once(self.0.data().create(&record)));
    }

    /// A block that has addresses in use lost its owner.
    fn disown(&self, block: &str, node: &str) {
        let allocator = Allocator::new(self.0.data());
        drop(at_once(allocator.release_affinity(cidr(block), node, InUse::Release)));
    }
}

fn cidr(text: &str) -> IpNet {
    text.parse().expect("the text of a CIDR")
}

impl Scenario {
    fn large(self) -> Self {
        Self { is_small: false, ..self }
    }

    /// Longer schedules are cut off: two actors that undo each other's work again and again go on until one has tried a hundred
    /// times. On Kubernetes, where objects are read and written one by one, what ends takes longer.
    pub(crate) fn longest(&self) -> usize {
        if self.cluster.is_kubernetes { 160 } else { 64 }
    }

    /// The clock jumps ahead by more than what is waited for (the cooldown, and how long an empty block stays with its owner), and back
    /// by less than clocks may differ.
    fn with_jumps(self) -> Self {
        Self { kinds: Faults { jumps: &[90, -15], ..self.kinds }, ..self }
    }

    /// A DEL after a fault would take what the other call uses.
    fn without_faults(self) -> Self {
        Self { kinds: Faults { answers: false, kills: false, jumps: &[] }, ..self }
    }

    /// The same with another number of faults.
    #[must_use]
    pub fn with_faults(&self, faults: usize) -> Self {
        Self { faults, ..*self }
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

/// All scenarios, the small ones first.
pub fn all() -> Vec<Scenario> {
    let plain = |name, about, cluster, before, actors| Scenario {
        name,
        about,
        is_small: true,
        faults: 1,
        kinds: ANY,
        end: invariants::at_the_end,
        cluster,
        before,
        actors,
    };
    let of_plugin = vec![
        plain(
            "one-add",
            "a pod wants an address, and no block is there",
            ONE_BLOCK,
            |_| {},
            || vec![add(Call::new("a", "p"))],
        ),
        plain(
            "two-adds-one-node",
            "two pods of a node want an address, and no block is there",
            TWO_BLOCKS,
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("a", "q"))],
        ),
        plain(
            "two-adds-one-block",
            "pods of two nodes want an address, and one block can be had",
            ONE_BLOCK,
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("b", "q"))],
        ),
        plain(
            "same-address",
            "two pods ask for the same address",
            TWO_BLOCKS,
            |_| {},
            || {
                let wanted = Wanted::Address([10, 0, 0, 1].into());
                let call = |node, pod| Call { wanted: wanted.clone(), ..Call::new(node, pod) };
                vec![add(call("a", "p")), add(call("b", "q"))]
            },
        ),
        plain(
            "add-beside-del",
            "a pod starts while the only other one of its node stops",
            TWO_BLOCKS,
            |before| before.pod("a", "p"),
            || vec![add(Call::new("a", "q")), del(Call::new("a", "p"))],
        ),
        plain(
            "borrow-beside-del",
            "a pod borrows from a block that has no owner while its last pod stops",
            ONE_BLOCK,
            |before| {
                before.pod("a", "p");
                before.disown(FIRST, "a");
            },
            || vec![add(Call::new("b", "q")), del(Call::new("a", "p"))],
        ),
        plain(
            "add-beside-give-up",
            "a pod starts while the empty block of its node is given up",
            TWO_BLOCKS,
            |before| before.block(FIRST, "a"),
            || vec![add(Call::new("a", "p")), give_up_empty(cidr(FIRST), "a")],
        )
        .large(),
        plain(
            "claim-beside-give-up",
            "a pod of another node claims the block that is given up",
            ONE_BLOCK,
            |before| before.block(FIRST, "a"),
            || vec![add(Call::new("b", "p")), give_up_empty(cidr(FIRST), "a")],
        ),
        plain(
            "reclaim-beside-add",
            "a node takes over an empty block whose owner wants an address from it",
            ONE_BLOCK,
            |before| before.block(FIRST, "a"),
            || vec![add(Call::new("a", "p")), add(Call::new("b", "q"))],
        ),
        plain(
            "del-twice",
            "two DELs of one pod",
            ONE_BLOCK,
            |before| before.pod("a", "p"),
            || vec![del(Call::new("a", "p")), del(Call::new("a", "p"))],
        ),
        plain(
            "gc-beside-add",
            "GC of a node on which a pod starts and another is gone",
            ONE_BLOCK,
            |before| before.pod("a", "gone"),
            || vec![del(Call::new("a", "gone")), gc("a", &["p"]), add(Call::new("a", "p"))],
        ),
        plain(
            "collector-beside-add",
            "the collector releases what a gone pod had while another starts",
            ONE_BLOCK,
            |before| before.pod("a", "gone"),
            || vec![del(Call::new("a", "gone")), collect(), add(Call::new("a", "p"))],
        ),
        plain(
            "stale-affinity",
            "a node has begun to claim a block that is another's by now",
            TWO_BLOCKS,
            |before| {
                before.block(FIRST, "b");
                before.pending(FIRST, "a");
            },
            || vec![add(Call::new("a", "p")), give_up_empty(cidr(FIRST), "b")],
        ),
        plain(
            "one-handle",
            "two calls on different nodes count in one handle, whose number of addresses has no limit",
            TWO_BLOCKS,
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("b", "p"))],
        )
        .without_faults(),
        plain(
            "three-adds",
            "pods of three nodes want an address, and two blocks can be had",
            TWO_BLOCKS,
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("b", "q")), add(Call::new("c", "r"))],
        )
        .large(),
        plain(
            "strict-affinity",
            "pods of three nodes want an address, and blocks are not shared",
            Cluster { strict_affinity: true, ..TWO_BLOCKS },
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("b", "q")), add(Call::new("c", "r"))],
        )
        .large(),
        plain(
            "cooldown",
            "an address cools down while another pod wants one",
            Cluster { cooldown: 30, ..ONE_BLOCK },
            |before| ["p", "x", "y", "z"].into_iter().for_each(|pod| before.pod("a", pod)),
            || vec![del(Call::new("a", "p")), add(Call::new("a", "q"))],
        )
        .with_jumps(),
        plain(
            "reclaim-in-time",
            "a block was claimed a moment ago by a node that has not used it yet, and clocks jump",
            ONE_BLOCK,
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("b", "q"))],
        )
        .with_jumps()
        .large(),
        plain(
            "one-by-one",
            "pods of two nodes on Kubernetes, which answers each read at its own time",
            ONE_BLOCK,
            |_| {},
            || {
                let call = |node, pod| Call { one_by_one: true, ..Call::new(node, pod) };
                vec![add(call("a", "p")), add(call("b", "q"))]
            },
        ),
        plain(
            "large",
            "pods of three nodes come and go, a collector and a node that loses its blocks",
            FOUR_BLOCKS,
            |before| {
                before.pod("a", "p1");
                before.pod("b", "p2");
                before.block("10.0.0.8/30", "c");
            },
            || {
                vec![
                    add(Call::new("a", "q1")),
                    add(Call::new("b", "q2")),
                    add(Call::new("c", "q3")),
                    del(Call::new("a", "p1")),
                    del(Call::new("b", "p2")),
                    give_up_empty(cidr("10.0.0.8/30"), "c"),
                    collect(),
                ]
            },
        )
        .large(),
    ];
    [of_plugin, calico::all(), repairs::all(), kubernetes::all()].concat()
}
