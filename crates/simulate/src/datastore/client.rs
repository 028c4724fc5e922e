//! A client of the simulated datastore, which sends the same requests as calipam's clients.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use calipam_assign::{
    Entry, KnownState, ListsSince, Query, Store, StoreError, Swap, blocks_holding_elsewhere,
};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Revision};
use jiff::Timestamp;

use super::caches::Kind;
use super::costs::Work;
use super::data::{Data, Listing};
use super::limiter::Limiter;
use super::server::Server;
use crate::engine::Answer;
use crate::time::Micros;

/// The largest number of ranges in one etcd transaction, as in `calipam-datastore`.
const RANGES: usize = 128;

/// On Kubernetes, this many blocks or more are read by listing pages of blocks, as in `calipam-datastore`.
const MANY: usize = 64;
/// The number of blocks in a page.
const PAGE: usize = 128;

/// A client with its state and counters.
pub(crate) struct Client {
    server: Rc<Server>,
    limiter: Option<Limiter>,
    /// On Kubernetes, true if the client lists the affinities of all nodes, because those of its own node may have no
    /// labels yet.
    lists_affinities: bool,
    /// On Kubernetes, the objects that the client has read and so can replace without reading them again.
    known: RefCell<HashMap<Key, Revision, foldhash::fast::FixedState>>,
    /// The number of requests sent.
    pub requests: Cell<u32>,
    /// The number of writes that failed because another client wrote first.
    pub conflicts: Cell<u32>,
    /// True if the client read block keys, which is mostly done to find a block to claim or to borrow from.
    pub has_searched: Cell<bool>,
}

impl Client {
    /// Creates the client of one plugin call.
    pub(crate) fn for_plugin(server: &Rc<Server>, is_labelled: bool) -> Self {
        let limiter = None;
        let lists_affinities = !is_labelled;
        Self::new(server, limiter, lists_affinities)
    }

    /// Creates the client of kube-controllers.
    pub(crate) fn for_controllers(server: &Rc<Server>) -> Self {
        let costs = &server.costs;
        let limiter = Limiter::new(costs.controllers_qps, costs.controllers_burst);
        let lists_affinities = false;
        Self::new(server, limiter, lists_affinities)
    }

    /// Creates a client. Only Kubernetes' clients limit their requests.
    fn new(server: &Rc<Server>, limiter: Option<Limiter>, lists_affinities: bool) -> Self {
        Self {
            server: Rc::clone(server),
            limiter: limiter.filter(|_| server.kind == DatastoreKind::Kubernetes),
            lists_affinities,
            known: RefCell::default(),
            requests: Cell::default(),
            conflicts: Cell::default(),
            has_searched: Cell::default(),
        }
    }

    /// Reads an object that does not belong to IPAM, with one request.
    pub(crate) async fn look_up(&self) {
        self.send_read(Work::Read, &[], Listing::default()).await;
    }

    /// Reads the affinities of all nodes, as the plugin does once in a node's lifetime to label those of its own node.
    pub(crate) async fn list_affinities(&self) {
        let listing = self.server.data().all_affinities();
        // Only the time of the request counts here, not the answer.
        let no_queries = [];
        self.send_read(self.work(&Query::HostAffinities), &no_queries, listing)
            .await;
        self.server
            .engine
            .sleep(self.server.costs.decoding(listing))
            .await;
    }

    /// Counts a request, and returns the time that it has to wait for the client's rate limit.
    fn count_request(&self) -> Micros {
        self.requests.set(self.requests.get() + 1);
        match &self.limiter {
            Some(limiter) => limiter.wait(self.server.engine.now()),
            None => Micros::ZERO,
        }
    }

    /// Sends queries as one request, and returns the future of its answers, one list for each query. `listing` is the
    /// size of what the server has to read. On Kubernetes, a request contains one query, or lists a page of blocks.
    fn ask(&self, queries: &[Query], listing: Listing, lists: Lists) -> Answer<Vec<Vec<Entry>>> {
        let work = match queries.first() {
            Some(query) if lists == Lists::Current => self.work(query),
            // A server answers from its cache at once.
            _ => Work::Read,
        };
        self.send_read(work, queries, listing)
    }

    fn send_read(&self, work: Work, queries: &[Query], listing: Listing) -> Answer<Vec<Vec<Entry>>> {
        let queries = queries.to_vec();
        let wait = self.count_request();
        self.server.send(work, wait, listing, move |data| {
            queries.iter().map(|query| data.read(query)).collect()
        })
    }

    /// The server's work for a query.
    fn work(&self, query: &Query) -> Work {
        match Kind::listed_by(query) {
            Some(kind) if self.is_on_kubernetes() => Work::List(kind),
            _ => Work::Read,
        }
    }

    /// Returns the size of the list that the server reads for a query of this client.
    fn measure(&self, query: &Query) -> Listing {
        let data = self.server.data();
        let is_for_affinities = matches!(query, Query::Affinities { .. });
        // Without labels, an API server cannot select the affinities of a node, and lists those of all nodes.
        if is_for_affinities && self.lists_affinities && self.is_on_kubernetes() {
            return data.all_affinities();
        }
        data.measure(query)
    }

    fn is_on_kubernetes(&self) -> bool {
        self.server.kind == DatastoreKind::Kubernetes
    }

