//! What findings say: the one place where they become sentences.
//!
//! It is here and not in `cli`, since reports, diffs and plans quote findings, and the tests of the rules read them.
//! Nothing decides by it.

mod fleet;
mod names;
mod reasons;

use std::fmt;

use calipam_model::affinity::AffinityKey;
use calipam_model::block::BlockOwner;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

pub(crate) use self::fleet::HERE;
use self::names::{addresses, list};
pub(crate) use self::names::{name_of_claim, short};
pub use self::names::{names_of_mentions, names_of_owners};
use crate::code::{Code, Severity};
use crate::finding::{
    AddressEvidence, AffinityEvidence, BlockEvidence, Conflicting, Detail, Evidence, Finding, HandleEvidence,
    InvalidSelector, KeyDefect, NoAddressEvidence, OtherIpamEvidence, OwnerEvidence, OwnerKind, PodState,
    PoolEvidence, RecordEvidence, RefusalEvidence, Subject, UndecodableEvidence,
};
use crate::occupancy::whole_percent;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Address(address) => write!(f, "{address} {}", self.says()),
            _ => f.write_str(&self.says()),
        }
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Finding", 5)?;
        object.serialize_field("code", &self.code)?;
        object.serialize_field("severity", &self.severity)?;
        object.serialize_field("subject", &self.subject)?;
        object.serialize_field("message", &self.message())?;
        object.serialize_field("evidence", &self.evidence)?;
        object.end()
    }
}

impl Finding {
    /// What it says in one line.
    pub fn message(&self) -> String {
        self.to_string()
    }

    /// The message; without the address at its front where the finding is about one.
    pub fn says(&self) -> String {
        let subject = short(&self.subject.to_string());
        match &self.evidence {
            _ if self.code == Code::HalfDeleted => format!("{subject} is marked deleted, but still exists"),
            Evidence::Address(evidence) => self.says_of_address(evidence),
            Evidence::Block(evidence) => format!("{subject} {}", self.says_of_block(evidence)),
            Evidence::Affinity(evidence) => format!("{subject} {}", self.says_of_affinity(evidence)),
            Evidence::Handle(evidence) => self.says_of_handle(evidence, &subject),
            Evidence::Pool(evidence) => {
                format!("{} ({subject}) {}", short(&evidence.name), self.says_of_pool(evidence))
            }
            Evidence::Node(evidence) => format!("{subject} {}", reasons::of_node(self.code, evidence)),
            Evidence::NoAddress(evidence) => self.says_of_refusals(evidence, &subject),
            Evidence::Endpoint(owner) => self.says_of_owner(owner),
            Evidence::Configuration(settings) => match self.code {
                Code::DatastoreLocked => {
                    "the datastore is locked: no pod can start or stop until it is unlocked".to_owned()
                }
                Code::ClusterSettingsDiffer => fleet::says_of_settings(settings),
                Code::AutoAllocationOff => {
                    "automatic block allocation is off: nodes cannot claim blocks".to_owned()
                }
                _ => format!(
                    "the IPAM settings that Calico uses and those of the resource IPAMConfiguration differ in {}",
                    list(settings.keys())
                ),
            },
            Evidence::OtherIpam(OtherIpamEvidence { pods, left_over }) => {
                let pods = if *pods == 1 {
                    "1 pod has an address".into()
                } else {
                    format!("{pods} pods have addresses")
                };
                let left_over = match left_over {
                    0 => String::new(),
                    count => format!(": left over in blocks are records of {} for pods", addresses(count)),
                };
                format!("{pods} of host-local, not of Calico IPAM{left_over}")
            }
            Evidence::Undecodable(evidence) => format!("{subject} {}", self.says_of_object(evidence)),
            Evidence::Elsewhere(evidence) => fleet::says_of_others(self.code, &subject, evidence),
            Evidence::Unreadable(evidence) => format!("cannot be read: {}", short(&evidence.reason)),
        }
    }

