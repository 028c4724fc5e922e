//! The allocator's decisions in words: subject, result, and the keys of the deciding objects.

use calipam_assign::{Event, NotReclaimed, OwnBlock, Passed};
use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::affinity::AffinityKey;
use calipam_model::block::BlockOwner;
use calipam_model::cidr::overlap;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::snapshot::Snapshot;
use serde::{Serialize, Serializer};

/// One decision of the allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Decision {
    pub step: DecisionStep,
    /// The object that was considered.
    pub subject: Subject,
    /// The result, in one line.
    pub detail: String,
    /// The keys of the deciding objects, in etcd's form.
    #[serde(serialize_with = "texts")]
    pub keys: Vec<Key>,
}

fn texts<S: Serializer>(keys: &[Key], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(keys.iter().map(ToString::to_string))
}

/// The part of the algorithm that decided (facts 3.3, 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DecisionStep {
    /// The request itself.
    Request,
    /// The selection of pools for the request.
    Pool,
    /// Free addresses in the node's own blocks.
    OwnBlock,
    /// The node's block limit.
    Limit,
    /// The search for another block.
    Claim,
    /// Addresses in other nodes' blocks.
    Borrow,
    Assign,
}

calipam_model::display_serialized!(DecisionStep);

/// Describes an event of the allocator as a decision.
pub(super) fn of(snapshot: &Snapshot, node: &Node, event: &Event) -> Decision {
    let named = || Subject::Node(node.name.clone());
    let config = || vec![Key::IpamConfig];
    let (step, subject, detail, keys) = match event {
        Event::Family { family, wanted } => {
            let detail = format!("{wanted} {family} wanted");
            (DecisionStep::Request, named(), detail, vec![Key::Node(node.name.clone())])
        }
        Event::PoolServes { pool, cidr } => {
            let detail = format!("{pool}: serves the request");
            (DecisionStep::Pool, Subject::Pool(*cidr), detail, vec![Key::Pool(pool.clone())])
        }
        Event::PoolPassedOver { pool, cidr, why } => {
            let detail = format!("{pool}: skipped, {why}");
            (DecisionStep::Pool, Subject::Pool(*cidr), detail, vec![Key::Pool(pool.clone())])
        }
        Event::GaveUp(key) => {
            let detail = "released: its pool no longer selects the node, and it is empty".to_owned();
            (DecisionStep::OwnBlock, Subject::Block(key.cidr), detail, block_and_affinity(key))
        }
        Event::OwnBlock { key, found } => {
            let (detail, keys) = own_block(snapshot, key, found);
            (DecisionStep::OwnBlock, Subject::Block(key.cidr), detail, keys)
        }
        Event::NeedsBlock { held, limit } => {
            let detail = format!("needs another block: it holds {held} of {limit} in these pools");
            (DecisionStep::Limit, named(), detail, config())
        }
        Event::BlockLimit { held, limit } => {
            let detail = format!(
                "holds {held} blocks in these pools and may hold {limit}: it gets no more, and nothing is borrowed"
            );
            (DecisionStep::Limit, named(), detail, config())
        }
        Event::NoAutoAllocation => {
            let detail = "nodes cannot claim blocks (autoAllocateBlocks is false)".to_owned();
            (DecisionStep::Limit, named(), detail, config())
        }
        Event::Searched { pool, cidr, passed } => {
            let detail = format!("{pool}: no room for a new block{}", passed_over(*passed));
            (DecisionStep::Claim, Subject::Pool(*cidr), detail, vec![Key::Pool(pool.clone())])
        }
        Event::NotReclaimed { block, owner, why } => {
            let detail =
                format!("empty, but not taken from {}: {}", owner_name(owner.as_ref()), not_reclaimed(why));
            (DecisionStep::Claim, Subject::Block(*block), detail, vec![Key::Block(*block)])
        }
        Event::Reclaimed(key) => {
            let detail = format!("empty, taken from {}", key.owner());
            (DecisionStep::Claim, Subject::Block(key.cidr), detail, block_and_affinity(key))
        }
        Event::Claimed(key) => {
            let detail = format!("claimed for {}", key.owner());
            (DecisionStep::Claim, Subject::Block(key.cidr), detail, block_and_affinity(key))
        }
        Event::NothingToClaim => {
            (DecisionStep::Claim, named(), "finds no block to claim in these pools".to_owned(), Vec::new())
        }
        Event::NothingBorrowed => {
            let detail = "borrows nothing: strict affinity is on".to_owned();
            (DecisionStep::Borrow, named(), detail, config())
        }
        Event::Borrows { pool, cidr, blocks } => {
            let detail = format!("{pool}: searches its {blocks} blocks for single addresses");
            (DecisionStep::Borrow, Subject::Pool(*cidr), detail, vec![Key::Pool(pool.clone())])
        }
        Event::BlockOfAddress { address, block, owner } => {
            let detail = format!("is in block {block} of {}", owner_name(owner.as_ref()));
            (DecisionStep::OwnBlock, Subject::Address(*address), detail, vec![Key::Block(*block)])
        }
        Event::NoBlockOfAddress { address, block } => {
            let detail = format!("its block {block} does not exist, and is claimed");
            (DecisionStep::Claim, Subject::Address(*address), detail, vec![Key::Block(*block)])
        }
        Event::Assigned { block, owner, addresses } => {
            let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let borrowed = match owner {
                Some(BlockOwner::Host(host)) if *host == node.name => String::new(),
                other => format!(", borrowed from {}", owner_name(other.as_ref())),
            };
            let detail = format!("assigns {}{borrowed}", texts.join(", "));
            (DecisionStep::Assign, Subject::Block(*block), detail, vec![Key::Block(*block)])
        }
    };

    Decision { step, subject, detail, keys }
}

