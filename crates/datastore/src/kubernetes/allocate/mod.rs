//! The Kubernetes datastore for an allocator. Sends independent queries in parallel. If an object is known from an
//! earlier read, replaces it without another read.

mod keys;
mod many;
mod read;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use calipam_assign::{Entry, KnownState, ListsSince, Query, Record, StoreError, Swap};
use calipam_files::objects::names::object_name;
use calipam_model::key::Key;
use calipam_model::parallel::lock;
use calipam_model::snapshot::{Revision, Snapshot, Source};
use jiff::Timestamp;
use serde_json::Value;

use self::read::Answer;
use super::again;
use super::client::KubeClient;
use super::client::discovery::Api;
use super::write::change::{Target, version};
use crate::allocation::{Records, Selecting, unavailable};
use crate::clock;
use crate::error::{Cause, Error, Failure, Result};
use crate::retries::{ALLOCATIONS, Retries};
use crate::tasks;
use crate::write::is_version;

#[derive(Debug)]
pub(crate) struct KubeStore {
    state: Mutex<State>,
    selecting: Selecting,
}

#[derive(Debug)]
struct State {
    client: Arc<KubeClient>,
    /// True if the API group of Calico's objects is assumed, but not confirmed.
    is_assumed: bool,
    /// Objects as last read or written.
    objects: HashMap<Key, Value>,
}

impl KubeStore {
    /// Creates a store on a client.
    pub(crate) fn new(client: Arc<KubeClient>, selecting: Selecting) -> Self {
        Self {
            state: Mutex::new(State {
                client,
                is_assumed: false,
                objects: HashMap::new(),
            }),
            selecting,
        }
    }

    /// Notes that the API group of Calico's objects was not looked up yet.
    pub(crate) fn with_assumed_group(self) -> Self {
        self.state().is_assumed = true;
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn client(&self) -> Arc<KubeClient> {
        Arc::clone(&self.state().client)
    }

    /// Sends queries in parallel, and retries temporary failures, except after a timeout. The first attempt lists
    /// objects not older than `known`; a server that does not have this state yet is asked for the current one.
    async fn ask(&self, queries: &[Query], known: Option<&KnownState>) -> Result<Vec<Answer>, StoreError> {
        let mut listing = Listing {
            selecting: self.selecting,
            not_older_than: known.map(|state| state.version.clone()),
        };
        let mut retries = Retries::new(&ALLOCATIONS);
        loop {
            let error = match answer_all(&self.client(), queries, &listing).await {
                Ok(answers) => return Ok(answers),
                Err(error) => error,
            };
            if is_timeout(&error) {
                return Err(unavailable(error));
            }
            retries.wait(error).await.map_err(unavailable)?;
            listing.not_older_than = None;
        }
    }

    /// Finds out from the first answers if the assumed API group exists. If no answer shows the group and an object is
    /// missing, asks the server. Returns true if the cluster has the other group.
    async fn is_other_group(&self, answers: &[Answer]) -> Result<bool, StoreError> {
        if answers.iter().any(|answer| answer.shows_group) {
            self.state().is_assumed = false;
            return Ok(false);
        }
        if !answers.iter().any(|answer| answer.misses_kind) {
            return Ok(false);
        }
        let client = self.client();
        let api = Api::discover(&client, "").await.map_err(unavailable)?;
        let is_other = api.flavour != client.api().flavour;
        let mut state = self.state();
        state.client = client.with_api(api);
        state.is_assumed = false;
        Ok(is_other)
    }

    /// Keeps the objects of answers for later writes. Of many answers it keeps none, since few of those objects will be
    /// written.
    fn keep_objects(&self, answers: &mut [Answer]) {
        let mut state = self.state();
        if answers.len() > MAX_KEPT_OBJECTS {
            state.objects.clear();
            return;
        }
        for answer in answers {
            state.objects.extend(answer.object.take());
        }
    }

    /// The object at a revision: from the last read or write, or from a new read.
    async fn object(&self, target: &Target<'_>, key: &Key, revision: &Revision) -> Result<Value, Failure> {
        let kept = self.state().objects.get(key).cloned();
        if let Some(object) = kept
            && is_version(&version(&object), revision)
        {
            return Ok(object);
        }
        target.read_expected(revision).await
    }
}

#[async_trait]
impl Records for KubeStore {
    fn request_count(&self) -> u64 {
        self.client().request_count()
    }

    fn kubernetes(&self) -> Option<Arc<KubeClient>> {
        Some(self.client())
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        Ok(self.read_since(queries, None).await?.answers)
    }

    /// Answers queries, and keeps the objects that were read for a later write. If the API group was assumed wrongly,
    /// asks once more.
    async fn read_since(
        &self,
        queries: &[Query],
        known: Option<&KnownState>,
    ) -> Result<ListsSince, StoreError> {
        let started = clock::now();
        let mut answers = self.ask(queries, known).await?;
        if self.state().is_assumed && self.is_other_group(&answers).await? {
            answers = self.ask(queries, known).await?;
        }

        let state = match known {
            None => listed_state(&answers, started),
            // These lists may be as old as the known state.
            Some(_) => None,
        };
        self.keep_objects(&mut answers);
        Ok(ListsSince {
            answers: answers.into_iter().map(|answer| answer.entries).collect(),
            state,
        })
    }

    async fn reread(&self, keys: &BTreeSet<Key>) -> Result<Snapshot> {
        again::reread(&self.client(), keys).await
    }

