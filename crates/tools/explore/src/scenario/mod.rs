//! Small worlds and their actors.

mod calico;
mod given;
mod kubernetes;
mod migrate;
mod operations;
mod plugin;
mod repairs;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use calipam_assign::plugin::Wanted;
use calipam_model::key::RESOURCE_PREFIX;
use jiff::SignedDuration;
use serde_json::json;

use self::given::Given;
use crate::actor::{Actor, Call, Command, pod_object};
use crate::invariants;
use crate::invariants::repairs::{BY_HAND, CLUSTER};
use crate::world::{Event, NODES, World};

/// The faults that are possible in a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// True if requests can remain unanswered and actors can be killed.
    pub failures: bool,
    /// Jumps of the clock, in seconds.
    pub jumps: &'static [i64],
    /// True if a node's notes file can become unreadable or outdated.
    pub notes: bool,
    /// The event by which the datastore stops answering a process: [`Event::Hang`] or [`Event::Silence`].
    pub silence: Option<Event>,
}

/// A small world.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// True if all schedules without faults can be explored in a few seconds. This is not possible if two actors can
    /// undo each other's work until one of them gives up after a hundred attempts.
    pub is_small: bool,
    /// Number of faults in a run.
    pub faults: usize,
    /// The maximum number of faults. More faults may break something that is not promised (`docs/safety.md`).
    most_faults: usize,
    pub kinds: Faults,
    /// The maximum length of a schedule, since two actors may undo each other's work until one of them gives up after a
    /// hundred attempts. Runs on Kubernetes, which write one object at a time, and the phases of a migration need
    /// longer schedules.
    pub(crate) longest: usize,
    /// Checks the invariants at the end, with all actors stopped.
    pub(crate) end: fn(&World) -> Result<(), String>,
    cluster: Cluster,
    /// The state in which the actors start.
    before: &'static [Given],
    actors: Actors,
    /// The numbers of the actors that never begin, as bits.
    left_out: u64,
}

/// The actors of a scenario that can be left out have numbers below this.
pub(crate) const MOST_ACTORS: usize = u64::BITS as usize;

/// Creates the actors of a scenario.
type Actors = fn() -> Vec<Actor>;

/// The settings of a cluster.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    pool: &'static str,
    /// The IPv6 pool, with blocks of four addresses.
    pool_v6: Option<&'static str>,
    strict_affinity: bool,
    /// The cooldown in seconds.
    cooldown: i64,
    /// The number of objects on each page of a list, if the datastore is Kubernetes, where pods show the addresses in
    /// use; 0 means all.
    page: Option<usize>,
}

/// A cluster with room for two blocks of four addresses.
const TWO: Cluster = Cluster {
    pool: "10.0.0.0/29",
    pool_v6: None,
    strict_affinity: false,
    cooldown: 0,
    page: None,
};
const ONE: Cluster = Cluster {
    pool: "10.0.0.0/30",
    ..TWO
};
const FOUR: Cluster = Cluster {
    pool: "10.0.0.0/28",
    ..TWO
};
/// Lost answers, late writes and kills.
const ANY: Faults = Faults {
    failures: true,
    jumps: &[],
    notes: false,
    silence: None,
};

const FIRST: &str = "10.0.0.0/30";
/// The first address that is assigned.
const LEAK: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0));

/// A block of the first node.
const BLOCK: &[Given] = &[Given::Block(FIRST, "a5")];
const POD: &[Given] = &[Given::Pod("a5/p")];
/// A pod in a block without an owner.
const UNOWNED: &[Given] = &[Given::Pod("a5/p"), Given::Unowned(FIRST, "a5")];
const LEAKED: &[Given] = &[Given::Leak("a5/gone")];
const POD_AND_LEAK: &[Given] = &[Given::Pod("a5/p"), Given::Leak("a5/gone")];
/// An address that is recorded, but not counted.
const UNCOUNTED: &[Given] = &[Given::Leak("a5/gone"), Given::NoHandle("a5/gone")];
const POD_AND_UNCOUNTED: &[Given] = &[
    Given::Pod("a5/p"),
    Given::Leak("a5/gone"),
    Given::NoHandle("a5/gone"),
];
/// The handle of addresses that a person assigns.
const BY_HAND_ONLY: &[Given] = &[Given::Gone(BY_HAND)];
const BLOCK_AND_BY_HAND: &[Given] = &[Given::Block(FIRST, "a5"), Given::Gone(BY_HAND)];

/// A call beside which commands run.
fn slow(pod: &str) -> Call {
    Call {
        is_watched: true,
        ..pod.into()
    }
}

/// Makes a pod want the address 10.0.0.`last`.
fn wanting(last: u8, call: impl Into<Call>) -> Call {
    Call {
        wanted: Wanted::Address([10, 0, 0, last].into()),
        ..call.into()
    }
}