    fn says_of_address(&self, evidence: &AddressEvidence) -> String {
        let AddressEvidence { records, .. } = evidence;
        let users = || names_of_owners(&evidence.owners);
        let recorded =
            |record: Option<&RecordEvidence>| record.map_or_else(String::new, RecordEvidence::holder);
        let mut holding = records.iter().filter(|record| !record.record.as_ref().is_cooling());

        let says = match (self.code, &self.detail) {
            (Code::DuplicateAddress, _) => {
                let recorded = holding.map(|record| format!(", recorded for {}", record.holder()));
                format!("used by {}{}", users(), recorded.collect::<String>())
            }
            (Code::UnrecordedAddress, detail) => {
                let place = match detail {
                    Detail::FreeIn(block) => format!("free in {block}"),
                    _ => "in no block".to_owned(),
                };
                format!("used by {}, not assigned by Calico and {place}", users())
            }
            (Code::InUseOutsidePools, _) => format!("used by {}, but in no pool", users()),
            (Code::OwnerMismatch, _) => {
                let record = holding.next();
                let whose = recorded(record);
                // One of the same name is distinguished by the node.
                let node = record.and_then(|record| record.record.as_ref().get("node"));
                let is_namesake = evidence.owners.iter().any(|owner| owner.pod == whose);
                let node = node.filter(|_| is_namesake).map(|node| format!(" on {node}")).unwrap_or_default();
                format!("used by {}, but recorded for {whose}{node}", users())
            }
            (_, Detail::PodOn(node)) => {
                let pod = evidence.owners.iter().find(|owner| !owner.pod.is_empty());
                let pod = pod.map_or("its pod", |owner| &owner.pod);
                let recorded = evidence.recorded_nodes().next().unwrap_or_default();
                format!(
                    "used by {} on {}, but recorded on {}, so that Calico takes it for leaked",
                    short(pod),
                    short(node),
                    short(&recorded)
                )
            }
            (Code::AddressInSeveralBlocks, _) => {
                let claims: Vec<String> =
                    holding.map(|record| format!("{} for {}", record.block, record.holder())).collect();
                format!("allocated in {}", claims.join(" and in "))
            }
            (Code::ServiceAddressExtra, _) => {
                format!("allocated to {}, whose ingress does not name it", recorded(records.first()))
            }
            (_, Detail::FreeIn(block)) => format!("used by {}, but free in {block}", users()),
            (_, Detail::Leaked(reason)) => {
                let why =
                    records.first().map_or_else(String::new, |record| reasons::of_leak(*reason, record));
                format!("allocated to {}, {why}", recorded(records.first()))
            }
            (_, Detail::HeldOn(held)) => {
                let (node, host) = (short(&held.node), short(&held.host));
                format!("allocated on {node} from {}, a block of {host}", held.block)
            }
            (_, Detail::TunnelIn { node, kind, host }) => {
                let (node, host) = (short(node), short(host));
                format!("is a tunnel address of {node} ({}), in a block of {host}", kind.field())
            }
            _ => match records.first() {
                Some(record) => format!("used by {}, but it is cooling down in {}", users(), record.block),
                None => format!("used by {}, but in no block", users()),
            },
        };
        match &evidence.last_in_use {
            Some(last) => format!("{says}; last seen in use at {:.0}, by {}", last.at, last.by),
            None => says,
        }
    }

    fn says_of_block(&self, evidence: &BlockEvidence) -> String {
        let owner = || match &evidence.owner {
            Some(BlockOwner::Host(name) | BlockOwner::Virtual(name) | BlockOwner::Other(name)) => short(name),
            None => "no one".to_owned(),
        };
        match self.code {
            Code::CorruptBlock => {
                let first = evidence.problems.first().map(|p| short(&p.to_string())).unwrap_or_default();
                match evidence.problems.len() {
                    0 | 1 => format!("is corrupt: {first}"),
                    2 => format!("is corrupt: {first}, and one more problem"),
                    more => format!("is corrupt: {first}, and {} more problems", more - 1),
                }
            }
            Code::OverlappingBlocks => format!("overlaps {}", list(&evidence.others)),
            Code::AffinityConflict => {
                let holders: std::collections::BTreeSet<&str> = evidence
                    .others
                    .iter()
                    .filter_map(Conflicting::holder)
                    .map(|key| key.node.as_str())
                    .collect();
                format!("is claimed by {}", list(holders))
            }
            Code::BlockOutsidePools => "is in no pool".to_owned(),
            Code::BlockSizeMismatch => match evidence.pools.first() {
                Some(pool) => {
                    format!("is in the pool {}, whose blocks are /{}", short(&pool.name), pool.block_size)
                }
                None => "does not have the block size of its pool".to_owned(),
            },
            Code::UnexpectedBlockOwner => {
                format!("belongs to {:?}, which is neither a node nor virtual", owner())
            }
            Code::EmptyUnownedBlock => "has no owner and no allocated address".to_owned(),
            Code::BlockOfMissingNode => {
                format!("belongs to {}, which {}", owner(), self.says_of_missing_node())
            }
            _ => format!("belongs to {}, which has no affinity for it", owner()),
        }
    }

