//! The allocator's decisions in words. Each decision has a subject, a result, and the keys of the objects that led to
//! it.

use std::net::IpAddr;

use calipam_assign::{Event, NotReclaimed, OwnBlock, Passed};
use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityState};
use calipam_model::block::BlockOwner;
use calipam_model::cidr::overlap;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::snapshot::Snapshot;
use serde::{Serialize, Serializer};

use super::text::joined;

/// One decision of the allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Decision {
    pub step: DecisionStep,
    /// The object that was considered.
    pub subject: Subject,
    /// The result, in one line.
    pub detail: String,
    /// The keys of the objects that led to the decision, as etcd paths.
    #[serde(serialize_with = "texts")]
    pub keys: Vec<Key>,
}

fn texts<S: Serializer>(keys: &[Key], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(keys.iter().map(ToString::to_string))
}

/// The part of the allocation algorithm that made a decision.
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
pub(super) fn describe(snapshot: &Snapshot, node: &Node, event: &Event) -> Decision {
    use DecisionStep::{Assign, Borrow, Claim, Limit, OwnBlock, Pool, Request};
    match event {
        Event::Family { family, wanted } => {
            let addresses = if *wanted == 1 { "address" } else { "addresses" };
            let detail = format!("{wanted} {family} {addresses} requested");
            let keys = vec![Key::Node(node.name.clone())];
            Decision {
                step: Request,
                subject: Subject::Node(node.name.clone()),
                detail,
                keys,
            }
        }
        Event::PoolServes { pool, cidr } => pool_decision(Pool, pool, cidr, "serves the request"),
        Event::PoolPassedOver { pool, cidr, why } => {
            pool_decision(Pool, pool, cidr, &format!("skipped, {why}"))
        }
        Event::GaveUp(key) => affinity_decision(
            OwnBlock,
            key,
            "released: its pool no longer selects the node, and it is empty",
        ),
        Event::OwnBlock { key, found } => own_block_decision(snapshot, key, found),
        Event::NeedsBlock { held, limit } => {
            let detail = format!("needs another block: it holds {held} of {limit} in these pools");
            config_decision(Limit, node, &detail)
        }
        Event::BlockLimit { held, limit } => {
            let detail = format!(
                "holds {held} blocks in these pools and may hold {limit}: it gets no more, and nothing is borrowed"
            );
            config_decision(Limit, node, &detail)
        }
        Event::NoAutoAllocation => config_decision(
            Limit,
            node,
            "nodes cannot claim blocks (autoAllocateBlocks is false)",
        ),
        Event::Searched { pool, cidr, passed } => pool_decision(
            Claim,
            pool,
            cidr,
            &format!("no room for a new block{}", passed_over(*passed)),
        ),
        Event::NotReclaimed { block, owner, why } => {
            let owner = owner_name(owner.as_ref());
            block_decision(
                Claim,
                block,
                format!("empty, but not taken from {owner}: {}", not_reclaimed(why)),
            )
        }
        Event::Reclaimed(key) => affinity_decision(Claim, key, &format!("empty, taken from {}", key.owner())),
        Event::Claimed(key) => affinity_decision(Claim, key, &format!("claimed for {}", key.owner())),
        Event::NothingToClaim => Decision {
            step: Claim,
            subject: Subject::Node(node.name.clone()),
            detail: "finds no block to claim in these pools".to_owned(),
            keys: Vec::new(),
        },
        Event::NothingBorrowed => config_decision(Borrow, node, "borrows nothing: strict affinity is on"),
        Event::Borrows { pool, cidr, blocks } => pool_decision(
            Borrow,
            pool,
            cidr,
            &format!("searches its {blocks} blocks for single addresses"),
        ),
        Event::BlockOfAddress {
            address,
            block,
            owner,
        } => {
            let owner = owner_name(owner.as_ref());
            address_decision(
                OwnBlock,
                address,
                block,
                format!("is in block {block} of {owner}"),
            )
        }
        Event::NoBlockOfAddress { address, block } => address_decision(
            Claim,
            address,
            block,
            format!("its block {block} does not exist, and is claimed"),
        ),
        Event::Assigned {
            block,
            owner,
            addresses,
        } => {
            let borrowed = match owner {
                Some(BlockOwner::Host(name) | BlockOwner::Virtual(name)) if *name == node.name => {
                    String::new()
                }
                other => format!(", borrowed from {}", owner_name(other.as_ref())),
            };
            block_decision(
                Assign,
                block,
                format!("assigns {}{borrowed}", joined(addresses, ", ")),
            )
        }
    }
}

/// Creates a decision about the node, by the allocator's settings.
fn config_decision(step: DecisionStep, node: &Node, detail: &str) -> Decision {
    let subject = Subject::Node(node.name.clone());
    Decision {
        step,
        subject,
        detail: detail.to_owned(),
        keys: vec![Key::IpamConfig],
    }
}

/// Creates a decision about a pool.
fn pool_decision(step: DecisionStep, name: &str, cidr: &IpNet, detail: &str) -> Decision {
    let keys = vec![Key::Pool(name.to_owned())];
    Decision {
        step,
        subject: Subject::Pool(*cidr),
        detail: format!("{name}: {detail}"),
        keys,
    }
}

/// Creates a decision about a block.
fn block_decision(step: DecisionStep, block: &IpNet, detail: String) -> Decision {
    Decision {
        step,
        subject: Subject::Block(*block),
        detail,
        keys: vec![Key::Block(*block)],
    }
}

/// Creates a decision about a block, by its affinity.
fn affinity_decision(step: DecisionStep, key: &AffinityKey, detail: &str) -> Decision {
    let keys = block_and_affinity(key);
    Decision {
        step,
        subject: Subject::Block(key.cidr),
        detail: detail.to_owned(),
        keys,
    }
}