fn own_block(snapshot: &Snapshot, key: &AffinityKey, found: &OwnBlock) -> (String, Vec<Key>) {
    let mut keys = block_and_affinity(key);
    let state = snapshot.affinities.iter().find(|affinity| affinity.value.key == *key);
    let state = state.map(|affinity| affinity.value.state.clone()).unwrap_or_default();
    let unconfirmed = match state {
        calipam_model::affinity::AffinityState::Confirmed => String::new(),
        state => format!(" (its affinity was {state})"),
    };

    let detail = match found {
        OwnBlock::Free(free) => format!("the node's own: {free} free"),
        OwnBlock::Full { reserved: 0, cooling: 0 } => "the node's own: full".to_owned(),
        OwnBlock::Full { reserved, cooling } => {
            keys.extend(reservations(snapshot, key.cidr));
            format!(
                "the node's own: full; {reserved} free addresses are reserved, {cooling} are cooling down"
            )
        }
        OwnBlock::Reserved(cidr) => {
            keys.extend(reservations(snapshot, *cidr));
            "the node's own: completely reserved".to_owned()
        }
        OwnBlock::Stale => {
            "belongs to another owner: the node's affinity is stale and was removed".to_owned()
        }
        OwnBlock::Gone => "its affinity is gone".to_owned(),
        OwnBlock::Unusable(reason) => format!("cannot be used: {reason}"),
    };

    (format!("{detail}{unconfirmed}"), keys)
}

fn passed_over(passed: Passed) -> String {
    let Passed { reserved, other_size, undecodable, full, in_use, empty, unread } = passed;
    let parts = [
        (full, "full"),
        (in_use, "owned by others, with free addresses"),
        (empty, "owned by others and empty"),
        (unread, "not examined"),
        (reserved, "reserved"),
        (other_size, "taken by a block of another size"),
        (undecodable, "cannot be decoded"),
    ];

    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    if parts.is_empty() { ": it is too small for one".to_owned() } else { format!(": {}", parts.join(", ")) }
}

fn not_reclaimed(why: &NotReclaimed) -> String {
    match why {
        NotReclaimed::Young => "claimed less than a minute ago".to_owned(),
        NotReclaimed::NoOwner => "it has no owner that could release it".to_owned(),
        NotReclaimed::Failed(reason) => reason.clone(),
    }
}

fn reservations(snapshot: &Snapshot, cidr: IpNet) -> impl Iterator<Item = Key> + '_ {
    let touches = move |cidrs: &[IpNet]| cidrs.iter().any(|other| overlap(*other, cidr));
    let touching = snapshot.reservations.iter().filter(move |stored| touches(&stored.value.cidrs));
    touching.map(|stored| Key::Reservation(stored.value.name.clone()))
}

fn block_and_affinity(key: &AffinityKey) -> Vec<Key> {
    vec![Key::Block(key.cidr), Key::Affinity(key.clone())]
}

fn owner_name(owner: Option<&BlockOwner>) -> String {
    owner.map_or_else(|| "no owner".to_owned(), ToString::to_string)
}
