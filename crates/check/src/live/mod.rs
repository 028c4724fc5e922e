//! What a check finds in a snapshot that changes, kept up by checking again only what a change touches.
//!
//! Nothing is checked by other rules than those of a check: they run on the same snapshot, in which the long lists, of endpoints,
//! pods and handles, are cut to what the [touched](Touched) addresses, handles and workloads depend on ([`scope`]). What is about
//! anything else (pools, settings) is checked again each time, since blocks are few, and what is about blocks, affinities and nodes
//! if a change reaches the [`layout`]. Where a change may reach further, as that of a node, of a pool or of something that cannot
//! be decoded, everything is checked again.

mod layout;
mod near;
mod places;
mod scope;
mod standing;
#[cfg(test)]
mod standing_tests;
#[cfg(test)]
mod tests;
mod touched;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::{replace, take};
use std::net::IpAddr;

use calipam_assign::Family;
use calipam_model::IpNet;
use calipam_model::snapshot::{Snapshot, StoredBlock};
use jiff::Timestamp;

use self::layout::Layout;
use self::places::Places;
use self::scope::{Needed, Scope};
pub use self::standing::Standing;
pub use self::touched::Touched;
use crate::context::{grace, is_young, next_turn};
use crate::finding::Finding;
use crate::index::{Index, Owner, is_for_services_only};
use crate::occupancy::Occupancy;
use crate::report::Report;
use crate::rules::{self, Found};
use crate::{Context, Options, report, uses_ipam};

/// What a check has found.
#[derive(Debug)]
pub struct LiveCheck {
    options: Options,
    places: Places,
    findings: Vec<Finding>,
    layout: Layout,
    /// Addresses that blocks record and nothing uses.
    unused: BTreeSet<IpAddr>,
    /// When the next allocation of a block becomes old enough to be checked; blocks without such are left out.
    turns: BTreeMap<IpNet, Timestamp>,
    /// For each family an address that an endpoint or pod uses, where any does: whether pods need addresses of the family.
    in_use: [Option<IpAddr>; 2],
    /// Blocks that are corrupt or cannot be decoded: a change among them reaches far.
    unchecked: HashSet<IpNet>,
    /// See [`has_parts`].
    has_parts: bool,
    services_only: bool,
    /// When it was checked last.
    at: Timestamp,
}

/// How much was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// What had changed.
    Part,
    Everything,
}

/// What the rules have found again.
struct Renewed {
    found: Found,
    /// `None` where it is as it was.
    layout: Option<Layout>,
    /// What is known to be in use.
    in_use: [Option<IpAddr>; 2],
}

impl LiveCheck {
    /// Checks everything.
    pub fn new(snapshot: &Snapshot, options: &Options) -> Self {
        let context = Context::new(snapshot, options);
        let services_only = context.index.services_only;
        let Found { findings, layout, unused } = context.find();
        let in_use = Family::BOTH.map(|family| used_by_workload(&context.index, family));
        let unchecked = context.index.unchecked();
        // It is large, and the places need as much memory as is left then.
        drop(context);
        let mut check = Self {
            options: options.clone(),
            places: Places::new(snapshot),
            findings,
            layout: Layout::new(layout),
            unused: unused.into_iter().collect(),
            turns: BTreeMap::new(),
            in_use,
            unchecked,
            has_parts: has_parts(snapshot),
            services_only,
            at: snapshot.taken_at,
        };
        for block in &snapshot.blocks {
            check.note_turn(&block.value, snapshot);
        }
        check
    }

    /// Checks again what has changed since the last time, and what time has changed. Afterwards its report is that of a check of
    /// the snapshot.
    pub fn update(&mut self, snapshot: &mut Snapshot, touched: Touched) -> Checked {
        if !self.update_part(snapshot, touched) {
            *self = Self::new(snapshot, &self.options);
            return Checked::Everything;
        }
        self.at = snapshot.taken_at;
        Checked::Part
    }

