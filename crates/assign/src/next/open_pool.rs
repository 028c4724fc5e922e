//! Pools that serve requests that name no pool.

use std::collections::BTreeMap;

use calipam_model::pool::{Pool, PoolUse};
use calipam_model::selector::Selector;
use calipam_model::snapshot::Snapshot;

use crate::event::PoolPassedOver;
use crate::family::Family;

/// A pool that serves requests that name no pool.
pub(super) struct OpenPool<'s> {
    pub pool: &'s Pool,
    /// The nodes that the pool selects.
    pub nodes: Selector,
    /// True if the pool serves only namespaces with certain labels.
    pub needs_labels: bool,
    /// The pool's namespace selector.
    pub namespaces: Selector,
    /// True if the pool serves at least one namespace, or namespaces were not read.
    serves_some: bool,
}

impl OpenPool<'_> {
    /// True if pods in some namespace get addresses from the pool.
    pub(super) fn is_usable(&self) -> bool {
        self.serves_some && self.pool.allows(PoolUse::Workload)
    }
}

impl<'s> OpenPool<'s> {
    /// Reads the selectors of a pool; `None` if one of them does not parse.
    fn new(pool: &'s Pool, snapshot: &Snapshot) -> Option<Self> {
        let nodes = pool.selected_nodes().ok()?;
        let namespaces = pool.selected_namespaces().ok()?;
        let no_labels = BTreeMap::new();
        let needs_labels = !namespaces.matches(&no_labels);

        // If the namespaces were not read, the selector may match one of them.
        let serves_some = match &snapshot.namespaces {
            Some(existing) if needs_labels => existing
                .values()
                .any(|namespace| namespaces.matches(&namespace.labels)),
            _ => true,
        };
        Some(Self {
            pool,
            nodes,
            needs_labels,
            namespaces,
            serves_some,
        })
    }
}

/// The enabled pools of a family that serve requests that name no pool; `None` if a selector does not parse.
pub(super) fn open_pools(snapshot: &Snapshot, family: Family) -> Option<Vec<OpenPool<'_>>> {
    let mut open = Vec::new();
    for pool in snapshot.pools.iter().map(|stored| &stored.value) {
        let is_open = PoolPassedOver::of_state(pool).is_none() && pool.automatic;
        if is_open && Family::of(pool.cidr) == family {
            open.push(OpenPool::new(pool, snapshot)?);
        }
    }
    Some(open)
}
