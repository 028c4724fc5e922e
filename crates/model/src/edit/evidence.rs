//! What has to be true of objects for a write to take place.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::block::{BlockContent, BlockOwner};
use crate::node::Node;
use crate::pod::Pod;
use crate::service::Service;
use crate::snapshot::Revision;
use crate::writable::Object;

/// What has to be true of a key for a write to take place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing is stored there.
    Absent,
    /// What is stored there is this version.
    At(Revision),
    /// The block records so many addresses under this handle; none if it is not there. It may be of any version; a write takes
    /// place only if the block stays the one that was read.
    Records(String, RangeInclusive<usize>),
    /// What is stored there matches this. The executor puts the version that it has just read in its place.
    Matches(Condition),
}

/// What has to be true of an object, whatever else changes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The block belongs to this owner, since this time.
    OwnedSince(BlockOwner, Option<String>),
    /// There is no block, or it belongs to another owner or none.
    NotOwnedBy(BlockOwner),
    /// It is the object with this UID, and says the same about addresses. Shared by all addresses that rest on it, which
    /// can be thousands.
    SameUser(String, Arc<User>),
    /// The object is there, whatever it says now. If UID and user are given, another object of the same name counts only
    /// if it uses one of the same addresses.
    StillThere(Option<(String, Arc<User>)>),
}

/// An object of Kubernetes that uses addresses, and is written for many other reasons, such as heartbeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    Node(Node),
    Pod(Pod),
    Service(Service),
}

/// What was read of a key.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    Nothing,
    Object(&'a Object),
    /// With its UID.
    User(&'a str, &'a User),
    /// Something that cannot be decoded, or of which the version alone is known.
    Unknown,
}

impl User {
    fn says_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pod(pod), Self::Pod(other)) => pod.uses_the_same(other),
            _ => self == other,
        }
    }

    /// True unless they are pods without an address in common.
    fn may_use_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pod(pod), Self::Pod(other)) => {
                pod.addresses().any(|used| other.addresses().any(|a| a == used))
            }
            _ => true,
        }
    }
}

impl Condition {
    /// True if it holds of what was read.
    pub fn holds(&self, found: Found<'_>) -> bool {
        match (self, found) {
            (Self::SameUser(uid, user), _) => {
                return matches!(found, Found::User(id, now) if id == uid && user.says_the_same(now));
            }
            (Self::StillThere(_), Found::Nothing) => return false,
            (Self::StillThere(Some((uid, user))), Found::User(id, now)) => {
                return id == uid || user.may_use_the_same(now);
            }
            (Self::StillThere(_), _) => return true,
            _ => {}
        }
        let block = match found {
            Found::Nothing => None,
            Found::Object(Object::Block(BlockContent::Sound(block))) => {
                Some(block).filter(|b| !b.is_deleted())
            }
            _ => return false,
        };
        match self {
            Self::OwnedSince(owner, since) => block
                .is_some_and(|block| block.owner() == Some(owner) && block.claim_time() == since.as_deref()),
            Self::NotOwnedBy(owner) => block.is_none_or(|block| block.owner() != Some(owner)),
            Self::SameUser(..) | Self::StillThere(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::PodParts;

    fn pod(parts: &PodParts<'_>) -> User {
        User::Pod(Pod::new(&PodParts { namespace: "default", name: "web", ..parts.clone() }).0)
    }

    #[test]
    fn of_a_pod_its_uid_its_phase_and_its_addresses_count() {
        let running =
            PodParts { node: "n", phase: "Running", cni_ip: Some("10.0.0.1/32"), ..PodParts::default() };
        let says = Condition::SameUser("u".into(), Arc::new(pod(&running)));
        let holds = |uid: &str, parts: PodParts<'_>| says.holds(Found::User(uid, &pod(&parts)));
        assert!(holds("u", running.clone()));
        assert!(holds("u", PodParts { ready: true, deleting: true, ..running.clone() }));
        assert!(!holds("v", running.clone()));
        assert!(!holds("u", PodParts { phase: "Succeeded", ..running.clone() }));
        assert!(!holds("u", PodParts { phase: "Pending", ..running.clone() }));
        assert!(!holds("u", PodParts { cni_ip: Some("10.0.0.2/32"), ..running.clone() }));
        assert!(!holds("u", PodParts { container_id: "c", ..running }));
        assert!(!says.holds(Found::Nothing) && !says.holds(Found::Unknown));
    }

    #[test]
    fn a_pod_is_gone_where_another_of_its_name_uses_other_addresses() {
        let running =
            PodParts { node: "n", phase: "Running", cni_ip: Some("10.0.0.1/32"), ..PodParts::default() };
        let there = Condition::StillThere(Some(("u".into(), Arc::new(pod(&running)))));
        let holds = |uid: &str, parts: PodParts<'_>| there.holds(Found::User(uid, &pod(&parts)));
        assert!(holds("u", running.clone()) && holds("v", running.clone()));
        let other = PodParts { cni_ip: Some("10.0.0.2/32"), ..running };
        assert!(holds("u", other.clone()) && !holds("v", other));
        assert!(!there.holds(Found::Nothing) && there.holds(Found::Unknown));
        assert!(Condition::StillThere(None).holds(Found::Unknown));
        assert!(!Condition::StillThere(None).holds(Found::Nothing));
    }
}