    /// Sends queries in requests of `size` queries each, all at the same time. Takes the simulated time of the requests,
    /// and of decoding the answers.
    async fn ask_in_parts(&self, queries: &[Query], size: usize, lists: Lists) -> Vec<Vec<Entry>> {
        let mut total = Listing::default();
        let mut requests = Vec::new();
        for part in queries.chunks(size.max(1)) {
            let mut listing = Listing::default();
            for query in part {
                listing = listing.plus(self.measure(query));
            }
            total = total.plus(listing);
            // This sends the request; the answer is awaited below.
            requests.push(self.ask(part, listing, lists));
        }

        let mut answers = Vec::with_capacity(queries.len());
        for request in requests {
            answers.extend(request.await);
        }
        // The client decodes the lists when all have arrived.
        if total.bytes > 0 {
            self.server.engine.sleep(self.server.costs.decoding(total)).await;
        }
        answers
    }

    /// Sends a write, and counts it as a conflict if another client was first.
    async fn write<T: 'static>(
        &self,
        kind: Kind,
        action: impl FnOnce(&mut Data) -> Result<T, StoreError> + 'static,
    ) -> Result<T, StoreError> {
        let wait = self.count_request();
        let no_list = Listing::default();
        let result = self.server.send(Work::Write(kind), wait, no_list, action).await;
        if result.as_ref().is_err_and(StoreError::is_lost_race) {
            self.conflicts.set(self.conflicts.get() + 1);
        }
        result
    }

    /// On Kubernetes, reads an object again before replacing it, as Calico's client does, unless the client has it at
    /// this revision.
    ///
    /// # Errors
    /// If the object has another revision, or does not exist.
    async fn read_again(&self, key: &Key, revision: &Revision) -> Result<(), StoreError> {
        if !self.is_on_kubernetes() || self.known.borrow().get(key) == Some(revision) {
            return Ok(());
        }
        let query = Query::Get(key.clone());
        let answers = self.ask(&[query], Listing::default(), Lists::Current).await;
        let Some(current) = answers.into_iter().flatten().next() else {
            return Err(StoreError::NotFound(key.clone()));
        };
        if current.revision != *revision {
            self.conflicts.set(self.conflicts.get() + 1);
            return Err(StoreError::Conflict(key.clone()));
        }
        Ok(())
    }

    fn remember(&self, key: Key, revision: &Revision) {
        if self.is_on_kubernetes() {
            self.known.borrow_mut().insert(key, revision.clone());
        }
    }

    /// Asks queries, in as many requests as Calico's client for the datastore would, and returns the objects that each
    /// finds.
    async fn ask_all(&self, queries: &[Query], lists: Lists) -> Vec<Vec<Entry>> {
        if queries.iter().any(Query::asks_for_block_keys) {
            self.has_searched.set(true);
        }
        if !self.is_on_kubernetes() {
            // One transaction, or several in sequence if there are too many queries.
            let mut answers = Vec::with_capacity(queries.len());
            for part in queries.chunks(RANGES) {
                answers.extend(self.ask_in_parts(part, RANGES, lists).await);
            }
            return answers;
        }

        // Many blocks are listed in pages instead of being read one by one.
        let is_block = |query: &Query| matches!(query, Query::Get(Key::Block(_)));
        if queries.len() >= MANY && queries.iter().all(is_block) {
            return self.ask_in_parts(queries, PAGE, lists).await;
        }

        // On Kubernetes, a query for overlapping blocks takes several requests. The additional ones only take time.
        let mut asked: Vec<Query> = queries.to_vec();
        for query in queries {
            if let Query::Overlapping(cidr) = query {
                asked.extend(blocks_holding_elsewhere(*cidr).map(Query::BlockKey));
            }
        }
        let mut answers = self.ask_in_parts(&asked, 1, lists).await;
        answers.truncate(queries.len());

        // An object that was read need not be read again before it is replaced.
        for (query, entries) in queries.iter().zip(&answers) {
            if let Query::Get(key) = query
                && let Some(entry) = entries.first()
            {
                self.remember(key.clone(), &entry.revision);
            }
        }
        answers
    }
}

/// The state that lists must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lists {
    Current,
    /// A recent state that the server's caches have reached.
    Recent,
}

impl Store for Client {
    fn now(&self) -> Timestamp {
        self.server.engine.now().timestamp()
    }

    /// Answers queries in as many requests as the datastore needs for them.
    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        Ok(self.ask_all(queries, Lists::Current).await)
    }

    /// Reads lists. With a `known` state, the server's caches may answer, since they have reached it. Otherwise they
    /// must be current, and the state that they have reached is returned.
    async fn read_since(
        &self,
        queries: &[Query],
        known: Option<&KnownState>,
    ) -> Result<ListsSince, StoreError> {
        let asked_at = self.now();
        let lists = if known.is_some() {
            Lists::Recent
        } else {
            Lists::Current
        };
        let answers = self.ask_all(queries, lists).await;

        let mut state = None;
        if self.is_on_kubernetes() && known.is_none() {
            // The caches have reached every state that was listed, so its version has no meaning here.
            state = Some(KnownState {
                version: String::new(),
                at: asked_at,
            });
        }
        Ok(ListsSince { answers, state })
    }

    /// Performs one write, and returns the new revision. On Kubernetes, a deletion has two steps (facts 2.9). The first
    /// one decides the result; the second one only takes time.
    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        let key = swap.record.key();
        let kind = Kind::of_record(&swap.record);
        let swap_on_server = swap.clone();
        if let Some(revision) = &swap.read {
            self.read_again(&key, revision).await?;
        }

        let revision = self.write(kind, move |data| data.swap(swap_on_server)).await?;
        if !swap.deletes {
            self.remember(key, &revision);
        } else if self.is_on_kubernetes() {
            self.known.borrow_mut().remove(&key);
            self.write(kind, |_| Ok(())).await?;
        }
        Ok(revision)
    }
}
