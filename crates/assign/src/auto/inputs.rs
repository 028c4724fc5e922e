//! The inputs of a request, which are read before any block.

use calipam_model::affinity::{Affinity, AffinityType};
use calipam_model::cidr_set::CidrSet;
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::pool::{Pool, Reservation};
use calipam_model::snapshot::Versioned;
use jiff::Timestamp;

use super::holder_kind;
use crate::allocator::{self, Allocator};
use crate::error::{Error, Result};
use crate::family::Family;
use crate::handle::KnownHandle;
use crate::pools;
use crate::recent::KnownState;
use crate::record::Record;
use crate::request::AutoAssign;
use crate::store::{Entry, Query, Store};

/// The data that a request needs besides the blocks: configuration, pools, reservations, the node, its affinities and
/// the handle.
#[derive(Debug)]
pub struct Inputs {
    /// A time at which the inputs were current.
    pub(super) made_at: Timestamp,
    /// True if a caller read the inputs before calling [`Allocator::auto_assign_after`]. Other clients may have changed
    /// the data since.
    pub(super) is_early: bool,
    pub(super) kind: AffinityType,
    pub(super) config: IpamConfig,
    pub(super) reserved: CidrSet,
    pub(super) pools: Vec<Pool>,
    pub(super) node: Node,
    pub(super) affinities: Vec<Versioned<Affinity>>,
    pub(super) handle: KnownHandle,
}

impl<S: Store> Allocator<S> {
    /// Reads everything that a request needs besides the blocks, in one round trip for both families.
    ///
    /// Call this before waiting for a lock. On Kubernetes, a list request shortly after a write can take a tenth of a
    /// second, since the API server's cache must first catch up with etcd. So pools, reservations and affinities are
    /// listed since the state that an earlier call on the node has noted, if it is recent. See
    /// [`Self::auto_assign_after`].
    pub async fn read_inputs(&self, request: &AutoAssign) -> Result<Inputs> {
        let now = self.now();
        let noted = self.notes.as_ref().and_then(|notes| notes.known_state());
        self.inputs_since(request, noted.filter(|state| state.is_usable(now)))
            .await
    }

    /// Reads the current inputs.
    pub(super) async fn current_inputs(&self, request: &AutoAssign) -> Result<Inputs> {
        self.inputs_since(request, None).await
    }

    /// Reads the inputs, and lists not older than `known`. Notes the state of current lists.
    async fn inputs_since(&self, request: &AutoAssign, known: Option<KnownState>) -> Result<Inputs> {
        let made_at = known.as_ref().map_or_else(|| self.now(), |state| state.at);
        let kind = holder_kind(Some(request.intended_use.ok_or(Error::UseRequired)?));
        let mut families = Family::BOTH.to_vec();
        families.retain(|family| request.count(*family) > 0);

        let mut queries = vec![Query::Get(Key::IpamConfig), Query::Reservations, Query::Pools];
        for family in &families {
            queries.push(Query::Affinities {
                kind: kind.clone(),
                holder: request.host.clone(),
                family: *family,
            });
        }
        if kind == AffinityType::Host {
            queries.push(Query::Get(Key::Node(request.host.clone())));
        }
        if let Some(id) = &request.handle {
            queries.push(Query::Get(Key::Handle(id.clone())));
        }

        let read = self.store().read_since(&queries, known.as_ref()).await?;
        if let (Some(notes), Some(state)) = (&self.notes, &read.state) {
            notes.keep_known_state(state);
        }
        // The answers have the order of the queries.
        let mut answers = read.answers.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        let config = allocator::config(next())?;
        if request.windows && !config.serves_windows() {
            return Err(Error::WindowsNeedsStrictAffinity);
        }
        if let Some(name) = &self.fatal_reservation {
            return Err(Error::MalformedReservation(name.clone()));
        }
        let reservations = next()
            .into_iter()
            .filter_map(|entry| Option::<Reservation>::from(entry.record));
        let reserved = CidrSet::new(reservations.flat_map(|reservation| reservation.cidrs));
        let pools = pools::pools(next());
        let affinities = affinities_of(families.iter().flat_map(|_| next()));
        let node = if kind == AffinityType::Host {
            let node: Option<Versioned<Node>> = allocator::one(next())?;
            node.ok_or_else(|| Error::NoNode(request.host.clone()))?.value
        } else {
            Node::default()
        };
        let handle = match request.handle {
            Some(_) => allocator::one(next())?.into(),
            None => KnownHandle::Unread,
        };
        Ok(Inputs {
            made_at,
            is_early: false,
            kind,
            config,
            reserved,
            pools,
            node,
            affinities,
            handle,
        })
    }
}

/// Returns the affinities in query answers. On every datastore, they are sorted by their etcd paths.
pub(crate) fn affinities_of(found: impl Iterator<Item = Entry>) -> Vec<Versioned<Affinity>> {
    let mut affinities: Vec<Versioned<Affinity>> = Vec::new();
    for entry in found {
        if let Record::Affinity(value) = entry.record {
            let revision = entry.revision;
            affinities.push(Versioned { value, revision });
        }
    }
    affinities.sort_by_cached_key(|affinity| Key::Affinity(affinity.value.key.clone()).to_string());
    affinities
}
