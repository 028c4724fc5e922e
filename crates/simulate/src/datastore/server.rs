//! The server: it does one request after the other, as fast as it can, and answers take their time.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::rc::Rc;

use calipam_model::snapshot::DatastoreKind;

use super::costs::Costs;
use super::data::{Data, Listing};
use crate::engine::{Answer, Engine, Slot};
use crate::random::Random;
use crate::time::Micros;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// What queue a request waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Station {
    Reads,
    Writes,
}

/// The server of the datastore, and what it holds.
pub(crate) struct Server {
    pub kind: DatastoreKind,
    pub costs: Costs,
    pub engine: Engine,
    data: RefCell<Data>,
    random: RefCell<Random>,
    /// When each queue is empty, in nanoseconds.
    empty_at: [Cell<u64>; 2],
    /// Requests served.
    pub requests: Cell<u64>,
}

impl Server {
    pub fn new(engine: &Engine, kind: DatastoreKind, costs: Costs, data: Data, seed: u64) -> Rc<Self> {
        Rc::new(Self {
            kind,
            costs,
            engine: engine.clone(),
            data: RefCell::new(data),
            random: RefCell::new(Random::new(seed, 0x7365_7276)),
            empty_at: Default::default(),
            requests: Cell::new(0),
        })
    }

    pub fn data(&self) -> Ref<'_, Data> {
        self.data.borrow()
    }

    pub fn data_mut(&self) -> RefMut<'_, Data> {
        self.data.borrow_mut()
    }

    /// Time that varies as latency does.
    pub fn varied(&self, mean: Micros) -> Micros {
        self.random.borrow_mut().around(mean, self.costs.jitter_permille)
    }

    /// Sends a request, after `wait`. The server does `action` when its turn comes, whether the client still waits or not.
    pub(super) fn send<T: 'static>(
        self: &Rc<Self>,
        station: Station,
        wait: Micros,
        listing: Listing,
        action: impl FnOnce(&mut Data) -> T + 'static,
    ) -> Answer<T> {
        self.requests.set(self.requests.get() + 1);
        let latency = self.varied(match station {
            Station::Reads => self.costs.read,
            Station::Writes => self.costs.write,
        });
        let there = Micros(latency.0 / 2);
        let done = self.serve(station, self.engine.now() + wait + there, listing);
        let back = done + (latency - there);

        let slot = Slot::new();
        let (server, filled) = (Rc::clone(self), slot.clone());
        self.engine.at(done, move || {
            let answer = action(&mut server.data.borrow_mut());
            filled.fill_at(&server.engine, back, answer);
        });
        slot.answer(&self.engine)
    }

    /// Puts a request that arrives at a time in the queue; gives when the server has done it.
    fn serve(&self, station: Station, arrives: Micros, listing: Listing) -> Micros {
        let (per_second, empty_at) = match station {
            Station::Reads => (self.costs.reads_per_second, &self.empty_at[0]),
            Station::Writes => (self.costs.writes_per_second, &self.empty_at[1]),
        };
        let busy = NANOS_PER_SECOND.checked_div(per_second).unwrap_or(0)
            + listing.objects * self.costs.object_nanos
            + listing.bytes * self.costs.kib_nanos / 1_024;
        let done = empty_at.get().max(arrives.0.saturating_mul(1_000)).saturating_add(busy);
        empty_at.set(done);
        Micros(done.div_ceil(1_000))
    }

    /// How long a client takes to decode a list.
    pub fn decoding(&self, listing: Listing) -> Micros {
        Micros(listing.bytes * self.costs.decode_nanos / 1_024 / 1_000)
    }
}
