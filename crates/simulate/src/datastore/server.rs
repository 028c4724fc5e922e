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
const MOST_THREADS: u64 = 256;

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
    /// When each thread has done what it has to do, in nanoseconds: those that read, and those that write.
    free_at: [RefCell<Vec<u64>>; 2],
    /// Requests served.
    pub requests: Cell<u64>,
}

impl Server {
    pub fn new(engine: &Engine, kind: DatastoreKind, costs: Costs, data: Data, seed: u64) -> Rc<Self> {
        let threads = vec![0; usize::try_from(costs.threads.clamp(1, MOST_THREADS)).unwrap_or(1)];
        Rc::new(Self {
            kind,
            costs,
            engine: engine.clone(),
            data: RefCell::new(data),
            random: RefCell::new(Random::new(seed, 0x7365_7276)),
            free_at: [RefCell::new(threads.clone()), RefCell::new(threads)],
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
        // What the server does for any request is a part of the latency; what a list costs comes on top.
        let travel = latency - Micros(self.busy(station) / 1_000);
        let there = Micros(travel.0 / 2);
        let done = self.serve(station, self.engine.now() + wait + there, listing);
        let back = done + (travel - there);

        let slot = Slot::new();
        let (server, filled) = (Rc::clone(self), slot.clone());
        self.engine.at(done, move || {
            let answer = action(&mut server.data.borrow_mut());
            filled.fill_at(&server.engine, back, answer);
        });
        slot.answer(&self.engine)
    }

    /// Gives a request that arrives at a time to the thread that is free first; gives when it is done.
    fn serve(&self, station: Station, arrives: Micros, listing: Listing) -> Micros {
        let mut threads = self.threads(station).borrow_mut();
        let busy = self.busy_with(station, threads.len())
            + listing.objects * self.costs.object_nanos
            + listing.bytes * self.costs.kib_nanos / 1_024;
        let arrives = arrives.0.saturating_mul(1_000);
        let Some(free_at) = threads.iter_mut().min() else { return Micros(arrives / 1_000) };
        let done = (*free_at).max(arrives).saturating_add(busy);
        *free_at = done;
        Micros(done.div_ceil(1_000))
    }

    fn threads(&self, station: Station) -> &RefCell<Vec<u64>> {
        match station {
            Station::Reads => &self.free_at[0],
            Station::Writes => &self.free_at[1],
        }
    }

    /// How long any request keeps a thread busy, in nanoseconds.
    fn busy(&self, station: Station) -> u64 {
        self.busy_with(station, self.threads(station).borrow().len())
    }

    fn busy_with(&self, station: Station, threads: usize) -> u64 {
        let per_second = match station {
            Station::Reads => self.costs.reads_per_second,
            Station::Writes => self.costs.writes_per_second,
        };
        (NANOS_PER_SECOND * threads as u64).checked_div(per_second).unwrap_or(0)
    }

    /// How long a client takes to decode a list.
    pub fn decoding(&self, listing: Listing) -> Micros {
        Micros(listing.bytes * self.costs.decode_nanos / 1_024 / 1_000)
    }
}
