//! The server of the datastore. All requests share its processors in time slices, and answers take time.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;

use calipam_model::snapshot::DatastoreKind;

use super::caches::Caches;
use super::costs::{Costs, Work};
use super::data::{Data, Listing};
use super::latency::Latency;
use crate::engine::{Answer, Engine, Slot, Watch};
use crate::random::Random;
use crate::time::Micros;

/// The time that a processor works on one request before the next one's turn, as in Go's scheduler. A long list thus
/// slows down reads and writes without stopping them.
const SLICE: Micros = Micros::from_millis(10);
/// The purpose of the random numbers that the server draws; "serv".
const RANDOM_STREAM: u64 = 0x7365_7276;

/// The server's processors, and the requests that wait for them.
struct Processors {
    /// The number of idle processors.
    idle: u64,
    waiting: VecDeque<Job>,
}

/// A request that has arrived.
struct Job {
    /// The remaining processor time before the answer.
    busy: Micros,
    /// Called when the time in `busy` has passed.
    finish: Box<dyn FnOnce()>,
    /// The processor time after the answer.
    after: Micros,
    /// Shows whether the client of a read is still waiting. Servers drop reads whose connection was closed.
    client: Option<Watch>,
}

/// The datastore's server, with its content.
pub(crate) struct Server {
    pub kind: DatastoreKind,
    pub costs: Costs,
    pub engine: Engine,
    data: RefCell<Data>,
    random: RefCell<Random>,
    caches: RefCell<Caches>,
    processors: RefCell<Processors>,
    pub requests: Cell<u64>,
}

impl Server {
    /// Creates a server with idle processors.
    pub(crate) fn new(engine: &Engine, kind: DatastoreKind, costs: Costs, data: Data, seed: u64) -> Rc<Self> {
        Rc::new(Self {
            kind,
            processors: RefCell::new(Processors {
                idle: costs.threads(),
                waiting: VecDeque::new(),
            }),
            caches: RefCell::default(),
            costs,
            engine: engine.clone(),
            data: RefCell::new(data),
            random: RefCell::new(Random::new(seed, RANDOM_STREAM)),
            requests: Cell::new(0),
        })
    }

    pub(crate) fn data(&self) -> Ref<'_, Data> {
        self.data.borrow()
    }

    pub(crate) fn data_mut(&self) -> RefMut<'_, Data> {
        self.data.borrow_mut()
    }

    /// Draws a time around `mean` that varies like latency.
    pub(crate) fn varied(&self, mean: Micros) -> Micros {
        self.random.borrow_mut().around(mean, self.costs.jitter_permille)
    }

    pub(crate) fn draw(&self, latency: Latency) -> Micros {
        latency.draw(&mut self.random.borrow_mut(), self.costs.jitter_permille)
    }

    /// Sends a request after `wait`, and returns the future of its answer. When it is the request's turn, the server
    /// performs `action`, but a read only if its client is still waiting. The action takes no time; `work` and
    /// `listing` say how long the request does.
    pub(super) fn send<T: 'static>(
        self: &Rc<Self>,
        work: Work,
        wait: Micros,
        listing: Listing,
        action: impl FnOnce(&mut Data) -> T + 'static,
    ) -> Answer<T> {
        self.requests.set(self.requests.get() + 1);
        let times = self
            .costs
            .split_request(work, listing, |latency| self.draw(latency));

        let slot = Slot::new();
        let slot_of_server = slot.clone();
        let server = Rc::clone(self);
        let finish = move || {
            let answer = action(&mut server.data.borrow_mut());
            let now = server.engine.now();
            if let Work::Write(kind) = work {
                server.caches.borrow_mut().note_write(now, kind);
            }
            slot_of_server.fill_at(&server.engine, now + times.way_back, answer);
        };
        let job = Job {
            busy: times.busy,
            finish: Box::new(finish),
            after: times.after,
            // A write is made even if its client no longer waits.
            client: if work.is_write() { None } else { Some(slot.watch()) },
        };

        let server = Rc::clone(self);
        let arrives_at = self.engine.now() + wait + times.way_there;
        self.engine.at(arrives_at, move || server.arrive(work, job));
        slot.answer(&self.engine)
    }

    /// Takes a request that has arrived. A list on Kubernetes first waits until the server's cache is as new as the
    /// request.
    fn arrive(self: &Rc<Self>, work: Work, job: Job) {
        let now = self.engine.now();
        let Work::List(kind) = work else {
            return self.take(job);
        };
        if self.costs.refresh.is_zero() {
            return self.take(job);
        }
        // The round trip from the API server to its etcd takes about half of a read.
        let server = Rc::clone(self);
        let trip = Micros(self.costs.read.median().0 / 2);
        self.engine.at(now + trip, move || {
            let ready = server
                .caches
                .borrow_mut()
                .ready(now + trip, kind, server.costs.refresh, trip);
            let answering = Rc::clone(&server);
            server.engine.at(ready, move || answering.take(job));
        });
    }

    fn take(self: &Rc<Self>, job: Job) {
        self.processors.borrow_mut().waiting.push_back(job);
        self.dispatch();
    }

    /// Assigns waiting requests to idle processors. A processor works on a request for at most [`SLICE`], and then on
    /// the next one, so that long lists do not hold up short requests.
    fn dispatch(self: &Rc<Self>) {
        while let Some(mut job) = self.processors.borrow_mut().next() {
            let slice = job.busy.min(SLICE);
            job.busy = job.busy - slice;
            let server = Rc::clone(self);
            self.engine.at(self.engine.now() + slice, move || {
                server.processors.borrow_mut().idle += 1;
                let remaining = if job.busy.is_zero() {
                    job.send_answer()
                } else {
                    Some(job)
                };
                server.processors.borrow_mut().waiting.extend(remaining);
                server.dispatch();
            });
        }
    }
}

