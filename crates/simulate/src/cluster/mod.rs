//! The simulated cluster: nodes, pods, the plugin, kube-controllers and events.

mod arrivals;
mod checks;
mod collector;
mod events;
mod eviction;
mod failure;
mod ledger;
mod measure;
mod nodes;
mod plugin;
mod pods;
mod runtime;
mod view;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use calipam_assign::{Family, Record};
use calipam_model::pool::Pool;

pub use self::failure::Point;
pub(crate) use self::ledger::Ledger;
pub(crate) use self::measure::{Measured, Timed};
use self::nodes::Nodes;
pub(crate) use self::pods::Pod;
use self::pods::Pods;
use crate::datastore::{Data, Server};
use crate::engine::Engine;
use crate::error::Result;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::time::Micros;

/// If no pod starts for this long, waiting pods count as stuck.
const QUIET: Micros = Micros::from_mins(2);
/// The longest extension of a run after its usual end.
const EXTENSION: Micros = Micros::from_mins(60);
/// The purpose of the random numbers that the cluster draws; "worl".
const RANDOM_STREAM: u64 = 0x776f_726c;

/// The cluster, shared by all its parts.
pub(crate) struct World {
    pub engine: Engine,
    pub server: Rc<Server>,
    pub scenario: Arc<Scenario>,
    pub nodes: RefCell<Nodes>,
    pub pods: RefCell<Pods>,
    pub ledger: RefCell<Ledger>,
    pub measured: RefCell<Measured>,
    random: RefCell<Random>,
    /// The families in which pods get addresses.
    families: [bool; 2],
    /// True if the collector was signalled to run soon.
    is_collecting: Cell<bool>,
}

impl World {
    /// Creates a scenario's cluster at its start, with all events planned. Nothing happens before [`Self::run`].
    ///
    /// # Errors
    /// If the scenario is one that [`Scenario::check`] refuses.
    pub(crate) fn new(scenario: &Arc<Scenario>) -> Result<Rc<Self>> {
        scenario.check()?;
        let engine = Engine::default();
        let costs = scenario.costs()?;
        let data = initial_data(scenario);
        let server = Server::new(&engine, scenario.datastore, costs, data, scenario.seed);
        let has_pool = |family: Family| {
            scenario
                .pools_for_pods()
                .any(|pool| Family::of(pool.cidr) == family)
        };
        let world = Rc::new(Self {
            nodes: RefCell::new(Nodes::new(&engine, scenario)),
            pods: RefCell::default(),
            ledger: RefCell::default(),
            measured: RefCell::default(),
            random: RefCell::new(Random::new(scenario.seed, RANDOM_STREAM)),
            families: [has_pool(Family::V4), has_pool(Family::V6)],
            is_collecting: Cell::new(false),
            scenario: Arc::clone(scenario),
            engine,
            server,
        });
        world.adopt_running_pods();
        world.plan_arrivals();
        world.plan_event();
        world.plan_collector();
        Ok(world)
    }

    /// Runs to the end of the scenario. If the scenario sets neither a duration nor a lifetime, continues as long as
    /// waiting pods start.
    pub(crate) fn run(&self) {
        let end = self.scenario.end();
        self.engine.run_until(end);
        // A duration is kept exactly. If pods have a limited lifetime, some pods are always waiting.
        if self.scenario.duration.is_some() || self.scenario.lifetime.is_some() {
            return;
        }
        while self.waiting_pods() > 0 && self.engine.now() < end + EXTENSION {
            let started_before = self.measured.borrow().started.len();
            self.engine.run_until(self.engine.now() + QUIET);
            // No pod has started for so long that the others never will.
            if self.measured.borrow().started.len() == started_before {
                break;
            }
        }
    }

    /// The number of pods that should be running but are not.
    pub(crate) fn waiting_pods(&self) -> u64 {
        self.pods.borrow().missing() + self.measured.borrow().unschedulable
    }

    /// True if pods get addresses of a family.
    fn wants(&self, family: Family) -> bool {
        self.families[family as usize]
    }

    fn random_below(&self, end: u64) -> u64 {
        self.random.borrow_mut().below(end)
    }
}

/// Creates the content of the datastore at the start: pools, nodes and, if the scenario begins with an existing
/// cluster, that cluster's blocks, affinities and handles.
fn initial_data(scenario: &Scenario) -> Data {
    let start = scenario.start.as_deref();
    let reservations = start.map(|start| start.reservations.clone()).unwrap_or_default();
    let pools: Vec<Pool> = scenario.pools();
    let mut data = Data::new(pools, reservations, scenario.config());

    for index in 0..scenario.node_count() {
        let node = nodes::record(scenario, index);
        data.nodes.insert(node.name.clone(), node);
    }
    if let Some(start) = start {
        for block in &start.blocks {
            data.preload(Record::Block(Arc::clone(block)));
        }
        for affinity in &start.affinities {
            data.preload(Record::Affinity(affinity.clone()));
        }
        for handle in &start.handles {
            data.preload(Record::Handle(handle.clone()));
        }
    }
    data
}
