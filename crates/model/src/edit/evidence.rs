//! What has to be true of objects for a write to take place.

use std::sync::Arc;

use crate::block::{BlockContent, BlockOwner};
use crate::node::Node;
use crate::object::Object;
use crate::pod::Pod;
use crate::service::Service;
use crate::snapshot::Revision;

/// What has to be true of a key for a write to take place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is stored there.
    Absent,
    /// What is stored there is this version.
    At(Revision),
    /// There is a block that records addresses under this handle, or, for false, there is none that does. It may be of
    /// any version; a write takes place only if the block stays the one that was looked at.
    Records(String, bool),
    /// What is stored there says this. The executor puts the version that it has just read in its place.
    Says(Condition),
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
}

impl Condition {
    /// True where it holds of what was read.
    pub fn holds(&self, found: Found<'_>) -> bool {
        if let Self::SameUser(uid, user) = self {
            return matches!(found, Found::User(id, now) if id == uid && user.says_the_same(now));
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
            Self::SameUser(..) => false,
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
}