    /// What a check finds, in no order.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().chain(&self.layout.findings)
    }

    /// The report of a check.
    pub fn report(&self, snapshot: &Snapshot) -> Report {
        report(snapshot, self.services_only, self.findings().cloned().collect())
    }

    /// False where everything has to be checked.
    fn update_part(&mut self, snapshot: &mut Snapshot, mut touched: Touched) -> bool {
        if touched.everything || !self.has_parts || !has_parts(snapshot) || snapshot.taken_at < self.at {
            return false;
        }
        self.places.change(take(&mut touched.gone), take(&mut touched.come));
        self.age(snapshot, &mut touched);
        let scope = Scope::new(touched, &self.places, snapshot, &self.unused);
        let needed = Needed::new(&scope, &self.places, snapshot, self.in_use.into_iter().flatten());
        let Some(Renewed { found, layout, in_use }) = self.find(snapshot, &scope, needed) else {
            return false;
        };

        self.in_use = in_use;
        if let Some(layout) = layout {
            self.layout = layout;
        }
        self.findings.retain(|finding| !scope.decides(&finding.subject));
        self.findings.extend(found.findings.into_iter().filter(|finding| scope.decides(&finding.subject)));
        self.unused.retain(|address| !scope.part.addresses.contains(*address));
        self.unused.extend(found.unused);
        true
    }

    /// Runs the rules on the snapshot, with what is needed of its long lists in their place; `None` where everything has to be
    /// checked.
    fn find(&self, snapshot: &mut Snapshot, scope: &Scope, needed: Needed) -> Option<Renewed> {
        let Needed { endpoints, pods, handles } = needed;
        let endpoints = replace(&mut snapshot.endpoints, endpoints);
        let pods = replace(&mut snapshot.pods, pods);
        let handles = replace(&mut snapshot.handles, handles);

        let found = self.find_narrowed(snapshot, scope);

        snapshot.endpoints = endpoints;
        snapshot.pods = pods;
        snapshot.handles = handles;
        found
    }

    fn find_narrowed(&self, snapshot: &Snapshot, scope: &Scope) -> Option<Renewed> {
        let context = Context::of_nodes(snapshot, &self.options);
        if context.index.unchecked() != self.unchecked {
            return None;
        }
        let mut in_use = self.in_use;
        for (family, known) in Family::BOTH.into_iter().zip(&mut in_use) {
            let was_known = known.is_some();
            if known.is_none_or(|address| scope.part.addresses.contains(address)) {
                *known = used_by_workload(&context.index, family);
            }
            // What else uses one is not in sight.
            if was_known && known.is_none() {
                return None;
            }
        }
        let occupancy = Occupancy::new(&context);
        Some(Renewed {
            found: rules::run_on(&context, &occupancy, &scope.part),
            layout: self.layout.renewed(&context, &occupancy, &scope.reach),
            in_use,
        })
    }

    /// Touches what is checked otherwise only because time has passed, and notes when that will be so again.
    fn age(&mut self, snapshot: &Snapshot, touched: &mut Touched) {
        let (before, now, grace) = (self.at, snapshot.taken_at, grace(snapshot, &self.options));
        let has_turned = |turn: &Timestamp| *turn <= now;
        let turned: HashSet<IpNet> =
            self.turns.iter().filter(|(_, turn)| has_turned(turn)).map(|(block, _)| *block).collect();
        self.turns.retain(|block, _| !turned.contains(block) && !touched.blocks.contains(block));

        for block in snapshot.blocks.iter().map(|block| &block.value) {
            let is_turned = turned.contains(&block.key);
            if is_turned {
                let allocations = block.content.usable().into_iter().flat_map(|block| block.allocations());
                let is_other = |at: Timestamp| is_young(at, before, grace) != is_young(at, now, grace);
                let others = allocations.filter(|a| a.attribute.allocated_at().is_some_and(is_other));
                touched.addresses.extend(others.map(|allocation| allocation.address));
            }
            if is_turned || touched.blocks.contains(&block.key) {
                self.note_turn(block, snapshot);
            }
        }
        let is_old = |at: Timestamp, now: Timestamp| now.duration_since(at) > grace;
        for pod in snapshot.pods.iter().map(|pod| &pod.value).filter(|pod| pod.finished) {
            if pod.finished_at.is_some_and(|at| is_old(at, before) != is_old(at, now)) {
                touched.note_pod(pod);
            }
        }
    }

    fn note_turn(&mut self, block: &StoredBlock, snapshot: &Snapshot) {
        let (now, grace) = (snapshot.taken_at, grace(snapshot, &self.options));
        let records = block.content.usable().into_iter().flat_map(|block| block.attributes());
        let turns = records.filter_map(|record| next_turn(record.allocated_at()?, now, grace));
        if let Some(turn) = turns.min() {
            let earliest = self.turns.entry(block.key).or_insert(turn);
            *earliest = turn.min(*earliest);
        }
    }
}

/// False where everything is checked each time: nodes do not use Calico IPAM.
fn has_parts(snapshot: &Snapshot) -> bool {
    uses_ipam(snapshot) && !is_for_services_only(snapshot)
}

/// An address of a family that an endpoint or pod uses.
fn used_by_workload(index: &Index<'_>, family: Family) -> Option<IpAddr> {
    let is_workload = |owner| matches!(owner, Owner::Endpoint(_) | Owner::Pod(_));
    let mut uses = index.uses.iter().filter(|used| is_workload(used.owner)).map(|used| used.address);
    uses.find(|address| Family::of_address(*address) == family)
}
