//! The datastore as one actor's allocator sees it. It behaves like etcd, or like Kubernetes, which has no transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use calipam_assign::{Entry, KnownState, ListsSince, Query, Store, StoreError, Swap};
use calipam_datastore::allocation::AllocatorStore;
use calipam_datastore::write::Consent;
use calipam_model::key::RESOURCE_PREFIX;
use calipam_model::snapshot::Revision;
use futures_util::FutureExt as _;
use jiff::Timestamp;

use super::kubernetes::short;
use super::{Event, Footprint, PODS, Values, World, kubernetes};
use crate::truth::Pod;

/// The connection of an actor.
#[derive(Clone)]
pub struct Client {
    world: Arc<World>,
    actor: usize,
    server: Server,
}

/// The server of a connection.
#[derive(Clone)]
enum Server {
    /// Answers all queries of a read at one revision.
    Etcd,
    /// Answers each query of a read separately, as an API server does.
    OneByOne,
    /// An API server, to which calipam's own client is connected.
    Api(Rc<AllocatorStore>),
}

impl Client {
    /// Creates a connection to etcd.
    pub fn new(world: &Arc<World>, actor: usize) -> Self {
        Self {
            world: Arc::clone(world),
            actor,
            server: Server::Etcd,
        }
    }

    /// Makes the server answer each query of a read separately.
    pub fn one_by_one(self) -> Self {
        Self {
            server: Server::OneByOne,
            ..self
        }
    }

    /// Turns the connection into one of calipam's own client to an API server.
    pub(crate) fn on_kubernetes(self) -> Self {
        let store = kubernetes::open(&self.world, self.actor).allocator(Consent::from_runtime("kubernetes"));
        Self {
            server: Server::Api(Rc::new(store.expect("an allocator's store"))),
            ..self
        }
    }

    /// Declares that the actor gives up only empty blocks.
    pub(crate) fn be_careful(&self) {
        self.world.audit().careful.insert(self.actor);
    }

    /// Reads all pods and the names of all nodes from Kubernetes.
    pub(crate) async fn cluster(&self) -> Result<(BTreeMap<String, Pod>, BTreeSet<String>), StoreError> {
        let nodes = format!("{RESOURCE_PREFIX}nodes/");
        let footprint = Footprint::default().read_range(PODS).read_range(nodes.clone());
        self.may_read("read pods and nodes".into(), footprint).await?;
        let pods = self.world.truth.pods();
        self.world.record_answer(self.actor, &pods);
        let names = self.world.data.values(&nodes).into_iter();
        Ok((
            pods,
            names
                .filter_map(|(path, ..)| path.strip_prefix(&nodes).map(str::to_owned))
                .collect(),
        ))
    }

    /// Reads the current state of a pod from Kubernetes.
    pub(crate) async fn pod(&self, handle: &str) -> Result<Option<Pod>, StoreError> {
        let footprint = Footprint::default().read(format!("{PODS}{handle}"));
        self.may_read(format!("get the pod of {handle}"), footprint)
            .await?;
        let pod = self.world.truth.pods().remove(handle);
        self.world.record_answer(self.actor, &pod);
        Ok(pod)
    }

    /// Returns false while the datastore is locked.
    pub(crate) async fn is_ready(&self) -> Result<bool, StoreError> {
        let path = format!("{RESOURCE_PREFIX}clusterinformations/default");
        self.may_read(
            "read whether the datastore is ready".into(),
            Footprint::default().read(path.clone()),
        )
        .await?;
        let value = self.world.data.value(&path).unwrap_or_default();
        let value: serde_json::Value = serde_json::from_slice(&value).unwrap_or_default();
        Ok(value["spec"]["datastoreReady"] != false)
    }

    /// Waits until the explorer decides on a read, and records the values that it returns.
    async fn may_read(&self, what: String, footprint: Footprint) -> Result<(), StoreError> {
        self.world
            .turn(self.actor, what, footprint.clone())
            .answered()
            .await?;
        let read = |(path, is_range): (&str, bool)| {
            let mut found = self.world.data.values(path);
            found.retain(|(other, ..)| is_range || other == path);
            found
        };
        let found: Vec<Values> = footprint.reads().map(read).collect();
        self.world.record_answer(self.actor, found);
        Ok(())
    }

    async fn ask(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        let what: Vec<String> = queries.iter().map(describe).collect();
        let footprint = queries.iter().fold(Footprint::default(), add);
        self.may_read(format!("read {}", what.join(", ")), footprint)
            .await?;
        self.world.data.read(queries).await
    }
}

impl Store for Client {
    fn now(&self) -> Timestamp {
        self.world.now()
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        match &self.server {
            Server::Etcd => self.ask(queries).await,
            Server::Api(store) => store.read(queries).await,
            Server::OneByOne => {
                let mut answers = Vec::with_capacity(queries.len());
                for query in queries {
                    answers.extend(self.ask(std::slice::from_ref(query)).await?);
                }
                Ok(answers)
            }
        }
    }

    /// Answers lists with the state before the first step if `known` allows that: the oldest state that a server may
    /// show.
    async fn read_since(
        &self,
        queries: &[Query],
        known: Option<&KnownState>,
    ) -> Result<ListsSince, StoreError> {
        if known.is_none() {
            let answers = self.read(queries).await?;
            return Ok(ListsSince { answers, state: None });
        }

        let is_get = |query: &&Query| matches!(query, Query::Get(_));
        let gets: Vec<Query> = queries.iter().filter(is_get).cloned().collect();
        let mut current = self.read(&gets).await?.into_iter();
        let mut answers = Vec::with_capacity(queries.len());
        for query in queries {
            if is_get(&query) {
                answers.extend(current.next());
            } else {
                let list = std::slice::from_ref(query);
                answers.extend(self.world.beginning().read(list).await?);
            }
        }
        Ok(ListsSince { answers, state: None })
    }

    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        if let Server::Api(store) = &self.server {
            return store.swap(swap).await;
        }
        let path = swap.record.key().to_string();
        let verb = match (&swap.read, swap.deletes) {
            (None, _) => "create",
            (Some(_), false) => "update",
            (Some(_), true) => "delete",
        };
        let footprint = Footprint::default().write(path.clone());
        let turn = self
            .world
            .turn(self.actor, format!("{verb} {}", short(&path)), footprint);
        let swap = swap.clone();
        let swapped = turn
            .executed(move |store| store.swap(&swap).now_or_never())
            .await?;
        let result = swapped.expect("a datastore in memory never waits");
        self.world
            .record_answer(self.actor, result.as_ref().err().map(ToString::to_string));
        if result.is_ok() {
            // The actor also learns the revision of its write.
            self.world
                .record_answer(self.actor, self.world.data.value_at(&path));
        }
        result
    }
}

impl From<Event> for StoreError {
    fn from(_: Event) -> Self {
        Self::Unavailable("no answer".into())
    }
}

fn add(footprint: Footprint, query: &Query) -> Footprint {
    match query {
        Query::Get(_) | Query::BlockKey(_) => footprint.read(query.path()),
        _ => footprint.read_range(query.path()),
    }
}

fn describe(query: &Query) -> String {
    match query {
        Query::Get(key) => short(&key.to_string()).to_owned(),
        Query::Affinities { holder, family, .. } => format!("affinities of {holder} IPv{}", family.number()),
        other => format!("{other:?}"),
    }
}