    /// Writes or deletes an object, if it is as it was read.
    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        let client = self.client();
        let key = swap.record.key();
        let failed = |failure| match failure {
            Failure::NotFound => StoreError::NotFound(key.clone()),
            Failure::Conflict(_) if swap.read.is_none() => StoreError::Exists(key.clone()),
            Failure::Conflict(_) => StoreError::Conflict(key.clone()),
            failure => unavailable(client.write_error(&object_name(&key), failure)),
        };
        let target = Target::locate(&client, &key, LABELLED).map_err(failed)?;
        let value = new_value(swap).map_err(failed)?;
        let mut old_object = None;
        if let Some(revision) = &swap.read {
            old_object = Some(self.object(&target, &key, revision).await.map_err(failed)?);
        }
        if swap.deletes {
            self.state().objects.remove(&key);
        }
        match target.swap(old_object, value).await.map_err(failed)? {
            Some(object) => {
                let revision = version(&object);
                self.state().objects.insert(key, object);
                Ok(revision)
            }
            None => Ok(Revision::Kubernetes(Box::default())),
        }
    }

    /// Adds the missing labels to a node's affinities, and returns their number.
    async fn label_affinities(&self, node: &str) -> Result<usize, StoreError> {
        let client = self.client();
        let mut labelled = 0;
        for entry in read::affinities_of(&client, node).await.map_err(unavailable)? {
            if !lacks_labels(&entry) {
                continue;
            }
            // Each write of an affinity sets its labels, so it is written as it is.
            let swap = Swap {
                record: entry.record,
                read: Some(entry.revision),
                deletes: false,
            };
            match self.swap(&swap).await {
                Ok(_) => labelled += 1,
                // Another client has labeled, changed or deleted the affinity. Affinities that it writes have labels.
                Err(error) if error.is_lost_race() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(labelled)
    }
}

/// True if a read has timed out, so that the caller has no time left for another attempt.
fn is_timeout(error: &Error) -> bool {
    matches!(
        error,
        Error::Request {
            failure: Failure::Connection(Cause::TimedOut(_) | Cause::GivenUp(_)),
            ..
        }
    )
}

/// The state since which later calls can list: the version of the oldest list, which is no older than `started`, a time
/// before all lists. `None` if there is no list, or if a version is no number.
fn listed_state(answers: &[Answer], started: Timestamp) -> Option<KnownState> {
    let oldest_version = answers.iter().filter_map(|answer| answer.list_version).min()?;
    // A version that is no number counts as 0.
    if oldest_version == 0 {
        return None;
    }
    Some(KnownState {
        version: oldest_version.to_string(),
        at: started,
    })
}

/// The value that a swap writes; `None` if it deletes the object.
///
/// # Errors
/// If records of this kind are never written.
fn new_value(swap: &Swap) -> Result<Option<Vec<u8>>, Failure> {
    let Some(record) = swap.after() else {
        return Ok(None);
    };
    match record.encode() {
        Some(value) => Ok(Some(value)),
        None => Err(Failure::Other("records of this kind are never written".into())),
    }
}

/// True if a stored affinity lacks one of the labels with which Calico finds it.
fn lacks_labels(entry: &Entry) -> bool {
    let Record::Affinity(affinity) = &entry.record else {
        return false;
    };
    let Revision::Kubernetes(version) = &entry.revision else {
        return false;
    };
    let has_label = |(name, value): &(&str, String)| version.labels.get(*name) == Some(value);
    !affinity.key.labels().iter().all(has_label)
}

/// The way to list objects.
#[derive(Clone, Debug)]
struct Listing {
    selecting: Selecting,
    /// A resource version that lists must have reached; `None` for the current state.
    not_older_than: Option<String>,
}

/// Answers queries. Reads many blocks in pages, and sends all other queries in parallel.
async fn answer_all(client: &Arc<KubeClient>, queries: &[Query], listing: &Listing) -> Result<Vec<Answer>> {
    if let [query] = queries {
        return Ok(vec![answer(client, query, listing).await?]);
    }
    if let Some(blocks) = many::asked_for(queries) {
        return many::blocks(client, blocks).await;
    }
    let mut answers = Vec::new();
    for query in queries {
        let client = Arc::clone(client);
        let query = query.clone();
        let listing = listing.clone();
        answers.push(async move { answer(&client, &query, &listing).await });
    }
    tasks::all(usize::MAX, answers).await
}

/// Answers one query with a read of its own.
async fn answer(client: &Arc<KubeClient>, query: &Query, listing: &Listing) -> Result<Answer> {
    let is_wanted = |key: &Key| query.asks_for(key);
    let list =
        async |source| read::listed(client, source, listing.not_older_than.as_deref(), is_wanted).await;
    match query {
        Query::Get(key) => read::get(client, key).await,
        Query::Pools => list(Source::Pools).await,
        Query::Reservations => list(Source::Reservations).await,
        Query::Blocks(_) => list(Source::Blocks).await,
        Query::HostAffinities => list(Source::Affinities).await,
        Query::Affinities { kind, holder, family } => match listing.selecting {
            Selecting::All => list(Source::Affinities).await,
            Selecting::ByLabels => {
                let selector = read::selector(kind, holder, *family);
                let since = listing.not_older_than.as_deref();
                read::affinities_with_labels(client, &selector, since, is_wanted).await
            }
        },
        Query::BlockKey(cidr) => keys::block_key(client, *cidr).await,
        Query::Overlapping(cidr) => keys::overlapping(client, *cidr).await,
        Query::BlockKeys(_) => keys::block_keys(client, keys::NAMES, query).await,
        Query::BlockRevisions(_) => keys::block_keys(client, keys::WITH_REVISIONS, query).await,
    }
}

/// Maximum number of queries in a read whose objects are kept. Kept objects can be replaced without another read.
const MAX_KEPT_OBJECTS: usize = 16;

/// Affinities are written with labels, since Calico 3.31 and later finds them by labels.
const LABELLED: bool = true;