/// Assigns the leaked address manually.
fn assign() -> Command {
    Command::Assign(LEAK, "a5", BY_HAND)
}

/// A world with at most one fault.
fn plain(name: &'static str, cluster: Cluster, before: &'static [Given], actors: Actors) -> Scenario {
    Scenario {
        name,
        is_small: true,
        faults: 1,
        most_faults: usize::MAX,
        kinds: ANY,
        longest: if cluster.page.is_some() { 160 } else { 64 },
        end: invariants::repairs::at_the_end,
        cluster,
        before,
        actors,
        left_out: 0,
    }
}

/// A world that cannot be explored completely in a few seconds.
fn large(name: &'static str, cluster: Cluster, before: &'static [Given], actors: Actors) -> Scenario {
    Scenario {
        is_small: false,
        ..plain(name, cluster, before, actors)
    }
}

impl Scenario {
    /// Adds jumps of the clock. A jump ahead exceeds every waiting period: the cooldown, and the time for which an
    /// empty block stays with its owner. A jump back is smaller than the allowed difference between clocks. Commands
    /// and nodes have different clocks, so a new record may look old.
    fn with_jumps(self) -> Self {
        Self {
            kinds: Faults {
                jumps: &[90, -15],
                ..self.kinds
            },
            ..self
        }
    }

    /// Replaces all faults with a datastore that stops answering.
    fn with_silence(self, silence: Event) -> Self {
        Self {
            kinds: Faults {
                failures: false,
                silence: Some(silence),
                ..ANY
            },
            ..self
        }
    }

    /// Removes lost answers and kills, since a DEL after such a fault would release addresses of the other call.
    fn without_faults(self) -> Self {
        Self {
            kinds: Faults {
                failures: false,
                ..ANY
            },
            ..self
        }
    }

    /// Sets the number of faults.
    #[must_use]
    pub fn with_faults(&self, faults: usize) -> Self {
        Self { faults, ..*self }
    }

    /// Sets the number of faults, up to the maximum for which the scenario makes promises.
    pub fn with_promised_faults(&self, faults: usize) -> Self {
        self.with_faults(faults.min(self.most_faults))
    }

    /// Leaves out an actor, which then never begins.
    #[must_use]
    pub fn without(&self, actor: usize) -> Self {
        Self {
            left_out: self.left_out | 1 << actor,
            ..*self
        }
    }

    pub(crate) fn leaves_out(&self, actor: usize) -> bool {
        self.left_out & 1 << actor != 0
    }

    /// Replaces the check at the end.
    #[cfg(test)]
    pub(crate) fn ending(self, end: fn(&World) -> Result<(), String>) -> Self {
        Self { end, ..self }
    }

    /// Sets the maximum number of faults for which the scenario makes promises.
    const fn up_to(self, most_faults: usize) -> Self {
        Self { most_faults, ..self }
    }

    pub(crate) fn begin(&self) -> (Arc<World>, Vec<Actor>) {
        let now = jiff::Timestamp::constant(1_577_836_800, 0);
        let world = Arc::new(World::new(now));
        let put = |path: &str, value: serde_json::Value| world.data.put(path, value.to_string());
        let pools = [
            ("pool", Some(self.cluster.pool), 30),
            ("pool-v6", self.cluster.pool_v6, 126),
        ];
        for (name, cidr, size) in pools.into_iter().filter(|(_, cidr, _)| cidr.is_some()) {
            let spec = json!({"cidr": cidr, "blockSize": size, "nodeSelector": "all()"});
            put(&format!("{RESOURCE_PREFIX}ippools/{name}"), json!({"spec": spec}));
        }
        for node in NODES {
            put(
                &format!("{RESOURCE_PREFIX}nodes/{node}"),
                json!({"metadata": {"name": node}, "spec": {}}),
            );
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
        self.before.iter().for_each(|given| given.add_to(&world));
        // According to the machine's clock, all existing addresses are old, and a check does not judge addresses that
        // are assigned from now on.
        world.advance(SignedDuration::from_hours(24 * 36_500));
        if let Some(page) = self.cluster.page {
            world.to_kubernetes(pods(&world), page);
        }
        let changes = world.data.take_changes();
        world.audit().note(None, changes);
        world.note_beginning();
        (world, (self.actors)())
    }
}

/// The objects of all pods that exist.
fn pods(world: &World) -> Vec<serde_json::Value> {
    let pods = world.truth.pods().into_iter().filter(|(_, pod)| pod.exists);
    let name = |handle: &str| handle.rsplit('.').next().unwrap_or_default().to_owned();
    pods.map(|(handle, pod)| pod_object(&name(&handle), &pod.node, &pod.addresses))
        .collect()
}

/// All scenarios, those of the plugin first.
pub fn all() -> Vec<Scenario> {
    [
        plugin::all(),
        operations::all(),
        calico::all(),
        repairs::all(),
        migrate::all(),
        kubernetes::all(),
    ]
    .concat()
}