    fn says_of_missing_node(&self) -> &'static str {
        match self.detail {
            Detail::LeftBehind => "does not exist in Kubernetes",
            _ => "does not exist",
        }
    }

    fn says_of_affinity(&self, evidence: &AffinityEvidence) -> String {
        let state = || short(&evidence.state.to_string());
        match (self.code, &self.detail) {
            (Code::UnexpectedAffinityType, _) => {
                format!("is of the type {:?}, which Calico never writes", short(&evidence.kind.to_string()))
            }
            (Code::UnsettledAffinity, _) => format!("is {}", state()),
            (Code::AffinityOfMissingNode, _) => format!("names a node that {}", self.says_of_missing_node()),
            (Code::AffinityWithoutBlock, _) => "is confirmed, but its block does not exist".to_owned(),
            (_, Detail::Labels(_)) if self.severity == Severity::Info => {
                let holder = self.nodes.first().map(|node| short(node)).unwrap_or_default();
                format!("has no labels yet, like all affinities of {holder}: it is not upgraded")
            }
            (_, Detail::Labels(wrong)) => format!("lacks the right labels: {}", list(wrong)),
            _ => {
                let owner = evidence
                    .block_owner
                    .as_ref()
                    .map_or("no one".to_owned(), |owner| short(owner.host().unwrap_or(&owner.to_string())));
                format!("is {}, but the block belongs to {owner}", state())
            }
        }
    }

    fn says_of_handle(&self, evidence: &HandleEvidence, id: &str) -> String {
        match self.code {
            Code::OrphanHandle => format!("{id} is a handle that no allocation refers to"),
            Code::MissingHandle => {
                let count: i64 = evidence.blocks.iter().map(|block| block.in_block).sum();
                let verb = if count == 1 { "is" } else { "are" };
                format!("{} {verb} recorded under {id}, which has no object", addresses(count))
            }
            Code::HandleCarriageReturn => {
                let place = if evidence.addresses.is_empty() { "stored" } else { "recorded" };
                format!("{id} is {place} with a trailing carriage return")
            }
            Code::SharedLegacyHandle => format!("{} share the handle {id}", list(&evidence.addresses)),
            Code::HandleCaseCollision => format!("{} share one handle object", list(&evidence.recorded_as)),
            _ => {
                let more = match evidence.blocks.len() {
                    0 | 1 => String::new(),
                    count => format!(", and {} more blocks differ", count - 1),
                };
                evidence.blocks.first().map_or_else(String::new, |first| {
                    let claimed = addresses(first.in_handle);
                    format!(
                        "{id} claims {claimed} in {}, which records {}{more}",
                        first.block, first.in_block
                    )
                })
            }
        }
    }

    fn says_of_pool(&self, evidence: &PoolEvidence) -> String {
        if self.code == Code::OverlappingPools {
            return format!("overlaps {}", list(&evidence.others));
        }
        if !evidence.covers.is_empty() {
            return format!("covers {}", list(&evidence.covers));
        }
        if let Some(InvalidSelector { field, selector, reason }) = &evidence.invalid_selector {
            return format!("has the {field} {selector:?}, which does not parse: {reason}");
        }
        let (taken, usable) = (evidence.in_use.unwrap_or_default(), evidence.usable.unwrap_or_default());
        let percent = whole_percent(taken, usable).unwrap_or_default();
        match evidence.cooling {
            None => format!("is {percent} % full: {taken} of {usable} in use"),
            Some(cooling) => {
                let in_use = taken.saturating_sub(cooling);
                format!("is {percent} % full: {in_use} of {usable} in use, {cooling} cooling down")
            }
        }
    }

    fn says_of_refusals(&self, evidence: &NoAddressEvidence, subject: &str) -> String {
        let of = |refusal: &RefusalEvidence| format!("{} address: {}", refusal.of_family(), refusal.why);
        let refusals: Vec<String> = evidence.refusals.iter().map(of).collect();
        if let Some(node) = &evidence.node {
            return format!("{subject} gets no {} (on {})", refusals.join("; no "), short(node));
        }
        let who = match evidence.nodes.len() {
            0 => format!("{subject} gets"),
            many => format!("{many} nodes get"),
        };
        let waiting = match evidence.waiting_pods {
            0 => String::new(),
            1 => "; 1 pod waits".to_owned(),
            many => format!("; {many} pods wait"),
        };
        format!("{who} no further {}{waiting}", refusals.join("; no further "))
    }

    fn says_of_owner(&self, owner: &OwnerEvidence) -> String {
        let (name, node) = (short(&owner.name), short(&owner.node));
        match (self.code, &self.detail) {
            (Code::EndpointWithoutPod, _) => {
                let what = match owner.pod_state {
                    Some(PodState::Finished) => "has finished",
                    Some(PodState::Gone) | None => "does not exist",
                };
                format!("{name} is the endpoint of pod {}, which {what}", short(&owner.pod))
            }
            (Code::PodWithoutEndpoint, _) => format!("{name} runs on {node}, but has no endpoint"),
            (Code::ServiceWithoutAddress, _) => {
                let cause = owner.cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                format!("{name} is a LoadBalancer service without an address{cause}")
            }
            (Code::TunnelAddressMissing, _) => {
                format!("{name} has no address for a tunnel that other nodes have: {}", list(&owner.fields))
            }
            (_, Detail::PodOn(other)) => format!("{name} is on {node}, its pod on {other}"),
            (_, Detail::Named(named)) => {
                let sources = ["its status", "its annotation", "its endpoint"].into_iter().zip(named.iter());
                let said: Vec<String> = sources
                    .filter(|(_, addresses)| !addresses.is_empty())
                    .map(|(source, addresses)| format!("{source} names {}", list(addresses)))
                    .collect();
                format!("{name}: {}", said.join(", "))
            }
            _ if owner.kind == OwnerKind::Pod && owner.fields.is_empty() => format!(
                "{name} waits for {node}, which does not exist, and may keep Calico from cleaning up what this node holds"
            ),
            _ => format!("{name} is on {node}, which does not exist"),
        }
    }

    fn says_of_object(&self, evidence: &UndecodableEvidence) -> String {
        let first = evidence.reasons.first().map(|reason| short(reason));
        match (first, &self.detail, evidence.fields.first()) {
            (Some(reason), Detail::Key(KeyDefect::Another), _) => {
                format!("is not the key that Calico looks up: {reason}")
            }
            (Some(reason), Detail::Key(KeyDefect::Unknown), _) => format!("is not a key of Calico: {reason}"),
            (Some(reason), ..) => format!("does not parse: {reason}"),
            (None, _, Some(field)) => {
                let more = match evidence.fields.len() {
                    1 => String::new(),
                    count => format!(", and {} more", count - 1),
                };
                format!("has a bad field {}: {}{more}", field.field, short(&field.reason))
            }
            (None, _, None) => "does not parse".to_owned(),
        }
    }
}

impl Conflicting {
    fn holder(&self) -> Option<&AffinityKey> {
        match self {
            Self::Affinity(key) => Some(key),
            Self::Block(_) => None,
        }
    }
}

impl fmt::Display for Conflicting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(cidr) => cidr.fmt(f),
            Self::Affinity(key) => key.fmt(f),
        }
    }
}

impl RecordEvidence {
    fn holder(&self) -> String {
        name_of_claim(&self.record.as_ref())
    }
}
