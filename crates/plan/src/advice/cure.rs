//! Cures: remedies with the effect that they had when they were tried.

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::sync::Arc;

use calipam_check::{FindingKey, Remedy, Severity};
use calipam_model::IpNet;
use jiff::SignedDuration;

/// A remedy that helps.
#[derive(Clone, Debug, PartialEq)]
pub struct Cure {
    pub remedy: Remedy,
    /// The effect of the remedy in memory; `None` if it cannot be tried there. Causes share the effect of a remedy that
    /// helps several of them.
    pub effect: Option<Arc<Effect>>,
}

impl Cure {
    /// The time until the whole effect; `None` if the remedy was not tried.
    pub(super) fn delay(&self) -> Option<SignedDuration> {
        self.effect.as_ref().map(|effect| effect.delay())
    }
}

/// A cure of findings without a known cause.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherCure {
    /// The worst severity of the findings.
    pub severity: Severity,
    /// The findings for which it is meant.
    pub of: Vec<FindingKey>,
    pub cure: Cure,
}

/// The effect of a remedy that was tried in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effect {
    /// The findings that are resolved then.
    pub resolved: Vec<FindingKey>,
    /// The number of addresses that are released, all in all.
    pub addresses: usize,
    /// The number of those that are released at once. The others are released after a second check.
    pub at_once: usize,
    /// The time until the second check; `None` if it needs none.
    pub second_check: Option<SignedDuration>,
    /// The cooldown of released addresses, in seconds.
    pub cooldown: i64,
    /// The nodes whose next pod gets an address then, and gets none now.
    pub nodes: BTreeSet<String>,
    /// The waiting pods that get an address then, and get none now.
    pub pods: BTreeSet<String>,
    /// True if the explained pod, or the next one of the explained node, gets an address then, and gets none now.
    pub serves_pod: bool,
    /// The same for the tunnels of the explained node.
    pub serves_tunnels: bool,
    /// The number of borrowed addresses that are not allowed then, since the remedy turns strict affinity on. They keep
    /// working, and a check reports them.
    pub borrowed: usize,
    /// True if only workload endpoints in the same etcd show who uses addresses. The command then needs a kubeconfig,
    /// or the operator's word that the endpoints are right.
    pub endpoints_only: bool,
}

impl Effect {
    pub(super) fn is_nothing(&self) -> bool {
        self.resolved.is_empty()
            && self.addresses == 0
            && self.nodes.is_empty()
            && self.pods.is_empty()
            && !self.serves_explained()
    }

    /// True if it helps the request that is explained.
    pub fn serves_explained(&self) -> bool {
        self.serves_pod || self.serves_tunnels
    }

    /// The time until the whole effect.
    pub fn delay(&self) -> SignedDuration {
        let cooldown = if self.addresses > 0 { self.cooldown } else { 0 };
        self.second_check.unwrap_or_default() + SignedDuration::from_secs(cooldown)
    }
}

/// The largest number of blocks that a command names.
const BLOCKS: usize = 6;

/// The part of a cluster that a merged rebuild of several blocks covers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RebuildScope {
    /// It names the blocks, at most `BLOCKS` of them.
    NamedBlocks,
    /// It names no block.
    Everything,
}

/// Merges remedies into one of each kind, in their order: one release covers several nodes, and one rebuild several
/// blocks. Other kinds keep only the first remedy.
pub(super) fn merged(remedies: Vec<Remedy>, scope: RebuildScope) -> Vec<Remedy> {
    let mut merged: Vec<Remedy> = Vec::new();
    for remedy in remedies {
        let kind = discriminant(&remedy);
        let of_same_kind = merged.iter_mut().find(|other| discriminant(*other) == kind);
        match of_same_kind {
            Some(first) => extend(first, remedy, scope),
            None => merged.push(remedy),
        }
    }

    for remedy in &mut merged {
        if let Remedy::Rebuild(blocks) = remedy {
            limit(blocks, scope);
        }
    }
    merged
}

/// Extends a remedy by another one of the same kind, if the kind has a list of nodes or blocks.
fn extend(first: &mut Remedy, other: Remedy, scope: RebuildScope) {
    match (first, other) {
        (Remedy::ReleaseNodes(nodes), Remedy::ReleaseNodes(other_nodes)) => nodes.extend(other_nodes),
        (Remedy::Rebuild(blocks), Remedy::Rebuild(other_blocks)) => {
            if scope == RebuildScope::NamedBlocks {
                blocks.extend(other_blocks);
            } else if *blocks != other_blocks {
                // A rebuild that names no block covers them all.
                blocks.clear();
            }
        }
        _ => {}
    }
}

/// Limits the blocks that a rebuild names: none of several, or only as many as a command has room for.
fn limit(blocks: &mut BTreeSet<IpNet>, scope: RebuildScope) {
    match scope {
        RebuildScope::NamedBlocks => {
            while blocks.len() > BLOCKS {
                blocks.pop_last();
            }
        }
        RebuildScope::Everything => {
            if blocks.len() > 1 {
                blocks.clear();
            }
        }
    }
}

/// True if the merged remedy `whole` covers this one.
pub(super) fn is_part_of(remedy: &Remedy, whole: &Remedy) -> bool {
    match (remedy, whole) {
        (Remedy::Rebuild(blocks), Remedy::Rebuild(all)) => all.is_empty() || blocks.is_subset(all),
        (Remedy::ReleaseNodes(nodes), Remedy::ReleaseNodes(all)) => nodes.is_subset(all),
        _ => remedy == whole,
    }
}