/// Creates a decision about an address in a block.
fn address_decision(step: DecisionStep, address: &IpAddr, block: &IpNet, detail: String) -> Decision {
    Decision {
        step,
        subject: Subject::Address(*address),
        detail,
        keys: vec![Key::Block(*block)],
    }
}

/// Creates a decision about a block of the node itself: how many addresses are free in it, or why it cannot be used.
/// The keys are those of the objects that decide it.
fn own_block_decision(snapshot: &Snapshot, key: &AffinityKey, found: &OwnBlock) -> Decision {
    let mut keys = block_and_affinity(key);
    if let Some(cidr) = reserved_part(key, found) {
        keys.extend(reservations(snapshot, cidr));
    }

    let mut detail = words_of_own_block(found);
    // The allocator confirms any other affinity before it uses the block.
    let state = state_of_affinity(snapshot, key);
    if state != AffinityState::Confirmed {
        detail.push_str(&format!(" (its affinity was {state})"));
    }
    Decision {
        step: DecisionStep::OwnBlock,
        subject: Subject::Block(key.cidr),
        detail,
        keys,
    }
}

/// Returns the state of an affinity in the snapshot. An affinity that is not in it has the default state.
fn state_of_affinity(snapshot: &Snapshot, key: &AffinityKey) -> AffinityState {
    let affinities = &snapshot.affinities;
    match affinities.iter().find(|affinity| affinity.value.key == *key) {
        Some(affinity) => affinity.value.state.clone(),
        None => AffinityState::default(),
    }
}

/// Returns the CIDR in which IP reservations keep addresses of a block from being assigned; `None` if they have no part
/// in the result.
fn reserved_part(key: &AffinityKey, found: &OwnBlock) -> Option<IpNet> {
    match found {
        OwnBlock::Reserved(cidr) => Some(*cidr),
        OwnBlock::Full {
            reserved: 0,
            cooling: 0,
        } => None,
        OwnBlock::Full { .. } => Some(key.cidr),
        OwnBlock::Free(_) | OwnBlock::Stale | OwnBlock::Gone | OwnBlock::Unusable(_) => None,
    }
}

/// Describes a block of the node itself, as the allocator found it.
fn words_of_own_block(found: &OwnBlock) -> String {
    match found {
        OwnBlock::Free(free) => format!("the node's own block: {free} free"),
        OwnBlock::Full {
            reserved: 0,
            cooling: 0,
        } => "the node's own block: full".to_owned(),
        OwnBlock::Full { reserved, cooling } => format!(
            "the node's own block: full; {reserved} free addresses are reserved, {cooling} are cooling down"
        ),
        OwnBlock::Reserved(_) => "the node's own block: completely reserved".to_owned(),
        OwnBlock::Stale => {
            "belongs to another owner: the node's affinity is stale and was removed".to_owned()
        }
        OwnBlock::Gone => "its affinity is gone".to_owned(),
        OwnBlock::Unusable(reason) => format!("cannot be used: {reason}"),
    }
}

/// Describes the blocks that a search in a pool passed over, by reason, such as `: 3 full, 1 reserved`.
fn passed_over(passed: Passed) -> String {
    let numbers = [
        (passed.full, "full"),
        (passed.in_use, "owned by others, with free addresses"),
        (passed.empty, "owned by others and empty"),
        (passed.unread, "not examined"),
        (passed.reserved, "reserved"),
        (passed.other_size, "taken by a block of another size"),
        (passed.undecodable, "cannot be decoded"),
    ];
    let mut parts: Vec<String> = Vec::new();
    for (number, reason) in numbers {
        if number > 0 {
            parts.push(format!("{number} {reason}"));
        }
    }
    // Without a block to pass over, not even one fits into the pool.
    if parts.is_empty() {
        return ": it is too small for one".to_owned();
    }
    format!(": {}", parts.join(", "))
}

fn not_reclaimed(why: &NotReclaimed) -> String {
    match why {
        NotReclaimed::Young => "claimed less than a minute ago".to_owned(),
        NotReclaimed::NoOwner => "it has no owner that could release it".to_owned(),
        NotReclaimed::Failed(reason) => reason.clone(),
    }
}

/// Returns the keys of the IP reservations that overlap a CIDR.
fn reservations(snapshot: &Snapshot, cidr: IpNet) -> Vec<Key> {
    let mut keys = Vec::new();
    for stored in &snapshot.reservations {
        let reservation = &stored.value;
        if reservation.cidrs.iter().any(|reserved| overlap(*reserved, cidr)) {
            keys.push(Key::Reservation(reservation.name.clone()));
        }
    }
    keys
}

fn block_and_affinity(key: &AffinityKey) -> Vec<Key> {
    vec![Key::Block(key.cidr), Key::Affinity(key.clone())]
}

fn owner_name(owner: Option<&BlockOwner>) -> String {
    owner.map_or_else(|| "no owner".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_do_not_borrow_from_their_own_blocks() {
        let services = Node {
            name: "load-balancer".to_owned(),
            ..Node::default()
        };
        let detail = |owner: Option<BlockOwner>| {
            let assigned = Event::Assigned {
                block: "198.51.100.0/28".parse().unwrap(),
                owner,
                addresses: vec!["198.51.100.3".parse().unwrap()],
            };
            describe(&Snapshot::default(), &services, &assigned).detail
        };
        let own = BlockOwner::Virtual("load-balancer".to_owned());
        assert_eq!(detail(Some(own)), "assigns 198.51.100.3");
        assert_eq!(detail(None), "assigns 198.51.100.3, borrowed from no owner");
    }
}