impl Job {
    /// Sends the answer, and returns the work that the server still has to do after it; `None` if there is none.
    fn send_answer(self) -> Option<Self> {
        (self.finish)();
        if self.after.is_zero() {
            return None;
        }
        Some(Self {
            busy: self.after,
            finish: Box::new(|| ()),
            after: Micros::ZERO,
            client: None,
        })
    }
}

impl Processors {
    /// Takes an idle processor for the next request; `None` if no processor is idle or no request waits.
    fn next(&mut self) -> Option<Job> {
        if self.idle == 0 {
            return None;
        }
        while let Some(job) = self.waiting.pop_front() {
            // A read whose client no longer waits is dropped.
            if job.client.as_ref().is_none_or(Watch::waits) {
                self.idle -= 1;
                return Some(job);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::caches::Kind;
    use super::*;
    use crate::engine::within;

    /// A server with one processor. A list request for one object keeps it busy for a second. A write arrives later
    /// than reads that were sent at the same time.
    fn server(engine: &Engine) -> Rc<Server> {
        let costs = Costs {
            read: Latency::Around(Micros::from_millis(1)),
            write: Latency::Around(Micros::from_millis(4)),
            object_nanos: 1_000_000_000,
            threads: 1,
            jitter_permille: 0,
            ..Costs::assumed(DatastoreKind::Etcd)
        };
        Server::new(engine, DatastoreKind::Etcd, costs, Data::default(), 1)
    }

    /// Sends three requests at once, and gives up the second one. Returns the requests that were done, and the full
    /// seconds until each answer.
    fn three(work: Work) -> (Vec<u32>, Vec<(u32, u64)>) {
        let engine = Engine::default();
        let server = server(&engine);
        let (done, answered): (Rc<RefCell<Vec<_>>>, Rc<RefCell<Vec<_>>>) = Default::default();
        for (number, patience) in [(1, 60), (2, 1), (3, 60)] {
            let engine = engine.clone();
            let server = Rc::clone(&server);
            let done = Rc::clone(&done);
            let answered = Rc::clone(&answered);
            engine.clone().spawn(async move {
                let listing = Listing {
                    objects: 1,
                    bytes: 1_000,
                };
                let action = move |_: &mut Data| done.borrow_mut().push(number);
                let answer = server.send(work, Micros::ZERO, listing, action);
                if within(&engine, Micros::from_secs(patience), answer)
                    .await
                    .is_some()
                {
                    answered.borrow_mut().push((number, engine.now().0 / 1_000_000));
                }
            });
        }
        engine.run_until(Micros::from_secs(60));
        (done.take(), answered.take())
    }

    #[test]
    fn requests_share_the_processors_and_reads_that_were_given_up_take_none() {
        // The three requests take turns, each needing a second, until the second request is given up.
        assert_eq!(three(Work::Read), (vec![1, 3], vec![(1, 2), (3, 2)]));
        assert_eq!(
            three(Work::Write(Kind::Blocks)),
            (vec![1, 2, 3], vec![(1, 3), (3, 3)])
        );
    }

    #[test]
    fn an_idle_server_answers_within_the_latency_and_a_busy_one_at_its_limit() {
        let costs = Costs {
            read: Latency::Around(Micros::from_millis(1)),
            reads_per_second: 100,
            threads: 1,
            jitter_permille: 0,
            ..Costs::assumed(DatastoreKind::Etcd)
        };
        let engine = Engine::default();
        let server = Server::new(&engine, DatastoreKind::Etcd, costs, Data::default(), 1);
        let answered: Rc<RefCell<Vec<u64>>> = Rc::default();
        for _ in 0..100 {
            let engine = engine.clone();
            let server = Rc::clone(&server);
            let answered = Rc::clone(&answered);
            engine.clone().spawn(async move {
                for _ in 0..10 {
                    server
                        .send(Work::Read, Micros::ZERO, Listing::default(), |_| ())
                        .await;
                    answered.borrow_mut().push(engine.now().0);
                }
            });
        }
        engine.run_until(Micros::from_secs(60));
        let answered = answered.take();
        // 1,000 requests at 100 per second take ten seconds, less the work that follows the last answers.
        assert_eq!((answered.len(), answered[0]), (1_000, 1_000));
        assert!((9_000_000..=10_000_000).contains(&answered[999]), "{answered:?}");
    }

    #[test]
    fn long_lists_slow_down_a_write_without_blocking_it() {
        let engine = Engine::default();
        let server = server(&engine);
        let answered: Rc<RefCell<Vec<(&str, Micros)>>> = Rc::default();
        let send = |name: &'static str, work, objects| {
            let engine = engine.clone();
            let server = Rc::clone(&server);
            let answered = Rc::clone(&answered);
            engine.clone().spawn(async move {
                server
                    .send(work, Micros::ZERO, Listing { objects, bytes: 0 }, |_| ())
                    .await;
                answered.borrow_mut().push((name, engine.now()));
            });
        };
        for _ in 0..3 {
            send("list", Work::Read, 1);
        }
        send("write", Work::Write(Kind::Blocks), 0);
        engine.run_until(Micros::from_secs(60));
        let answered = answered.take();
        // The write waits only for one slice of each list request.
        let (first, at) = answered[0];
        assert!(
            first == "write" && (30..40).contains(&(at.0 / 1_000)),
            "{answered:?}"
        );
        assert_eq!(answered.len(), 4);
    }
}
